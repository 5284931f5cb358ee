"""`.rknn` files: reading, running, and writing of compiled models (docs/rknn_files.md)."""

from __future__ import annotations

from rkcosim.rknn_file.container import RknnFile
from rkcosim.rknn_file.reader import is_rknn, read_rknn
from rkcosim.rknn_file.tables import RknnFileError

__all__ = ["RknnFile", "RknnFileError", "is_rknn", "read_rknn"]
