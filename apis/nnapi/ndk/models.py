"""Models of NNAPI's C interface while a program builds them (`ANeuralNetworksModel`).

The rules are those of AOSP packages/modules/NeuralNetworks (mirror
timocapa/android_packages_modules_NeuralNetworks, commit 19f042d), runtime/ModelBuilder.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rkcosim.apis.nnapi.buffers import byte_size
from rkcosim.apis.nnapi.memory import MemoryPool
from rkcosim.apis.nnapi.model import (
    DataLocation,
    Model,
    Operand,
    OperandLifeTime,
    OperandType,
    Operation,
    Subgraph,
    SymmPerChannelQuantParams,
)
from rkcosim.apis.nnapi.ndk.memories import Memory
from rkcosim.apis.nnapi.ndk.result_codes import as_results, bad_data, bad_state
from rkcosim.apis.nnapi.operations import OperationType
from rkcosim.apis.nnapi.validation import (
    Ends,
    check_channel_scales,
    check_control,
    check_operand,
    check_operation,
    validate,
)

L = OperandLifeTime


class ModelBuilder:
    """A model that a program builds.

    Members
    -------
    finished : whether it is complete and valid.
    order : for each operation in the order of execution, its place in the order of `add_operation`.
    """

    def __init__(self) -> None:
        self.finished = False
        self.order: list[int] = []
        self._refused = False
        self._operands: list[Operand] = []
        self._operations: list[Operation] = []
        self._inputs: tuple[int, ...] = ()
        self._outputs: tuple[int, ...] = ()
        self._values = bytearray()
        self._memories: list[Memory] = []
        self._referenced: list[ModelBuilder] = []
        self._relaxed = False

    def add_operand(self, kind: int, dimensions: Sequence[int], scale: float, zero_point: int) -> None:
        """Add an operand; raises BAD_DATA for a type, dimensions or a quantisation that do not exist."""
        self._change()
        try:
            known = OperandType(kind)
        except ValueError:
            raise bad_data(f"there is no type of operands {kind}") from None
        operand = Operand(known, tuple(dimensions), scale, zero_point)
        with as_results():
            check_operand(len(self._operands), operand)
        self._operands.append(operand)

    def set_value(self, index: int, value: bytes | None) -> None:
        """Set the value of an operand, None to omit it."""
        operand = self._operand(index)
        if value is None:
            self._operands[index] = replace(operand, lifetime=L.NO_VALUE, location=DataLocation())
            return
        self._check_size(index, operand, len(value))
        self._values += bytes(-len(self._values) % 16)
        location = DataLocation(0, len(self._values), len(value))
        self._values += value
        self._operands[index] = replace(operand, lifetime=L.CONSTANT_COPY, location=location)

    def check_length(self, index: int, length: int) -> None:
        """Check the number of bytes of a value before they are read; raises as `set_value`."""
        self._check_size(index, self._operand(index), length)

    def set_value_from_memory(self, index: int, memory: Memory, offset: int, length: int) -> None:
        """Let the value of an operand lie in memory."""
        operand = self._operand(index)
        self._check_size(index, operand, length)
        memory.check_constant(offset, length)
        if memory not in self._memories:
            self._memories.append(memory)
        location = DataLocation(self._memories.index(memory), offset, length)
        self._operands[index] = replace(operand, lifetime=L.CONSTANT_POOL, location=location)

    def set_value_from_model(self, index: int, value: ModelBuilder) -> None:
        """Let the value of an operand be a finished model."""
        operand = self._operand(index)
        if not value.finished:
            raise bad_state("the model that is to be a value is not finished")
        location = DataLocation(0, len(self._referenced))
        self._referenced.append(value)
        self._operands[index] = replace(operand, lifetime=L.SUBGRAPH, location=location)

    def set_channel_scales(self, index: int, channel_dim: int, scales: Sequence[float]) -> None:
        """Set the scales per channel of an operand."""
        extra = SymmPerChannelQuantParams(tuple(scales), channel_dim)
        operand = replace(self._operand(index), extra_params=extra)
        with as_results():
            check_channel_scales(index, operand)
        self._operands[index] = operand

    def check_scales(self, index: int, channel_dim: int, count: int) -> None:
        """Check the number of scales per channel before they are read; raises BAD_DATA."""
        dimensions = self._operand(index).dimensions
        if not 0 <= channel_dim < len(dimensions) or dimensions[channel_dim] != count:
            raise bad_data(
                f"operand {index} of {list(dimensions)}: {count} scales for dimension {channel_dim}"
            )

    def set_extension_data(self, index: int) -> None:
        """Raise BAD_DATA: there are no extension types."""
        operand = self._operand(index)
        raise bad_data(f"operand {index} is {operand.type.name}, which is no type of an extension")

    def add_operation(self, kind: int, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Add an operation; raises BAD_DATA if it does not exist or may not have these operands."""
        self._change()
        if kind not in list(OperationType):
            raise bad_data(f"there is no operation {kind}")
        for index in (*inputs, *outputs):
            self._operand(index)
        operation = Operation(kind, tuple(inputs), tuple(outputs))
        number = len(self._operations)
        with as_results():
            check_operation(Subgraph(tuple(self._operands), (), (), ()), number, operation)
            check_control(self._operands, number, operation, self._ends)
        self._operations.append(operation)

    def identify(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Say which operands are inputs and outputs, in this order."""
        self._change()
        listed = (*inputs, *outputs)
        for index in listed:
            operand = self._operand(index)
            if operand.lifetime not in (L.TEMPORARY_VARIABLE, L.SUBGRAPH_INPUT, L.SUBGRAPH_OUTPUT):
                raise bad_data(f"operand {index} has a value, so it is neither an input nor an output")
        if len(set(listed)) != len(listed):
            raise bad_data(f"an operand is there twice: inputs {list(inputs)}, outputs {list(outputs)}")
        for index, operand in enumerate(self._operands):
            if operand.lifetime in (L.SUBGRAPH_INPUT, L.SUBGRAPH_OUTPUT):
                self._operands[index] = replace(operand, lifetime=L.TEMPORARY_VARIABLE)
        for lifetime, indices in ((L.SUBGRAPH_INPUT, inputs), (L.SUBGRAPH_OUTPUT, outputs)):
            for index in indices:
                self._operands[index] = replace(self._operands[index], lifetime=lifetime)
        self._inputs, self._outputs = tuple(inputs), tuple(outputs)

    def relax(self, allowed: bool) -> None:
        """Allow float32 to be computed as fp16."""
        self._change()
        self._relaxed = allowed

    def finish(self) -> None:
        """Complete the model; raises BAD_DATA if a rule is broken, and the model is lost then."""
        self._change()
        try:
            if not self._operations:
                raise bad_data("a model needs an operation")
            self._sort()
            model, pools = self.merged()
            ends = [0] * len(pools)
            for operand in (one for part in (model.main, *model.referenced) for one in part.operands):
                if operand.lifetime is L.CONSTANT_POOL:
                    place = operand.location
                    ends[place.pool_index] = max(ends[place.pool_index], place.offset + place.length)
            sizes = (min(pool.size, end) for pool, end in zip(pools, ends, strict=True))
            zeros = tuple(np.zeros(size, np.uint8).data for size in sizes)  # for the locations
            with as_results():
                validate(replace(model, pools=zeros))
        except Exception:
            self._refused = True
            raise
        self.finished = True

    def merged(self) -> tuple[Model, list[MemoryPool]]:
        """Return the model together with those that it refers to, and the memory of its constants."""
        merged = _Merged()
        main = merged.subgraph(self)
        return Model(main, tuple(merged.referenced), bytes(merged.values), (), self._relaxed), merged.pools

    @property
    def inputs(self) -> list[Operand]:
        """The operands of the inputs."""
        return [self._operands[index] for index in self._inputs]

    @property
    def outputs(self) -> list[Operand]:
        """The operands of the outputs."""
        return [self._operands[index] for index in self._outputs]

    def _change(self) -> None:
        if self.finished:
            raise bad_state("the model is finished")
        if self._refused:
            raise bad_state("the model broke a rule when it was finished")

    def _operand(self, index: int) -> Operand:
        self._change()
        if not 0 <= index < len(self._operands):
            raise bad_data(f"there is no operand {index}, only {len(self._operands)}")
        return self._operands[index]

    def _ends(self, operand: Operand) -> Ends:
        named = self._referenced[operand.location.offset]
        return named.inputs, named.outputs

    def _check_size(self, index: int, operand: Operand, length: int) -> None:
        if operand.type is OperandType.SUBGRAPH:
            raise bad_data(f"the value of operand {index} is a model")
        if operand.type is OperandType.OEM_SCALAR:
            return
        if not operand.type.scalar and (not operand.dimensions or 0 in operand.dimensions):
            raise bad_data(f"operand {index} has a value, so its dimensions must be known")
        size = byte_size(operand, operand.dimensions)
        if size != length:
            raise bad_data(f"operand {index} has {size} bytes, not {length}")

    def _sort(self) -> None:
        """Put the operations into an order of execution; raises BAD_DATA if there is none."""
        waiting = dict(enumerate(self._operations))
        made = {output for one in self._operations for output in one.outputs}
        self.order = []
        while waiting:
            ready = [number for number, one in waiting.items() if not made.intersection(one.inputs)]
            if not ready:
                raise bad_data(f"operation {min(waiting)} needs its own result, or that of a later one")
            for number in ready:
                made.difference_update(waiting.pop(number).outputs)
            self.order += ready
        self._operations = [self._operations[number] for number in self.order]


class _Merged:
    """Models that refer to others, as one: their values and pools together."""

    def __init__(self) -> None:
        self.referenced: list[Subgraph] = []
        self.values = bytearray()
        self.pools: list[MemoryPool] = []

    def subgraph(self, builder: ModelBuilder) -> Subgraph:
        """Add a model and those that it refers to; return its subgraph."""
        self.values += bytes(-len(self.values) % 16)
        values, pools = len(self.values), len(self.pools)
        self.values += builder._values
        self.pools += [memory.pool() for memory in builder._memories]
        numbers = []
        for one in builder._referenced:
            inner = self.subgraph(one)
            numbers.append(len(self.referenced))
            self.referenced.append(inner)
        operands = []
        for operand in builder._operands:
            place = operand.location
            if operand.lifetime is L.CONSTANT_COPY:
                place = replace(place, offset=place.offset + values)
            elif operand.lifetime is L.CONSTANT_POOL:
                place = replace(place, pool_index=place.pool_index + pools)
            elif operand.lifetime is L.SUBGRAPH:
                place = replace(place, offset=numbers[place.offset])
            operands.append(replace(operand, location=place))
        return Subgraph(tuple(operands), tuple(builder._operations), builder._inputs, builder._outputs)
