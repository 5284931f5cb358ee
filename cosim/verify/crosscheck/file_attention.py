"""Mathematical value of the attention nodes of a `.rknn` file: softmax(scale * Q^T K) V for each head.

Their tasks pass data through scratch memory. In fp16 only the rounding of each step separates the result from
the exact value. In int8 the file also quantises Q once more, the products and the probabilities, with factors
of its registers: what these steps make of the exact values is computed here as intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from rkcosim.compiler.graph import from_cube, to_cube
from rkcosim.spec.types import FP16, INT8
from rkcosim.verify.crosscheck.file_tables import NotJudged, Real

HALF = 2.0**-11
"""Largest relative error of rounding to fp16."""

TABLE = 2.0**-14
"""Largest error of the table of the exponential function, relative to its 1.0."""


class Registers(Protocol):
    """Register fields of a task (see `_Node` of `file_meaning`)."""

    def get(self, block: str, register: str, name: str | None = None) -> int: ...
    def signed(self, block: str, register: str, name: str | None = None, bits: int = 32) -> int: ...


Tasks = Sequence[tuple[tuple[str, ...], Registers]]
"""Blocks and registers of a step's tasks, in order."""


def attention(node: Any, tasks: Tasks) -> tuple[Real, Real]:
    """Return the values of the output and their largest errors, as cubes.

    Parameters
    ----------
    node
        Evaluation of the step, with its inputs Q, K and V, each (heads, size, 1, rows).
    tasks
        Blocks and registers of the step's tasks, in order.
    """
    step = node.step
    if len(node.cubes) != 3:
        raise NotJudged(f"an attention with {len(node.cubes)} inputs")
    q, k, v = (_heads(from_cube(cube, tensor)) for cube, tensor in zip(node.cubes, step.inputs, strict=True))
    if q.shape[:2] != k.shape[:2] or k.shape[::2] != v.shape[::2]:
        raise NotJudged(f"an attention of {q.shape}, {k.shape} and {v.shape}")
    if step.output.real:
        low, high = _of_halves(q, k, tasks)
    else:
        low, high = _of_bytes(q, k, tasks)
        x, y = step.inputs[2], step.output
        v = (v - x.zero_point) * (x.scale / y.scale)
    middle, half = (low + high) / 2, (high - low) / 2
    values = np.einsum("bij,bdj->bdi", middle, v) + (0.0 if step.output.real else step.output.zero_point)
    errors = np.einsum("bij,bdj->bdi", half, np.abs(v)) + (0.0 if step.output.real else 1.0)
    shape = step.output.shape
    if values.size != step.output.elements:
        raise NotJudged(f"an attention of {q.shape}, {k.shape} and {v.shape} to {shape}")
    return to_cube(values.reshape(shape), step.output), to_cube(errors.reshape(shape), step.output)


def _heads(array: Any) -> Real:
    if array.ndim != 4 or array.shape[2] != 1:
        raise NotJudged(f"an attention of {array.shape}")
    return array[:, :, 0].astype(np.float64)


def _first(tasks: Tasks, what: str, fits: Callable[[Registers], bool]) -> Registers:
    """Return the registers of the first task with a convolution (`what` is "CNA"), or without, that fits."""
    for blocks, registers in tasks:
        if ("CNA" in blocks) == (what == "CNA") and fits(registers):
            return registers
    raise NotJudged("its tasks are not those of a known attention")


def _half(registers: Registers, register: str, name: str) -> float:
    return float(np.uint16(registers.get("DPU", register, name) & 0xFFFF).view(np.float16))


def single(registers: Registers, register: str, name: str) -> float:
    return float(np.uint32(registers.get("DPU", register, name) & 0xFFFF_FFFF).view(np.float32))


def probabilities(low: Real, high: Real) -> tuple[Real, Real]:
    """Return the least and the largest softmax of logits within bounds, with the errors of fp16 steps."""
    largest = max(float(np.abs(low).max()), float(np.abs(high).max()))
    wrong = np.expm1(4 * HALF * (largest + 1)) + 4 * HALF
    top = high.max(-1, keepdims=True)
    least, most = np.exp(low - top), np.exp(high - top)
    below = least / (least + (most.sum(-1, keepdims=True) - most))
    above = most / (most + (least.sum(-1, keepdims=True) - least))
    return np.maximum(below * (1 - wrong) - TABLE, 0.0), above * (1 + wrong) + TABLE


def _of_halves(q: Real, k: Real, tasks: Tasks) -> tuple[Real, Real]:
    product = _first(tasks, "CNA", lambda registers: True)
    if product.get("DPU", "BN_CFG", "BN_BYPASS") or product.get("DPU", "BN_CFG", "BN_MUL_BYPASS"):
        raise NotJudged("its product is not scaled")
    scale = _half(product, "BN_MUL_CFG", "BN_MUL_OPERAND")
    logits = np.einsum("bdi,bdj->bij", q, k) * scale
    return probabilities(logits, logits)


def _of_bytes(q: Real, k: Real, tasks: Tasks) -> tuple[Real, Real]:
    def mode(registers: Registers) -> tuple[int, int]:
        return registers.get("DPU", "DATA_FORMAT", "IN_PRECISION"), registers.get(
            "DPU", "DATA_FORMAT", "OUT_PRECISION"
        )

    def live(registers: Registers, stage: str) -> bool:
        return not registers.get("DPU", f"{stage}_CFG", f"{stage}_BYPASS")

    half, byte = FP16.dpu_code, INT8.dpu_code
    product = _first(tasks, "CNA", lambda r: mode(r) == (byte, byte))
    widened = _first(tasks, "DPU", lambda r: mode(r) == (half, half) and live(r, "BS"))
    narrowed = _first(tasks, "DPU", lambda r: mode(r) == (half, byte) and live(r, "BS"))
    kept = product.get("CNA", "CVT_CON0", "CVT_BYPASS")
    if not kept and not product.get("CNA", "CVT_CON0", "CVT_TYPE"):
        raise NotJudged("the converter of the first input of its product multiplies first")

    # Q through the converter, the exact sums, and the codes of the products.
    scale = product.signed("CNA", "CVT_CON1", "CVT_SCALE0", 16)
    offset = product.signed("CNA", "CVT_CON1", "CVT_OFFSET0", 16)
    factor = scale / 2.0 ** product.get("CNA", "CVT_CON0", "CVT_TRUNCATE_0")
    q = q if kept else np.clip(np.round((q + offset) * factor), -128, 127)
    sums = np.einsum("bdi,bdj->bij", q, k + product.signed("DPU", "BS_OW_OP", "OW_OP", 16))
    shift = product.get("DPU", "BN_MUL_CFG", "BN_MUL_SHIFT_VALUE")
    by = product.signed("DPU", "BN_MUL_CFG", "BN_MUL_OPERAND", 16) / 2.0**shift
    shift = product.get("DPU", "OUT_CVT_SHIFT", "OUT_CVT_SHIFT")
    out = product.signed("DPU", "OUT_CVT_SCALE", "OUT_CVT_SCALE", 16) / 2.0**shift
    codes = sums * by * out + product.signed("DPU", "OUT_CVT_OFFSET", "OUT_CVT_OFFSET")
    wide = 0.5 + 0.5 * abs(out) + 1e-9
    bounds = [np.clip(found, -128, 127) for found in (np.ceil(codes - wide), np.floor(codes + wide))]

    # Their numbers, the probabilities, and the codes of these.
    add, times = (
        single(widened, "BS_ALU_CFG", "BS_ALU_OPERAND"),
        _half(widened, "BS_MUL_CFG", "BS_MUL_OPERAND"),
    )
    low, high = probabilities(*((bound + add) * times for bound in bounds))
    times = _half(narrowed, "BS_MUL_CFG", "BS_MUL_OPERAND")
    add = single(narrowed, "BN_ALU_CFG", "BN_ALU_OPERAND")
    codes_low, codes_high = (np.clip(np.round(p * times + add), -128, 127) for p in (low, high))
    return (codes_low - add) / times, (codes_high - add) / times
