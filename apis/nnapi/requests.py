"""Requests of executions: their rules, and the memory that they name.

The rules are those of AOSP's packages/modules/NeuralNetworks (mirror
timocapa/android_packages_modules_NeuralNetworks, commit 19f042d), common/types/src/Validation.cpp and
common/BufferTracker.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rkcosim.apis.nnapi.buffers import BufferTracker, IBuffer, byte_size, combined
from rkcosim.apis.nnapi.hal_types import Request, RequestArgument, Role
from rkcosim.apis.nnapi.memory import MemoryPool
from rkcosim.apis.nnapi.model import Operand
from rkcosim.apis.nnapi.status import failure, invalid


@dataclass(frozen=True)
class Place:
    """An input or output with its memory: a buffer, bytes of a pool, or none."""

    name: str
    operand: Operand
    dimensions: tuple[int, ...]
    pool: MemoryPool | None = None
    offset: int = 0
    length: int = 0
    buffer: IBuffer | None = None


def exclusive(given: Sequence[Place], made: Sequence[Place]) -> None:
    """Refuse a buffer that is an output and anything else."""
    used = {one.buffer.token for one in given if one.buffer is not None}
    for one in made:
        if one.buffer is not None:
            if one.buffer.token in used:
                raise invalid(f"the buffer {one.buffer.token} of {one.name} is used twice in the request")
            used.add(one.buffer.token)


def places(
    model: object, operands: Sequence[Operand], request: Request, buffers: BufferTracker, *, output: bool
) -> list[Place]:
    """Check the inputs or the outputs of a request, and find their memory.

    Parameters
    ----------
    model : the prepared model, as roles name it.
    operands : its inputs or outputs.
    request : the request.
    buffers : the buffers of the model's device.
    output : whether outputs are meant.

    Raises
    ------
    HalError
        INVALID_ARGUMENT for the first rule that is broken; GENERAL_FAILURE for memory that cannot be mapped.
    """
    given, what = (request.outputs, "output") if output else (request.inputs, "input")
    if len(given) != len(operands):
        raise invalid(f"the model has {len(operands)} {what}s, the request {len(given)}")
    return [
        _place(argument, operand, Role(model, output, number), request, buffers)
        for number, (argument, operand) in enumerate(zip(given, operands, strict=True))
    ]


def _place(
    argument: RequestArgument, operand: Operand, role: Role, request: Request, buffers: BufferTracker
) -> Place:
    output, name = role.output, f"{'output' if role.output else 'input'} {role.index}"
    if argument.has_no_value:
        if output:
            raise invalid(f"{name} has no memory")
        return Place(name, operand, ())
    if operand.type.scalar and argument.dimensions:
        raise invalid(f"{name} is a scalar and has no dimensions")
    dimensions = combined(operand.dimensions, argument.dimensions)
    if dimensions is None or any(size < 0 for size in argument.dimensions):
        raise invalid(
            f"{name} has the dimensions {list(operand.dimensions)}, not {list(argument.dimensions)}"
        )
    location = argument.location
    if not 0 <= location.pool_index < len(request.pools):
        raise invalid(f"{name} lies in pool {location.pool_index} of {len(request.pools)}")
    pool = request.pools[location.pool_index]
    if isinstance(pool, int):
        buffer = buffers.get(pool)
        if role not in buffer.roles:
            raise invalid(f"the buffer {pool} was not allocated for {name} of this model")
        if location.offset or location.length or location.padding:
            raise invalid(f"{name} is a whole buffer, so offset and length must be 0")
        other = combined(dimensions, buffer.initial_dimensions if output else buffer.dimensions)
        if other is None:
            raise invalid(
                f"{name} has the dimensions {list(dimensions)}, the buffer {pool} {list(buffer.dimensions)}"
            )
        return Place(name, operand, other, buffer=buffer)
    if not pool.mappable:
        raise failure(f"{name}: memory of the kind '{pool.name}' is not supported")
    if location.offset < 0 or location.length < 0 or location.padding < 0:
        raise invalid(f"{name} has a negative offset, length or padding")
    if location.offset + location.length + location.padding > pool.size:
        raise invalid(
            f"{name} lies in bytes {location.offset} to {location.offset + location.length} of a memory "
            f"of {pool.size}"
        )
    if not output:
        if not operand.type.scalar and (not dimensions or 0 in dimensions):
            raise invalid(f"the dimensions {list(dimensions)} of {name} are not known")
        size = byte_size(operand, dimensions)
        if location.length != size:
            raise invalid(f"{name} of dimensions {list(dimensions)} has {size} bytes, not {location.length}")
    return Place(name, operand, dimensions, pool, location.offset, location.length)
