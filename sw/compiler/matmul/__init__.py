"""Matrix products as tasks of the NPU (docs/rknn_api.md)."""

from rkcosim.compiler.matmul.shape import (
    CHANNEL_STEP,
    KINDS,
    MatmulError,
    MatmulKind,
    ProductShape,
    pack_b,
    pack_elements,
    unpack_b,
    unpack_elements,
)
from rkcosim.compiler.matmul.tasks import Matmul, Requant
from rkcosim.compiler.matmul.tiling import SUM_BYTES, MatmulTile

__all__ = [
    "CHANNEL_STEP",
    "KINDS",
    "SUM_BYTES",
    "Matmul",
    "MatmulError",
    "MatmulKind",
    "MatmulTile",
    "ProductShape",
    "Requant",
    "pack_b",
    "pack_elements",
    "unpack_b",
    "unpack_elements",
]
