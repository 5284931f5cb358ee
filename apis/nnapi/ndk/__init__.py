"""NNAPI's C interface (`NeuralNetworks.h`): its objects and rules, and `libneuralnetworks.so`."""
