"""Matrix products as tasks of the NPU (docs/rknn_api.md)."""

from sw.compiler.matmul.packing import pack_b, pack_elements, unpack_b, unpack_elements
from sw.compiler.matmul.product import Matmul
from sw.compiler.matmul.shape import CHANNEL_STEP, KINDS, MatmulError, MatmulKind, ProductShape
from sw.compiler.matmul.tasks import Requant
from sw.compiler.matmul.tiling import SUM_BYTES, MatmulTile

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
