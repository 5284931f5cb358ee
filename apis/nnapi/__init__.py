"""Android's Neural Networks API (NNAPI) on the simulated NPU.

`model` has the data of a model with the names of the hardware abstraction layer (HAL), `prepared` executes
it, and `device` is the driver that programs see.
"""
