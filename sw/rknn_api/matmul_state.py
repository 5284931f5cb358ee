"""What a matrix product of rknn_matmul_api.h is made of: types, layouts, its context."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sw.compiler.matmul import KINDS, Matmul, MatmulKind, pack_b, unpack_b, unpack_elements
from sw.rknn_api import matmul_types as mt
from sw.rknn_api import types as t
from sw.rknn_api.matmul_quant import Quant
from sw.rknn_api.memory import Memory
from sw.rknn_api.state import Refusal, handle_value, runtime

TYPES: dict[int, tuple[MatmulKind, int, int]] = {
    mt.RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT32: (
        KINDS["float16 x float16 -> float32"],
        t.RKNN_TENSOR_FLOAT16,
        t.RKNN_TENSOR_FLOAT32,
    ),
    mt.RKNN_INT8_MM_INT8_TO_INT32: (KINDS["int8 x int8 -> int32"], t.RKNN_TENSOR_INT8, t.RKNN_TENSOR_INT32),
    mt.RKNN_INT8_MM_INT8_TO_INT8: (KINDS["int8 x int8 -> int8"], t.RKNN_TENSOR_INT8, t.RKNN_TENSOR_INT8),
    mt.RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT16: (
        KINDS["float16 x float16 -> float16"],
        t.RKNN_TENSOR_FLOAT16,
        t.RKNN_TENSOR_FLOAT16,
    ),
    mt.RKNN_INT8_MM_INT8_TO_FLOAT32: (
        KINDS["int8 x int8 -> float32"],
        t.RKNN_TENSOR_INT8,
        t.RKNN_TENSOR_FLOAT32,
    ),
    mt.RKNN_INT4_MM_INT4_TO_INT16: (KINDS["int4 x int4 -> int16"], t.RKNN_TENSOR_INT4, t.RKNN_TENSOR_INT16),
}
"""Products of the RK3588 with the header's types of A (and B) and C (vendor guide, table 3-13)."""

QUANTISED = (
    mt.RKNN_INT8_MM_INT8_TO_INT32,
    mt.RKNN_INT8_MM_INT8_TO_INT8,
    mt.RKNN_INT8_MM_INT8_TO_FLOAT32,
)
"""Products that take quantisation parameters."""

SEGMENT = 8192
"""A native B with more rows is made of blocks of so many, one after the other (vendor guide 3.5.4)."""

Bytes = npt.NDArray[np.uint8]


@dataclass
class MatmulContext:
    """What a `rknn_matmul_ctx` stands for."""

    info: mt.rknn_matmul_info
    kind: MatmulKind
    shapes: list[tuple[int, int, int]]
    shape: tuple[int, int, int]
    handle: int = 0
    core: int = 0
    memories: dict[str, Memory] = field(default_factory=dict)
    b: Any = None
    """Buffer of the library's own copy of B, when the program's cannot be used as it is."""
    b_matrix: npt.NDArray[Any] | None = None
    """B's numbers at the last set, for the sums that zero points need and for other parts of K."""
    b_parts: list[tuple[int, int]] = field(default_factory=list)
    """Parts of K for which `b` is packed."""
    quant: dict[str, Quant] = field(default_factory=dict)
    scratch: dict[str, Any] = field(default_factory=dict)
    cycles: int = 0
    io: dict[Any, Any] = field(default_factory=dict)
    error: BaseException | None = None

    @property
    def b_layout(self) -> int:
        """Layout that the program uses for B."""
        return int(self.info.B_layout)

    @property
    def native(self) -> bool:
        """Whether A and C are in the native layout."""
        return bool(self.info.AC_layout == mt.RKNN_MM_LAYOUT_NATIVE)

    def finish(self) -> None:
        """Nothing runs between calls."""

    def product(self) -> Matmul:
        """The product of the shape in use."""
        return self.product_of(self.shape)

    def product_of(self, shape: tuple[int, int, int]) -> Matmul:
        """The product of a shape.

        Raises
        ------
        MatmulError
            where there is none.
        """
        m, k, n = shape
        whole = self._in_place(k) or bool(self.quant)
        return Matmul(self.kind, m, k, n, self.native, self.native, whole)

    @property
    def b_in_place(self) -> bool:
        """Whether B is read where the program keeps it."""
        return self._in_place(self.shape[1])

    def _in_place(self, k: int) -> bool:
        return self.b_layout == mt.RKNN_MM_LAYOUT_NATIVE and k <= SEGMENT

    def close(self) -> None:
        """Free the library's buffers."""
        for buffer in self.scratch.values():
            buffer.free()
        self.scratch.clear()


def product_context(ctx: Any, function: str) -> MatmulContext:
    """The open context of a product.

    Raises
    ------
    Refusal
        with RKNN_ERR_CTX_INVALID.
    """
    state = runtime.contexts.get(handle_value(ctx))
    if not isinstance(state, MatmulContext):
        raise Refusal(t.RKNN_ERR_CTX_INVALID, f"{function}: invalid context")
    return state


def read_b(raw: Bytes, k: int, n: int, kind: MatmulKind, layout: int) -> npt.NDArray[Any]:
    """B (K x N) out of any layout."""
    if layout == mt.RKNN_MM_LAYOUT_NATIVE:
        parts = []
        for first in range(0, k, SEGMENT):
            rows = min(SEGMENT, k - first)
            parts.append(unpack_b(raw[first * n * kind.bits // 8 :], rows, n, kind))
        return np.concatenate(parts)
    values = unpack_elements(raw, k * n, kind)
    if layout == mt.RKNN_MM_LAYOUT_TP_NORM:
        return np.ascontiguousarray(values.reshape(n, k).T)
    return values.reshape(k, n)


def native_b(matrix: npt.NDArray[Any], kind: MatmulKind) -> Bytes:
    """B (K x N) in the native layout, a block for each segment of K."""
    parts = [pack_b(matrix[first : first + SEGMENT], kind) for first in range(0, matrix.shape[0], SEGMENT)]
    return np.concatenate(parts)
