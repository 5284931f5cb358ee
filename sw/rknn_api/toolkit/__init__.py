"""Replacement of the Python module `rknn` of the vendor's toolkit, which `rkcosim rknn` adds to the path.

`api.py` is copied into a folder `rknn` and runs in the program's Python interpreter, beside the module
`rknnlite` (`rkcosim.rknn_api.lite`).
"""
