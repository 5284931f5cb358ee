"""A model as NNAPI's hardware abstraction layer (HAL) describes it: operands, operations, subgraphs, pools.

Names and members are those of the AIDL types `android.hardware.neuralnetworks.*`, in Python's spelling.  The
numbers are those of `NeuralNetworks.h`, which the AIDL enumerations share except where a docstring says so
(AOSP packages/modules/NeuralNetworks, runtime/include/NeuralNetworksTypes.h).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto
from typing import TypeAlias

import numpy as np


class OperandType(IntEnum):
    """Type of an operand."""

    FLOAT32 = 0
    INT32 = 1
    UINT32 = 2
    TENSOR_FLOAT32 = 3
    TENSOR_INT32 = 4
    TENSOR_QUANT8_ASYMM = 5
    BOOL = 6
    TENSOR_QUANT16_SYMM = 7
    TENSOR_FLOAT16 = 8
    TENSOR_BOOL8 = 9
    FLOAT16 = 10
    TENSOR_QUANT8_SYMM_PER_CHANNEL = 11
    TENSOR_QUANT16_ASYMM = 12
    TENSOR_QUANT8_SYMM = 13
    TENSOR_QUANT8_ASYMM_SIGNED = 14
    SUBGRAPH = 15
    OEM_SCALAR = 10000
    TENSOR_OEM_BYTE = 10001

    @property
    def scalar(self) -> bool:
        """True for types without dimensions."""
        return self in _SCALARS

    @property
    def dtype(self) -> np.dtype:
        """The numpy type of one element.

        Raises
        ------
        KeyError
            For `SUBGRAPH` and `OEM_SCALAR`, which have no elements.
        """
        return np.dtype(_DTYPES[self])


_SCALARS = {
    OperandType.FLOAT32,
    OperandType.INT32,
    OperandType.UINT32,
    OperandType.BOOL,
    OperandType.FLOAT16,
    OperandType.SUBGRAPH,
    OperandType.OEM_SCALAR,
}
_DTYPES = {
    OperandType.FLOAT32: np.float32,
    OperandType.INT32: np.int32,
    OperandType.UINT32: np.uint32,
    OperandType.TENSOR_FLOAT32: np.float32,
    OperandType.TENSOR_INT32: np.int32,
    OperandType.TENSOR_QUANT8_ASYMM: np.uint8,
    OperandType.BOOL: np.bool_,
    OperandType.TENSOR_QUANT16_SYMM: np.int16,
    OperandType.TENSOR_FLOAT16: np.float16,
    OperandType.TENSOR_BOOL8: np.bool_,
    OperandType.FLOAT16: np.float16,
    OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL: np.int8,
    OperandType.TENSOR_QUANT16_ASYMM: np.uint16,
    OperandType.TENSOR_QUANT8_SYMM: np.int8,
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED: np.int8,
    OperandType.TENSOR_OEM_BYTE: np.uint8,
}

OEM = (OperandType.OEM_SCALAR, OperandType.TENSOR_OEM_BYTE)
"""Types whose values only their maker's driver understands: a scalar of any size, and bytes (deprecated)."""


class OperandLifeTime(Enum):
    """Where the value of an operand comes from."""

    TEMPORARY_VARIABLE = auto()
    SUBGRAPH_INPUT = auto()
    SUBGRAPH_OUTPUT = auto()
    CONSTANT_COPY = auto()
    CONSTANT_POOL = auto()
    NO_VALUE = auto()
    SUBGRAPH = auto()


@dataclass(frozen=True)
class DataLocation:
    """Bytes of a value: `offset`, `length` and `padding` in bytes.

    `pool_index` is that of `Model.pools` for CONSTANT_POOL; it has no meaning for CONSTANT_COPY, whose offset
    counts in `Model.operand_values`.  For SUBGRAPH operands `offset` is the index of the referenced subgraph.
    """

    pool_index: int = 0
    offset: int = 0
    length: int = 0
    padding: int = 0


@dataclass(frozen=True)
class SymmPerChannelQuantParams:
    """Scales of a TENSOR_QUANT8_SYMM_PER_CHANNEL operand, one for each index of `channel_dim`."""

    scales: tuple[float, ...]
    channel_dim: int


@dataclass(frozen=True)
class Operand:
    """One operand: a scalar, or a tensor whose unknown dimensions are 0 (no dimensions: unknown rank)."""

    type: OperandType
    dimensions: tuple[int, ...] = ()
    scale: float = 0.0
    zero_point: int = 0
    lifetime: OperandLifeTime = OperandLifeTime.TEMPORARY_VARIABLE
    location: DataLocation = DataLocation()
    extra_params: SymmPerChannelQuantParams | None = None


@dataclass(frozen=True)
class Operation:
    """One operation: its code (`rkcosim.apis.nnapi.operations.OperationType`) and operand indices."""

    type: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Subgraph:
    """Operations in the order of execution, with the operands that they name by index."""

    operands: tuple[Operand, ...]
    operations: tuple[Operation, ...]
    input_indexes: tuple[int, ...]
    output_indexes: tuple[int, ...]


Pool: TypeAlias = "memoryview | bytes"
"""The bytes of a memory pool, as the process that executes sees them."""


@dataclass(frozen=True)
class Model:
    """A whole model: the main subgraph, those that IF and WHILE refer to, and the constants."""

    main: Subgraph
    referenced: tuple[Subgraph, ...] = ()
    operand_values: bytes = b""
    pools: tuple[Pool, ...] = field(default=())
    relax_computation_float32_to_float16: bool = False

    def value(self, operand: Operand) -> np.ndarray | None:
        """Return the constant of an operand in its dimensions and dtype, None if it is not a constant.

        Raises
        ------
        ValueError
            The location lies outside the pool, or its length does not fit the dimensions.
        """
        if operand.lifetime is OperandLifeTime.CONSTANT_COPY:
            data: Pool = self.operand_values
        elif operand.lifetime is OperandLifeTime.CONSTANT_POOL:
            data = self.pools[operand.location.pool_index]
        else:
            return None
        place, dtype = operand.location, operand.type.dtype
        count = int(np.prod(operand.dimensions, dtype=np.int64)) if operand.dimensions else 1
        if place.length != count * dtype.itemsize:
            raise ValueError(
                f"an operand of type {operand.type.name} and dimensions {operand.dimensions} has "
                f"{count * dtype.itemsize} bytes, but its location has {place.length}"
            )
        if place.offset + place.length > len(data):
            raise ValueError(
                f"bytes {place.offset} to {place.offset + place.length} lie outside a pool of {len(data)}"
            )
        values = np.frombuffer(data, dtype, count, place.offset)
        return values.reshape(operand.dimensions)
