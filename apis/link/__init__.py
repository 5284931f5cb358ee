"""Plug-ins for runtimes: scripts that use LiteRT or onnxruntime run on the simulated NPU (docs/delegates.md).

A plug-in is a C library (`native/`) that a runtime loads.  It starts a process
(`rkcosim.plugins.worker`) that compiles and simulates parts of the runtime's graph.
"""
