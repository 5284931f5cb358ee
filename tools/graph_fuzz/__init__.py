"""Random small ONNX graphs through every way into the simulation, judged by onnxruntime.

`python -m tools.graph_fuzz --graphs 300 --seed 1` draws graphs (`draw.py`), gives each to the C library, to
rknnlite, to `run` and to `compare` (`doors.py`), and compares every output with onnxruntime (`judge.py`). A
graph that fails is cut down to the few nodes that still fail (`shrink.py`) and kept in a folder.
"""
