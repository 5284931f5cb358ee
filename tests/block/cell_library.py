"""The C++ array cell in Python: cosim/engines/harness/cell through the functions of cell_shared.cpp."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np

from tests.twins.array_model import CellInputs

ROOT = Path(__file__).resolve().parents[2]
CELL = ROOT / "cosim" / "engines" / "harness" / "cell"

_SCALARS = (
    *("precision", "depthwise", "w_valid", "w_index", "w_stride"),
    *("f_valid", "f_swap", "f_first", "f_bank", "f_slot"),
    *("d_valid", "d_bank", "d_slot", "d_octet"),
)


def build(folder: Path, *flags: str) -> ctypes.CDLL:
    """Compile the cell with the given compiler flags into `folder` and load it."""
    library = folder / "cell.so"
    sources = [
        CELL / "npu_cell.cpp",
        CELL / "npu_cell_float.cpp",
        ROOT / "tests" / "block" / "cell_shared.cpp",
    ]
    options = ["-std=c++17", "-O3", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", *flags]
    subprocess.run(["g++", *options, f"-I{CELL}", *sources, "-o", library], check=True)
    functions = ctypes.CDLL(str(library))
    functions.cell_new.restype = ctypes.c_void_p
    return functions


class CppCell:
    """A cell of a library that `build` made.

    Attributes
    ----------
    o_acc, o_sum : 8 values each, the outputs after the last `step`.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._cell = ctypes.c_void_p(library.cell_new())
        self.o_acc, self.o_sum = np.zeros(8, np.int64), np.zeros(8, np.uint32)

    def close(self) -> None:
        self._library.cell_delete(self._cell)

    def step(self, i: CellInputs, reset: bool = False) -> None:
        """One clock edge."""
        scalars = bytes(int(getattr(i, name)) for name in _SCALARS) + bytes([reset])
        empty = np.zeros(128, np.int8)
        weights = np.ascontiguousarray(empty if i.w_data is None else i.w_data, dtype=np.int8)
        features = np.ascontiguousarray(empty if i.f_data is None else i.f_data, dtype=np.int8)
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (weights, features, self.o_acc, self.o_sum)]
        self._library.cell_step(self._cell, scalars, *pointers)

    def tiles(
        self, precision: int, depthwise: int, weights: np.ndarray, features: np.ndarray, first: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Add tiles to one slot, one pixel each.

        Parameters
        ----------
        weights : array of n x 1024 bytes
        features : array of n x 128 bytes
        first : n flags that start the accumulators again

        Returns
        -------
        tuple
            Accumulators (int64) and sums (uint32) after each tile, of shape (n, 64).
        """
        weights, features = (np.ascontiguousarray(a).view(np.uint8) for a in (weights, features))
        first = np.ascontiguousarray(first, np.uint8)
        count = len(first)
        if weights.size != 1024 * count or features.size != 128 * count:
            raise ValueError(
                f"{count} tiles need {count} x 1024 bytes of weights and {count} x 128 of features"
            )
        acc, total = np.zeros((count, 64), np.int64), np.zeros((count, 64), np.uint32)
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (weights, features, first, acc, total)]
        self._library.cell_tiles(self._cell, precision, depthwise, count, *pointers)
        return acc, total
