"""Replacement of the Python module `rknnlite`, which `rkcosim rknn` adds to the path of programs.

`api.py` does not import this package: it is copied with `declarations.json` into a folder `rknnlite` and runs
in the program's Python interpreter.
"""
