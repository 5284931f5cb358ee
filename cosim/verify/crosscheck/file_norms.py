"""Mathematical value of the nodes exNorm, exSoftmax13, exMatMul and exDataConvert of a `.rknn` file.

The types are the vendor's; what they compute was found on public files (docs/rknn_files.md), whose nodes give
these values: exNorm is a layer normalisation or a division by the length, over the channels of each pixel;
exSoftmax13 the softmax over the channels; exMatMul the product of the first input, transposed, with a
constant. exDataConvert changes type and scale.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rkcosim.compiler.graph import from_cube, to_cube
from rkcosim.rknn_file.schema import Kind
from rkcosim.spec.types import BF16
from rkcosim.verify.crosscheck.file_attention import HALF, Registers, Tasks, probabilities, single
from rkcosim.verify.crosscheck.file_tables import NotJudged, Real

BRAIN = 2.0**-9
"""Largest relative error of rounding to bf16."""

ROOT = 2.5 * BRAIN + 4 * HALF
"""Largest relative error of the reciprocal root: half of that of its operand, for which squares, their sum,
the stored sum and two factors of 1 / sqrt(channels) are rounded to bf16; and the last step of Newton's
iteration in fp16."""

SUM = 3
"""Roundings to fp16 on the way to a mean: two factors of 1 / sqrt(channels), and the stored mean."""


def normalised(node: Any, tasks: Tasks) -> tuple[Real, Real]:
    """Return the values of an exNorm node and their largest errors, as cubes (see `file_meaning`)."""
    step = node.step
    x = _values(node, 0)
    if len(node.cubes) != 1 or x.shape != step.output.cube:
        raise NotJudged(f"a normalisation of {len(node.cubes)} tensors to {step.output.cube}")
    small = _epsilon(tasks)
    middle, count, factor, add = np.zeros((1, *x.shape[1:])), 1, np.ones((1, 1, 1)), np.zeros((1, 1, 1))
    if node.node.name.endswith("2ln"):
        middle, count = x.mean(0, keepdims=True), len(x)
        factor, add = _affine(node)
    elif not node.node.name.endswith("2lpnorm2"):
        raise NotJudged(f"'{node.node.name}' does not say which normalisation it is")
    spread = x - middle
    centre = SUM * HALF * np.abs(middle) + HALF * np.abs(spread) if count > 1 else np.zeros((1, 1, 1))
    root = 1 / np.sqrt(np.maximum(((spread**2).sum(0) + small) / count, np.finfo(np.float64).tiny))
    values = spread * root * factor
    errors = np.abs(values) * ROOT + np.abs(factor) * root * centre
    return _quantised(step, values + add, errors)


def converted(node: Any) -> tuple[Real, Real]:
    """Return the values of an exDataConvert node, which changes type and scale, and their largest errors."""
    step = node.step
    if len(node.cubes) != 1 or node.cubes[0].shape != step.output.cube:
        raise NotJudged(f"a conversion of {len(node.cubes)} tensors to {step.output.cube}")
    values = _values(node, 0)
    return _quantised(step, values, HALF * np.abs(values))


def softmax(node: Any) -> tuple[Real, Real]:
    """Return the values of an exSoftmax13 node, which works on the channels, and their largest errors."""
    step = node.step
    if len(node.cubes) != 1 or node.cubes[0].shape != step.output.cube or not step.output.real:
        raise NotJudged(f"a softmax of {len(node.cubes)} tensors to {step.output.cube}")
    logits = np.moveaxis(_values(node, 0), 0, -1)
    low, high = (np.moveaxis(side, -1, 0) for side in probabilities(logits, logits))
    return (low + high) / 2, (high - low) / 2


def product(node: Any) -> tuple[Real, Real]:
    """Return the values of an exMatMul node with a constant, and their largest errors.

    The input is (1, depth, 1, rows), the constant (1, depth, 1, 1): all its codes are equal in public files,
    so that the order of a constant with several columns is not known.
    """
    step, file = node.step, node.file
    tensors = [file.tensors[index] for index in node.node.inputs]
    constants = [tensor for tensor in tensors if tensor.kind == Kind.CONSTANT]
    if len(node.cubes) != 1 or len(constants) != 1 or step.output.real:
        raise NotJudged(f"a product of {len(node.cubes)} tensors and {len(constants)} constants")
    x, y = from_cube(node.cubes[0], step.inputs[0]).astype(np.float64), step.output
    constant = constants[0]
    depth = x.shape[1] if x.ndim == 4 else 0
    if x.ndim != 4 or x.shape[0] != 1 or x.shape[2] != 1 or constant.shape != (1, depth, 1, 1):
        raise NotJudged(f"a product of {x.shape} and {constant.shape}")
    if constant.dtype != np.int8 or len(constant.data) < depth:
        raise NotJudged(
            f"its constant has {len(constant.data)} bytes of {constant.dtype} for {depth} numbers"
        )
    codes = np.frombuffer(bytes(constant.data[:depth]), np.int8).astype(np.float64)
    w = ((codes - constant.zero_point) * constant.scale)[None, :, None, None]
    x = (x - step.inputs[0].zero_point) * step.inputs[0].scale
    values = np.einsum("hdar,hdac->hrc", x, w)
    if values.size != y.elements:
        raise NotJudged(f"a product of {x.shape} and {constant.shape} to {y.shape}")
    found = to_cube(values.reshape(y.shape), y) / y.scale + y.zero_point
    return found, np.zeros(found.shape)


def _values(node: Any, index: int) -> Real:
    tensor = node.step.inputs[index]
    cube: Real = node.cubes[index].astype(np.float64)
    return cube if tensor.real else (cube - tensor.zero_point) * tensor.scale


def _quantised(step: Any, values: Real, errors: Real) -> tuple[Real, Real]:
    y = step.output
    if y.real:
        return values, errors
    return values / y.scale + y.zero_point, 0.5 + errors / y.scale


def _epsilon(tasks: Tasks) -> float:
    """Return what the sum of the squares gets in addition: the operand of the BS stage of the bf16 sum."""
    for blocks, registers in tasks:
        if "CNA" in blocks and _brain(registers) and not registers.get("DPU", "BS_CFG", "BS_ALU_BYPASS"):
            found = single(registers, "BS_ALU_CFG", "BS_ALU_OPERAND")
            if not 0 <= found < 1:
                raise NotJudged(f"its tasks add {found} to the sum of the squares")
            return found
    raise NotJudged("its tasks are not those of a known normalisation")


def _brain(registers: Registers) -> bool:
    return registers.get("DPU", "DATA_FORMAT", "PROC_PRECISION") == BF16.dpu_code


def _affine(node: Any) -> tuple[Real, Real]:
    """Return weight and bias of a layer normalisation, (C, 1, 1): its two constants in the file."""
    count = node.step.output.cube[0]
    tensors = [node.file.tensors[index] for index in node.node.inputs]
    held = [tensor for tensor in tensors if tensor.kind == Kind.HOST_CONSTANT]
    if len(held) != 2:
        raise NotJudged(f"a layer normalisation with {len(held)} constants")
    found = []
    for tensor in held:
        if tensor.dtype not in (np.float16, np.float32):
            raise NotJudged(f"a layer normalisation with a constant of {tensor.dtype}")
        values = np.frombuffer(bytes(tensor.data[: count * np.dtype(tensor.dtype).itemsize]), tensor.dtype)
        if values.size != count:
            raise NotJudged(f"a layer normalisation of {count} channels with {values.size} constants")
        found.append(values.astype(np.float64)[:, None, None])
    return found[0], found[1]
