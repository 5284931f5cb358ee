"""DIOPI on the simulated NPU: the Python package `diopilib`, with the device RK3588 in it.

`library` has its members; `runtime` has memory, streams and registration; `operators` has the operators, each
with its arithmetic in numpy and, where the NPU can do it, as a network of a few nodes; `npu` runs these.
Source of the interface: DeepLink-org/DIOPI b179d617.
"""
