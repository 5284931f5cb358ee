"""`.rknn` files: reading, running, and writing of compiled models (docs/rknn_files.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rkcosim.base.files import identify
from rkcosim.base.homes import lazy
from rkcosim.compiler.interpreters import register_home

if TYPE_CHECKING:
    from rkcosim.rknn_file.container import RknnFile
    from rkcosim.rknn_file.reader import read_rknn
    from rkcosim.rknn_file.tables import RknnFileError

__all__ = ["RknnFile", "RknnFileError", "is_rknn", "read_rknn"]

__getattr__ = lazy(
    __name__,
    {
        "RknnFile": "rkcosim.rknn_file.container",
        "RknnFileError": "rkcosim.rknn_file.tables",
        "read_rknn": "rkcosim.rknn_file.reader",
    },
)

KIND = ".rknn file"

register_home(KIND, "rkcosim.rknn_file.model")


def is_rknn(data: bytes) -> bool:
    """Return whether bytes begin like a `.rknn` file, including encrypted files."""
    return identify(data) == KIND
