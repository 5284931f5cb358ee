"""`.rknn` files for tests: those of our writer in the older form of the container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import flatbuffers
import numpy as np

from rkcosim.regcmd.word import words_from_bytes
from rkcosim.rknn_file import read_rknn, schema
from rkcosim.rknn_file.container import FileTensor, RknnFile
from rkcosim.rknn_file.schema import GraphSlot, Kind, NodeSlot, Root, TaskSlotV2, TensorSlot
from rkcosim.spec.layouts.compressed import compress_weights
from rkcosim.spec.regs import registers
from rkcosim.spec.weight_code import HEADER_BYTES, REGNUM, SEGMENT_ALIGN

COMPRESSED = ("DCOMP_CTRL", "DCOMP_REGNUM", *(f"DCOMP_AMOUNT{n}" for n in range(16)))


class _Builder:
    """A flatbuffer with sections."""

    def __init__(self) -> None:
        self.builder = flatbuffers.Builder(1 << 12)
        self.sections: list[bytes] = [b"", b""]

    def numbers(self, values: Sequence[int], kind: type = np.int32) -> int:
        return self.builder.CreateNumpyVector(np.array(values, kind))

    def structures(self, array: np.ndarray) -> int:
        self.builder.StartVector(array.dtype.itemsize, len(array), 8)
        for byte in reversed(array.tobytes()):
            self.builder.PrependByte(byte)
        return self.builder.EndVector()

    def tables(self, offsets: Sequence[int]) -> int:
        self.builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.builder.PrependUOffsetTRelative(offset)
        return self.builder.EndVector()

    def table(self, offsets: Mapping[int, int], numbers: Mapping[int, tuple[int, int]] | None = None) -> int:
        """A table of offsets, and of (value, bytes)."""
        numbers = numbers or {}
        self.builder.StartObject(max([*offsets, *numbers], default=-1) + 1)
        for slot, (value, size) in numbers.items():
            {1: self.builder.PrependUint8Slot, 4: self.builder.PrependUint32Slot}[size](slot, value, 0)
        for slot, offset in offsets.items():
            self.builder.PrependUOffsetTRelativeSlot(slot, offset, 0)
        return self.builder.EndObject()

    def section(self, data: bytes) -> int:
        self.sections.append(data)
        return len(self.sections) - 1


LOAD: dict[tuple[str, str], dict[str, int]] = {
    ("DPU", "S_POINTER"): {"POINTER_PP_EN": 1, "EXECUTER_PP_EN": 1, "POINTER_PP_MODE": 1},
    ("DPU_RDMA", "S_POINTER"): {"POINTER_PP_EN": 1, "EXECUTER_PP_EN": 1, "POINTER_PP_MODE": 1},
    ("DPU", "FEATURE_MODE_CFG"): {"BURST_LEN": 15, "OUTPUT_MODE": 2, "FLYING_MODE": 1},
    ("DPU", "DATA_FORMAT"): {},
    ("DPU", "DST_BASE_ADDR"): {},
    ("DPU", "DST_SURF_STRIDE"): {"DST_SURF_STRIDE": 1},
    ("DPU", "DATA_CUBE_WIDTH"): {},
    ("DPU", "DATA_CUBE_HEIGHT"): {},
    ("DPU", "DATA_CUBE_NOTCH_ADDR"): {},
    ("DPU", "DATA_CUBE_CHANNEL"): {"ORIG_CHANNEL": 15, "CHANNEL": 15},
    ("DPU", "BS_CFG"): {"BS_RELU_BYPASS": 1, "BS_MUL_BYPASS": 1, "BS_ALU_BYPASS": 1, "BS_BYPASS": 1},
    ("DPU", "BS_OW_CFG"): {"OD_BYPASS": 1},
    ("DPU", "WDMA_SIZE_0"): {"CHANNEL_WDMA": 15},
    ("DPU", "WDMA_SIZE_1"): {},
    ("DPU", "BN_CFG"): {"BN_RELU_BYPASS": 1, "BN_MUL_BYPASS": 1, "BN_ALU_BYPASS": 1, "BN_BYPASS": 1},
    ("DPU", "EW_CFG"): {
        "EW_RELU_BYPASS": 1,
        "EW_OP_CVT_BYPASS": 1,
        "EW_LUT_BYPASS": 1,
        "EW_OP_BYPASS": 1,
        "EW_BYPASS": 1,
    },
    ("DPU", "OUT_CVT_OFFSET"): {},
    ("DPU", "OUT_CVT_SCALE"): {"OUT_CVT_SCALE": 1},
    ("DPU", "OUT_CVT_SHIFT"): {},
    ("DPU", "SURFACE_ADD"): {"SURF_ADD": 1},
    ("DPU_RDMA", "DATA_CUBE_WIDTH"): {},
    ("DPU_RDMA", "DATA_CUBE_HEIGHT"): {},
    ("DPU_RDMA", "DATA_CUBE_CHANNEL"): {"CHANNEL": 15},
    ("DPU_RDMA", "SRC_BASE_ADDR"): {},
    ("DPU_RDMA", "BRDMA_CFG"): {},
    ("DPU_RDMA", "NRDMA_CFG"): {},
    ("DPU_RDMA", "ERDMA_CFG"): {"ERDMA_DISABLE": 1},
    ("DPU_RDMA", "FEATURE_MODE_CFG"): {"BURST_LEN": 15, "FLYING_MODE": 1},
    ("DPU_RDMA", "SRC_DMA_CFG"): {},
    ("DPU_RDMA", "SURF_NOTCH"): {},
    ("DPU_RDMA", "WEIGHT"): {"E_WEIGHT": 1, "N_WEIGHT": 1, "B_WEIGHT": 1, "M_WEIGHT": 1},
}
"""The task that loads a table in Skeeser/QuadcopterYolo 82da36c0, models/yolov5n_sample.rknn: a copy of one
atom; the words of the table follow."""


def as_version_2(
    data: bytes, *, compress: bool = False, tables: bool = False, short: int = 0, attributes: str = ""
) -> bytes:
    """A file of our writer for one core as version 2: lists without targets, tails and links.

    Parameters
    ----------
    data
        the file; its surfaces must be multiples of four atoms.
    compress
        compress weights of 8 kernels and up to 16 channels.
    tables
        load tables of activations by lists of their own, as files with such tables do.
    short
        bytes by which the stated size of weights is smaller than their section, as in container version 1.
    attributes
        text of the root table where later files have the attributes of inputs.
    """
    file, made = read_rknn(data), _Builder()
    amounts: tuple[int, ...] = ()
    tensors = []
    for tensor in file.tensors:
        if tensor.kind in (Kind.REGCMD, Kind.TASKS):
            continue
        if compress and tensor.layout == schema.Layout.WEIGHTS:
            packed, amounts = compress_weights(np.frombuffer(tensor.data[: 9 * 128], np.uint8))
            tensors.append(_tensor(made, tensor, packed.tobytes(), amounts))
        else:
            less = short if tensor.layout == schema.Layout.WEIGHTS else 0
            tensors.append(_tensor(made, tensor, tensor.data, less=less))
    nodes, lists = [], len(tensors)
    for node in file.nodes:
        records = [n for n in file.plans[1][0] if file.records[n].node == node.index]
        tasks = []
        for number in records:
            words, relocations = _list(file, number, amounts)
            table = 0
            if tables and (loading := _loading(words)):
                words, load = loading
                table, lists = lists, lists + 1
                tensors.append(_tensor(made, FileTensor(table, "lut", None, 0, Kind.TABLE, (), ()), load))
            tensors.append(_tensor(made, FileTensor(lists, "", None, 0, Kind.LIST, (), ()), words))
            tasks.append(_task(made, lists, file.records[number].enable_mask, relocations, table))
            lists += 1
        nodes.append(_node(made, file, node.index, tasks))
    graph = made.table(
        {
            GraphSlot.TENSORS: made.tables(tensors),
            GraphSlot.NODES: made.tables(nodes),
            GraphSlot.INPUTS: made.numbers(file.inputs),
            GraphSlot.OUTPUTS: made.numbers(file.outputs),
        }
    )
    create = made.builder.CreateByteVector
    sections = [made.table({0: create(section)} if section else {}) for section in made.sections]
    root = made.table(
        {
            Root.GRAPHS: made.tables([graph]),
            Root.SECTIONS_V2: made.tables(sections),
            Root.ATTRIBUTES: made.builder.CreateString(attributes),
            Root.COMPILER: made.builder.CreateString("1.4.0"),
            Root.TARGET: made.builder.CreateString(schema.TARGET),
        },
        {Root.VERSION: (1, 4)},
    )
    made.builder.Finish(root, file_identifier=schema.IDENTIFIER)
    body = bytes(made.builder.Output())
    header = schema.HEADER.pack(schema.MAGIC, schema.Version.TOOLKIT_1, len(body))
    return header.ljust(schema.FLATBUFFER_AT, b"\0") + body


def _tensor(
    made: _Builder, tensor: FileTensor, data: bytes, amounts: Sequence[int] = (), less: int = 0
) -> int:
    codes = {kind: code for code, kind in schema.DTYPES.items()}
    numbers = {
        TensorSlot.DTYPE: (codes.get(tensor.dtype, schema.RAW), 1),
        TensorSlot.LAYOUT: (tensor.layout, 1),
        TensorSlot.KIND: (tensor.kind, 1),
        TensorSlot.BYTES: (max(tensor.size, len(data)) - less if tensor.kind != Kind.LIST else 0, 4),
        TensorSlot.OFFSET: (tensor.offset, 4),
        TensorSlot.SECTION: (made.section(data) if data else 0, 4),
    }
    offsets: dict[int, int] = {
        TensorSlot.NATIVE: made.numbers(tensor.native),
        TensorSlot.SHAPE: made.numbers(tensor.shape),
        TensorSlot.NAME: made.builder.CreateString(tensor.name),
        TensorSlot.SCALE: made.numbers([tensor.scale], np.float32),
        TensorSlot.ZERO_POINT: made.numbers([tensor.zero_point]),
    }
    if amounts:
        sizes = [16 * (amount + 1) for amount in amounts]
        places = np.cumsum([0, *(-(-size // SEGMENT_ALIGN) * SEGMENT_ALIGN for size in sizes)])[:-1]
        numbers[TensorSlot.COMPRESSED] = (1, 1)
        offsets[TensorSlot.PAYLOADS] = made.numbers([size - HEADER_BYTES for size in sizes])
        offsets[TensorSlot.STARTS] = made.numbers(places)
        offsets[TensorSlot.HEADERS] = made.numbers([HEADER_BYTES] * len(sizes))
    return made.table(offsets, numbers)


def _list(
    file: RknnFile, number: int, amounts: Sequence[int]
) -> tuple[bytes, list[tuple[int, int, int, int]]]:
    """Records of a list, and (register, tensor, offset, 0) of those that are relocated."""
    record = file.records[number]
    known = registers()
    changed = dict(zip(COMPRESSED, (1, REGNUM, *amounts), strict=True)) if amounts else {}
    out, relocations = b"", []
    for index in range(record.first, record.first + record.amount):
        (word,) = words_from_bytes(int(file.words[index]).to_bytes(8, "little"))
        fields = known.word.decode(word)
        register = known.at(fields["OFFSET"])
        if register is None or not fields["TARGET"]:
            continue
        value = changed.get(register.name, fields["VALUE"])
        out += np.array([0, register.offset], "<u2").tobytes() + np.array([value], "<u4").tobytes()
        if (target := file.relocations.get(index)) is not None:
            relocations.append((register.offset, target.tensor, target.offset, 0))
    return out, relocations


def _loading(words: bytes) -> tuple[bytes, bytes] | None:
    """Divide a list that writes a table: the list without it, and the one that loads it; None without."""
    every = np.frombuffer(words, np.dtype([("zero", "<u2"), ("register", "<u2"), ("value", "<u4")]))
    dpu = registers()["DPU"]
    access = np.isin(every["register"], [dpu[name].offset for name in ("LUT_ACCESS_CFG", "LUT_ACCESS_DATA")])
    if np.count_nonzero(access) < 4:
        return None
    load = b"".join(
        np.array([0, (item := registers()[block][name]).offset], "<u2").tobytes()
        + np.array([item.encode(**fields)], "<u4").tobytes()
        for (block, name), fields in LOAD.items()
    )
    return every[~access].tobytes(), load + every[access].tobytes()


def _task(
    made: _Builder, words: int, mask: int, relocations: list[tuple[int, int, int, int]], table: int = 0
) -> int:
    kind = np.dtype([("a", "<u4"), ("b", "<u4"), ("c", "<u8"), ("d", "<u8")])
    numbers = {
        TaskSlotV2.LIST: (words, 4),
        TaskSlotV2.TABLE: (table, 4),
        TaskSlotV2.ENABLE: (mask, 4),
        TaskSlotV2.INTERRUPTS: (0x3FF, 4),
        TaskSlotV2.CORE_MASK: (1, 4),
        TaskSlotV2.CORES: (1, 4),
    }
    return made.table({TaskSlotV2.RELOCATIONS: made.structures(np.array(relocations, kind))}, numbers)


def _node(made: _Builder, file: RknnFile, index: int, tasks: Sequence[int]) -> int:
    node = file.nodes[index]
    offsets: dict[int, int] = {
        NodeSlot.TYPE: made.builder.CreateString(node.type),
        NodeSlot.NAME: made.builder.CreateString(node.name),
        NodeSlot.INPUTS: made.numbers(node.inputs),
        NodeSlot.OUTPUTS: made.numbers(node.outputs),
        NodeSlot.TASKS_V2: made.tables(tasks),
    }
    numbers = {NodeSlot.TARGET: (schema.ON_NPU if node.on_npu else 0, 1)}
    if node.attributes:
        names = schema.ATTRIBUTES[schema.CODES["Conv"]]
        vectors = {
            names.index(name): made.numbers(value)
            for name, value in node.attributes.items()
            if name not in schema.NUMBERS
        }
        offsets[NodeSlot.ATTRIBUTES] = made.table(vectors)
        numbers[NodeSlot.CODE] = (schema.CODES["Conv"], 1)
    return made.table(offsets, numbers)
