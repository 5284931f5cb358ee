"""Programming interfaces of other vendors and projects, each in a package of its own.

`rknn_api` and the plug-ins for LiteRT and onnxruntime are rooms of their own; everything here uses the
compiler, the driver and the common process of the plug-ins (`rkcosim.plugins`), and nothing of an engine.
"""
