"""Graphs of Hexagon NN (nnlib) on the simulated NPU, for programs that use its C interface.

`native` has the C library, and `calls` answers its requests.  `graph` and `execution` have the rules of
graphs, the modules `host_*` the operations, and `npu` what the NPU computes.
"""
