"""Nodes of a `.rknn` file that the NPU runs, and their weights as arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.steps import Step
from rkcosim.rknn_file.compressed import decompress
from rkcosim.rknn_file.container import FileTensor, RknnFile
from rkcosim.rknn_file.schema import Kind, Layout
from rkcosim.rknn_file.tables import RknnFileError
from rkcosim.spec.layouts import (
    depthwise_bytes,
    unpack_weights,
    unpack_weights_depthwise,
    weights_bytes,
)

TRANSPOSED = "ConvTranspose"
"""Beginning of the types of transposed convolutions."""


@dataclass(frozen=True)
class FileStep(Step):
    """A node that the NPU runs, or for a node with several outputs the part that computes one of them.

    Members
    -------
    nodes : indices of the nodes that it computes: preceding nodes without tasks, then the node itself.
    operands : tensors of the file that the node reads in addition to `inputs`: weights, operand blocks,
        tables.
    port : which of the node's outputs it computes.
    records : indices of its task records, for each core of the plan.
    """

    nodes: tuple[int, ...] = ()
    operands: tuple[int, ...] = ()
    port: int = 0
    records: tuple[tuple[int, ...], ...] = ()


def weights_of(file: RknnFile, step: FileStep) -> list[FileTensor]:
    """Return the tensors with a convolution's weights in the order of the kernels; empty without weights."""
    tensors = [file.tensors[number] for number in step.operands]
    return [
        tensor
        for tensor in tensors
        if tensor.kind == Kind.CONSTANT and len(tensor.shape) == 4
        if tensor.layout == Layout.WEIGHTS or tensor.segments
    ]


def group_of(file: RknnFile, step: FileStep) -> int:
    """Return the number of groups of a convolution, 1 if the file gives none."""
    return int(file.nodes[step.nodes[-1]].attributes.get("group", 0)) or 1


def real_macs(file: RknnFile, step: FileStep) -> int:
    """Return the number of multiply-accumulates without padded operands; 0 for a node without weights."""
    _, height, width = step.output.cube
    return sum(math.prod(tensor.shape) for tensor in weights_of(file, step)) * height * width


def step_weights(file: RknnFile, step: FileStep) -> npt.NDArray[Any]:
    """Return all weights of a convolution, see `weights`.

    Raises
    ------
    RknnFileError
        if they cannot be read.
    """
    transposed = file.nodes[step.nodes[-1]].type.startswith(TRANSPOSED)
    groups = group_of(file, step)
    return np.concatenate([weights(tensor, groups, transposed) for tensor in weights_of(file, step)])


def weights(tensor: FileTensor, groups: int, transposed: bool = False) -> npt.NDArray[Any]:
    """Return weights as an array (kernels, channels, height, width); depthwise weights have one channel.

    Parameters
    ----------
    tensor
        The tensor.
    groups
        Number of groups of the convolution.
    transposed
        Whether it is a transposed convolution, whose shape has the model's order (channels, kernels, height,
        width); memory has the order of a convolution, with the kernels turned by 180 degrees [HW 5.6].

    Raises
    ------
    RknnFileError
        if the tensor's element type is not supported or it has fewer bytes than its shape needs.
    """
    if tensor.segments:
        return decompress(tensor)
    kernels, channels, height, width = tensor.shape
    if transposed and groups == 1:
        kernels, channels = channels, kernels
    shape = kernels, channels, height, width
    depthwise = groups > 1 and 1 in shape[:2]
    if tensor.dtype is None or tensor.dtype.itemsize not in (1, 2):
        raise RknnFileError(f"weights '{tensor.name}' have elements of {tensor.dtype}")
    item = tensor.dtype.itemsize
    memory = np.frombuffer(tensor.data, np.uint8)
    if depthwise:
        small = (max(shape[:2]), shape[2], shape[3])
        needed = depthwise_bytes(small, item)
        if memory.size < needed:
            raise RknnFileError(f"weights '{tensor.name}' of {shape} need {needed} bytes, not {memory.size}")
        return unpack_weights_depthwise(memory[:needed], small, tensor.dtype)[:, None]
    needed = weights_bytes(shape, item)
    if memory.size < needed:
        raise RknnFileError(f"weights '{tensor.name}' of {shape} need {needed} bytes, not {memory.size}")
    return unpack_weights(memory[:needed], shape, tensor.dtype)
