"""Parts of a model that another runtime computes: arrays from tensors, and tensors from its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.graph import Graph, ModelError, Port, Tensor, from_cube, to_cube
from rkcosim.compiler.host_runtimes import load_program
from rkcosim.compiler.steps import CallStep
from rkcosim.hostops.quantise import dequantize, quantize

Array = npt.NDArray[Any]


def call(step: CallStep, arrays: Sequence[Array]) -> list[Array]:
    """Compute a step in its runtime.

    Parameters
    ----------
    step
        The step.
    arrays
        Its inputs as they are kept: cubes, or the host's arrays.

    Returns
    -------
    Its outputs as they are kept.

    Raises
    ------
    ModelError
        If the runtime is missing or fails, or a result does not have the shape of its tensor; the message
        names the step.
    """
    program = step.program
    takes, gives = ([port.name for port in ports] for ports in (program.takes, program.gives))
    given = [taken(*item) for item in zip(arrays, step.inputs, program.takes, strict=True)]
    try:
        if program.runtime == COPY:
            results = given
        else:
            results = load_program(program.runtime, program.data.tobytes(), takes, gives)(given)
        return [given_to(*item) for item in zip(results, step.outputs, program.gives, strict=True)]
    except ModelError as error:
        raise ModelError(f"{step.kind} '{step.name}': {error}", layer=step.name) from error


COPY = "copy"
"""Runtime of programs that only convert: output i is input i."""


def taken(kept: Array, tensor: Tensor, port: Port) -> Array:
    """Return the runtime's array of a tensor that is kept as a cube, or as an array of the host."""
    values = from_cube(kept, tensor)
    wanted = np.dtype(port.dtype)
    if not tensor.host and not tensor.real:
        zero = tensor.zero_point
        if tensor.unsigned:
            values, zero = values.view(np.uint8) ^ np.uint8(0x80), zero + 128
        if wanted.kind == "f":
            values = dequantize(values, tensor.scale, zero)
    values = values.astype(wanted, copy=False)
    if port.order:
        values = values.transpose(port.order)
    return np.asarray(values if port.shape is None else values.reshape(port.shape), order="C")


def given_to(result: Array, tensor: Tensor, port: Port) -> Array:
    """Return a runtime's result as its tensor is kept.

    Raises
    ------
    ModelError
        If the result does not have the shape of the tensor.
    """
    if tensor.open:
        return np.asarray(result.astype(tensor.dtype, copy=False), order="C")
    wanted = tensor.shape if not port.order else tuple(tensor.shape[axis] for axis in port.order)
    if result.size != tensor.elements or (port.shape is None and result.shape != wanted):
        raise ModelError(f"the result '{port.name}' is {result.shape}, not {port.shape or wanted}")
    values = result.reshape(wanted)
    if port.order:
        values = values.transpose(np.argsort(port.order))
    if tensor.host:
        return np.asarray(values.astype(tensor.dtype, copy=False), order="C")
    if tensor.real:
        with np.errstate(over="ignore"):
            return to_cube(np.ascontiguousarray(values).astype(np.float16), tensor)
    kind, zero = (np.uint8, tensor.zero_point + 128) if tensor.unsigned else (np.int8, tensor.zero_point)
    if values.dtype.kind == "f":
        values = quantize(values, tensor.scale, zero, kind)
    codes = np.ascontiguousarray(values.astype(kind, copy=False))
    return to_cube((codes ^ np.uint8(0x80)).view(np.int8) if tensor.unsigned else codes, tensor)


def initial_states(graph: Graph) -> dict[str, Array]:
    """Return the initial values of a graph's states, as they are kept, by the name of the tensor."""
    found = {}
    for state in graph.states:
        port = Port(state.tensor, state.dtype)
        found[state.tensor] = given_to(state.initial, graph.tensors[state.tensor], port)
    return found


def following_states(graph: Graph, read: Callable[[str], Array]) -> dict[str, Array]:
    """Return the values of a graph's states for the next inference, as they are kept.

    Parameters
    ----------
    graph
        The network.
    read
        Function that returns a tensor by name, as it is kept, after an inference.
    """
    found = {}
    for state in graph.states:
        port = Port(state.tensor, state.dtype)
        array = taken(np.array(read(state.following)), graph.tensors[state.following], port)
        found[state.tensor] = given_to(array, graph.tensors[state.tensor], port)
    return found
