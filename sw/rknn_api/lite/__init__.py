"""Replacement of the Python module `rknnlite`, which `rkcosim rknn` adds to the path of programs.

The modules are copied with `declarations.json` into a folder `rknnlite/api`, where `__init__.py` imports
their public names, and run in the program's Python interpreter: they import nothing of this package, only
numpy. Names of modules, classes and members are those that programs use of RKNN-Toolkit Lite2 2.3.2.
"""
