"""Element-wise operators on the NPU: arrays of any shape as maps of eight channels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.diopi.npu import EmittedNode, Network
from rkcosim.apis.diopi.operators.registry import OperatorCall
from rkcosim.apis.diopi.tensor import diopiTensor

Array = npt.NDArray[Any]

CHANNELS, WIDEST = 8, 1024
"""Channels of an atom of fp16, and the largest width of a map."""


def maps(array: Array) -> Array:
    """Return an array as a map (1, 8, H, W), with zeros behind its elements."""
    columns = max(-(-array.size // CHANNELS), 1)
    width = min(columns, WIDEST)
    height = -(-columns // width)
    made = np.zeros(CHANNELS * height * width, array.dtype)
    made[: array.size] = array.reshape(-1)
    return made.reshape(1, CHANNELS, height, width)


def compute_elements(
    call: OperatorCall,
    out: diopiTensor,
    arrays: Sequence[Array],
    host: Callable[..., Any],
    nodes: Sequence[EmittedNode] | str,
    constants: Mapping[str, Array] | None = None,
) -> None:
    """Compute an element-wise operator.

    Parameters
    ----------
    call, out, arrays, host : as for `Call.compute`.
    nodes : the operator on inputs a, b, c in the order of the arrays, or why the NPU has none.
    constants : of the nodes.
    """

    def network() -> Network | str:
        if isinstance(nodes, str):
            return nodes
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
        feeds = dict(zip("abc", (maps(np.broadcast_to(array, shape)) for array in arrays), strict=False))
        return Network(feeds, nodes, feeds["a"].shape, shape, constants or {})

    call.compute(out, arrays, host, network)


def one(kind: str, *inputs: str, **attributes: Any) -> tuple[EmittedNode, ...]:
    """Return an operator of one node; without names its input is a."""
    return (EmittedNode(kind, inputs or ("a",), "y", attributes),)
