"""Replacement of the Python module `rknn` of the vendor's toolkit, which `rkcosim rknn` adds to the path.

`api.py` and `hybrid.py` are copied into a folder `rknn` and run in the program's Python interpreter, beside
the module `rknnlite` (`rkcosim.rknn_api.lite`).
"""
