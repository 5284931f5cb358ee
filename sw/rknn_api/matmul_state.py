"""State of a matrix product of rknn_matmul_api.h: types, layouts, quantisation, its context."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.matmul import KINDS, Matmul, MatmulKind, Requant, pack_b, unpack_b, unpack_elements
from rkcosim.compiler.requant import BS_SHIFT, channel_multipliers, output_scale
from rkcosim.compiler.runtime import TaskMeasure
from rkcosim.rknn_api import matmul_types as mt
from rkcosim.rknn_api import types as t
from rkcosim.rknn_api.memory import Memory
from rkcosim.rknn_api.state import Refusal, handle_value, runtime


def _product(kind: mt.rknn_matmul_type) -> tuple[str, int, int]:
    """Name of a product in `KINDS`, and the header's types of A and C, from the name of its type."""
    a, b, c = re.split("_MM_|_TO_", kind.name.removeprefix("RKNN_"))
    tensors = t.rknn_tensor_type
    operand, result = tensors[f"RKNN_TENSOR_{a}"], tensors[f"RKNN_TENSOR_{c}"]
    return f"{a} x {b} -> {c}".lower(), int(operand), int(result)


TYPES: dict[int, tuple[MatmulKind, int, int]] = {
    int(kind): (KINDS[name], a, c)
    for kind in mt.rknn_matmul_type
    for name, a, c in [_product(kind)]
    if name in KINDS
}
"""Products of the RK3588 with the header's types of A (and B) and C (vendor guide, table 3-13)."""

QUANTISED = (
    mt.RKNN_INT8_MM_INT8_TO_INT32,
    mt.RKNN_INT8_MM_INT8_TO_INT8,
    mt.RKNN_INT8_MM_INT8_TO_FLOAT32,
)
"""Products that accept quantisation parameters."""

SEGMENT = 8192
"""A native B with more rows consists of consecutive blocks of this many rows (vendor guide 3.5.4)."""

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Quant:
    """Scales and zero points of a matrix: one each, or one per column (B)."""

    scales: npt.NDArray[np.float64]
    zeros: npt.NDArray[np.int64]


_PLAIN = Quant(np.ones(1), np.zeros(1, np.int64))


def requant_of(
    kind: MatmulKind, n: int, quant: Mapping[str, Quant], matrix: Callable[[], npt.NDArray[Any]]
) -> tuple[Requant | None, npt.NDArray[np.float64] | None]:
    """Processing of the sums by the DPU, and the factor of each column that is left to the host.

    int8: `C = sum (a - za)(b - zb) * sa * sb / sc + zc`, rounded twice (docs/rknn_api.md).  int32: the
    sum; with B per channel, converted to the largest scale of its columns.  float32: the sum, times
    `sa * sb` on the host.

    Parameters
    ----------
    kind, n
        The product and its number of columns.
    quant
        Parameters of "A", "B" and "C"; missing ones count as scale 1, zero point 0.
    matrix
        Returns B (K x N); called if A has a zero point.

    Returns
    -------
    (integers or None, factors or None): None if nothing is to be done.

    Raises
    ------
    ValueError
        For a factor or bias that does not fit the DPU.
    """
    a, b, c = (quant.get(name, _PLAIN) for name in "ABC")
    zeros = np.broadcast_to(b.zeros, (n,)).astype(np.int64)
    scales = np.broadcast_to(b.scales, (n,)).astype(np.float64)
    bias = np.zeros(n, np.int64)
    if a.zeros[0]:
        numbers = matrix().astype(np.int64)
        bias = -a.zeros[0] * (numbers.sum(axis=0) - numbers.shape[0] * zeros)
    uneven = b.scales.size > 1
    multipliers = channel_multipliers(scales) if uneven else np.full(n, 1 << BS_SHIFT, np.int64)
    shifted = bool(a.zeros[0]) or bool(zeros.any())
    if kind.out == 0:
        scale, shift = output_scale(float(a.scales[0] * scales.max() / c.scales[0]), "C")
        return Requant(bias, zeros, multipliers, scale, shift, int(c.zeros[0])), None
    if kind.out == 4:
        return (Requant(bias, zeros, multipliers) if uneven or shifted else None), None
    factor = a.scales[0] * scales
    plain = np.full(n, 1 << BS_SHIFT, np.int64)
    return (Requant(bias, zeros, plain) if shifted else None), (None if (factor == 1).all() else factor)


@dataclass
class ShapeRuns:
    """What was done for one shape on one core.

    Members
    -------
    runs : calls of rknn_matmul_run that succeeded.
    cycles, last_cycles : cycles of all of them, and of the last.
    measures : measurements of the tasks of the last run, if the device made any.
    conversions, converted_bytes : how often B was converted for it, and the bytes read and written for that.
    """

    runs: int = 0
    cycles: int = 0
    last_cycles: int = 0
    measures: tuple[TaskMeasure, ...] = ()
    conversions: int = 0
    converted_bytes: int = 0


@dataclass
class MatmulContext:
    """State behind a `rknn_matmul_ctx`."""

    info: mt.rknn_matmul_info
    kind: MatmulKind
    shapes: list[tuple[int, int, int]]
    shape: tuple[int, int, int]
    handle: int = 0
    core: int = 0
    memories: dict[str, Memory] = field(default_factory=dict)
    b: Any = None
    """Buffer with the library's copy of B, if that of the program cannot be used directly."""
    b_matrix: npt.NDArray[Any] | None = None
    """Numbers of B when it was last set, for the sums that zero points need and for other parts of K."""
    b_parts: list[tuple[int, int]] = field(default_factory=list)
    """Parts of K for which `b` is packed."""
    quant: dict[str, Quant] = field(default_factory=dict)
    scratch: dict[str, Any] = field(default_factory=dict)
    runs: dict[tuple[tuple[int, int, int], int], ShapeRuns] = field(default_factory=dict)
    """What was done, by shape and core."""
    io: dict[Any, Any] = field(default_factory=dict)
    error: BaseException | None = None
    running: Any = field(default_factory=threading.RLock)
    """Held during a product."""

    @property
    def b_layout(self) -> int:
        """Layout that the program uses for B."""
        return int(self.info.B_layout)

    @property
    def native(self) -> bool:
        """Whether A and C are in the native layout."""
        return bool(self.info.AC_layout == mt.RKNN_MM_LAYOUT_NATIVE)

    def uses(self, memory: Memory) -> bool:
        """Return whether a product reads or writes a memory of the create functions."""
        return any(one.allocation is memory.allocation for one in list(self.memories.values()))

    def finish(self) -> None:
        """Do nothing: no frame runs between calls."""

    @property
    def account(self) -> ShapeRuns:
        """What was done for the current shape on the current core."""
        return self.runs.setdefault((self.shape, self.core), ShapeRuns())

    def ran(self, cycles: int, measures: Sequence[TaskMeasure]) -> None:
        """Count a run of the current shape."""
        account = self.account
        account.runs += 1
        account.cycles += cycles
        account.last_cycles, account.measures = cycles, tuple(measures)

    def product(self) -> Matmul:
        """The product of the current shape."""
        return self.product_of(self.shape)

    def product_of(self, shape: tuple[int, int, int]) -> Matmul:
        """The product of a shape.

        Raises
        ------
        MatmulError
            If there is none.
        """
        m, k, n = shape
        whole = self._in_place(k) or bool(self.quant)
        return Matmul(self.kind, m, k, n, self.native, self.native, whole)

    @property
    def b_in_place(self) -> bool:
        """Whether B is read from the program's memory."""
        return self._in_place(self.shape[1])

    def _in_place(self, k: int) -> bool:
        return self.b_layout == mt.RKNN_MM_LAYOUT_NATIVE and k <= SEGMENT

    def close(self) -> None:
        """Free the library's buffers."""
        for buffer in self.scratch.values():
            buffer.free()
        self.scratch.clear()


def product_context(ctx: Any) -> MatmulContext:
    """The open context of a product.

    Raises
    ------
    Refusal
        RKNN_ERR_CTX_INVALID.
    """
    state = runtime.contexts.get(handle_value(ctx))
    if not isinstance(state, MatmulContext):
        raise Refusal(t.RKNN_ERR_CTX_INVALID, "invalid context")
    return state


def read_b(raw: Bytes, k: int, n: int, kind: MatmulKind, layout: int) -> npt.NDArray[Any]:
    """B (K x N) from any layout."""
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
    """B (K x N) in the native layout, one block for each segment of K."""
    parts = [pack_b(matrix[first : first + SEGMENT], kind) for first in range(0, matrix.shape[0], SEGMENT)]
    return np.concatenate(parts)
