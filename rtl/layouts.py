"""Payloads and port groups that cross a block border inside one NPU core.

Directions are those of the initiator (the master of the port); the other side uses `In(...)` of the
same signature. Streams follow `amaranth.lib.stream`: the payload is stable while `valid` is high and
`ready` is low, and `valid` never depends on `ready`.
"""

# No postponed annotations here: Amaranth reads the fields of a Struct from the annotations.
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.spec.types import LANES as LANES

AXI_BITS = 256

IDLE = 1
"""Value of a conditionally driven wire while its condition does not hold.

It is not 0, because Verilator turns `valid ? x : 0` into a mask and then evaluates `x` in every cycle.
"""


class ReadClient(enum.IntEnum):
    """AXI read id of each read client of a core (5 bits)."""

    FEATURE = 0
    WEIGHT = 1
    MRDMA = 2
    BRDMA = 3
    NRDMA = 4
    ERDMA = 5
    PPU = 6
    PC = 7


class WriteClient(enum.IntEnum):
    """AXI write id of each write client of a core (4 bits)."""

    DPU = 0
    PPU = 1


class ReadRequest(data.Struct):
    """One burst of a read client: `beats_m1 + 1` beats of 32 bytes from `addr`.

    `addr` is a byte address and a multiple of 32. A client that needs data from an odd atom requests the
    aligned beat and drops the first half. The DMA behind this port splits requests at 4 KiB and adds
    TASK_DMA_BASE.
    """

    addr: 32
    beats_m1: 4


class ReadBeat(data.Struct):
    """One beat of read data. `last` marks the end of the request, never the end of a part split at 4 KiB."""

    data: AXI_BITS
    last: 1


class WriteRequest(data.Struct):
    """One burst of a write client; the members are those of `ReadRequest`."""

    addr: 32
    beats_m1: 4


class WriteBeat(data.Struct):
    """One beat of write data with a strobe bit per byte. `last` marks the end of the request."""

    data: AXI_BITS
    strb: AXI_BITS // 8
    last: 1


class ReadPort(wiring.Signature):
    """Port of a read client, seen from the client.

    The client reserves buffer space before it sends a request: `rsp` has no `ready`, so each beat has to be
    accepted in the cycle in which it arrives. Beats of one client arrive in the order of its requests.

    Members
    -------
    req : the burst to read.
    rsp : a beat of read data.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "req": Out(stream.Signature(ReadRequest)),
                "rsp": In(stream.Signature(ReadBeat, always_ready=True)),
            }
        )


class WritePort(wiring.Signature):
    """Port of a write client, seen from the client.

    Members
    -------
    req : the burst to write.
    data : a beat of write data.
    done : pulse, once for each request whose write response has arrived.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "req": Out(stream.Signature(WriteRequest)),
                "data": Out(stream.Signature(WriteBeat)),
                "done": In(1),
            }
        )


class RegisterPort(wiring.Signature):
    """Register access of one block, seen from the initiator.

    The initiator holds `write` or `read` together with `offset` (byte offset in the block's 4 KiB window)
    and `wdata` until a cycle in which `ready` is high. The access takes place in that cycle, and `rdata`
    is valid in it.

    Members
    -------
    write, read : access of a register of the block, held until `ready`.
    offset : byte offset of the register in the block's window.
    wdata : data of the write.
    ready : the access takes place in this cycle.
    rdata : data of the read, valid with `ready`.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "write": Out(1),
                "read": Out(1),
                "offset": Out(12),
                "wdata": Out(32),
                "ready": In(1),
                "rdata": In(32),
            }
        )


class ControlPort(wiring.Signature):
    """Start and end of a block's task, seen from its register file.

    `start` is a pulse. The configuration port of the block is stable from the cycle of the pulse until the
    block answers with a pulse on `done`.

    Members
    -------
    start : pulse, a task of the block starts.
    group : register group of the task.
    done : pulse, the task of the block has ended.
    """

    def __init__(self) -> None:
        super().__init__({"start": Out(1), "group": Out(1), "done": In(1)})


class RegisterWatch(data.Struct):
    """A register write in the cycle in which it takes place.

    Members
    -------
    offset : full offset in the core.
    fetched : the command stream made the write.
    """

    valid: 1
    fetched: 1
    offset: 16
    value: 32


class Diagnostic(data.Struct):
    """One suspicious observation of a block; no register shows it.

    Members
    -------
    code : kind of the diagnostic, a `DiagnosticCode`.
    register : full offset inside the core of the register that it is about.
    value : what was observed, often the value of the register.
    """

    code: 8
    register: 16
    value: 32


class DiagnosticCode(enum.IntEnum, shape=8):
    """Kinds of diagnostics. Their texts are in `rkcosim.engines.diagnostics`."""

    NONE = 0
    UNKNOWN_WRITE = 1
    BANK_SUM = 2
    FEATURE_FOOTPRINT = 3
    WEIGHT_FOOTPRINT = 4
    RESERVED_MODE = 5
    UNALIGNED_ADDRESS = 6
    SIZE_MISMATCH = 7
    WRONG_CORE = 8
    READ_ERROR = 9
    WRITE_ERROR = 10
    UNDECODED_ACCESS = 11
    BAD_COMMAND = 12
    EMPTY_SIZE = 13
    REUSE_FOOTPRINT = 14
    WEIGHT_CODE = 15
    CORE_MISSING = 16
    NOT_BUILT = 17


class DiagnosticPort(wiring.Signature):
    """A `Diagnostic` with a pulse `valid`, seen from the block that reports it.

    Members
    -------
    valid : pulse, a diagnostic is reported.
    """

    def __init__(self) -> None:
        super().__init__({"valid": Out(1), "payload": Out(Diagnostic)})


class CbufFill(data.Struct):
    """Up to two atoms that are written into CBUF in one cycle.

    Members
    -------
    data : both atoms, the first one in the low half.
    entry, column : 64-byte entry of the first atom (0 = first entry of bank 0), and its 16-byte place in it.
    two : there is a second atom.
    entry2, column2 : place of the second atom; `entry2` is `entry` or `entry + 1` modulo the CBUF size.
    """

    data: 256
    entry: 13
    column: 2
    two: 1
    entry2: 13
    column2: 2


class CellIn(data.Struct):
    """Operands and control that the sequence controller gives the array cell in one cycle (rtl/npu/array.py).

    Members
    -------
    precision : code of the CNA [HW 3.1].
    depthwise : depthwise mode.
    w_valid, w_index, w_data : write the 64 bytes `w_data` as chunk `w_index` into the shadow tile.
    w_stride : each kernel takes `16 << w_stride` bytes of the shadow tile.
    f_valid, f_data : feed the operands of one output pixel.
    f_swap : with `f_valid`, make the shadow tile active for this and the following pixels.
    f_first : clear the accumulators of the slot before the addition.
    f_slot, f_bank : place of the pixel in the stripe, and accumulator bank.
    """

    precision: 3
    depthwise: 1
    w_valid: 1
    w_index: 4
    w_stride: 2
    w_data: 512
    f_valid: 1
    f_swap: 1
    f_first: 1
    f_bank: 1
    f_slot: 4
    f_data: 1024


class StripeDone(data.Struct):
    """Sequence controller to CORE: the last operand of a stripe has entered the cell.

    Members
    -------
    bank : accumulator bank.
    pixels_m1 : number of pixels of the stripe minus one.
    kernels : number of real kernels (or depthwise channels) of the group, 1..64; lanes above read as zero.
    last : this is the last stripe of the task.
    """

    bank: 1
    pixels_m1: 4
    kernels: 7
    last: 1


class TaskSize(data.Struct):
    """Sequence controller to CORE: size of a task; constant while stripes are offered.

    Members
    -------
    groups : number of kernel groups (or depthwise channel groups).
    stripes : number of stripes of each group.
    """

    groups: 11
    stripes: 18


class CbufReads(wiring.Signature):
    """Read ports of CBUF, seen from the sequence controller; data come one cycle after `en` and are held.

    Members
    -------
    feature0, feature1 : read of one entry of 64 bytes (`en`, `entry`, `data`).
    weights : read of 64 bytes from the 16-byte place `column` of `entry0` on, continued in `entry1`. One of
        the two entries is even, the other odd.
    """

    def __init__(self) -> None:
        feature = {"en": Out(1), "entry": Out(13), "data": In(512)}
        weight = {"en": Out(1), "entry0": Out(13), "entry1": Out(13), "column": Out(2), "data": In(512)}
        super().__init__(
            {
                "feature0": Out(wiring.Signature(feature)),
                "feature1": Out(wiring.Signature(feature)),
                "weights": Out(wiring.Signature(weight)),
            }
        )


class SlotStatus(wiring.Signature):
    """Activity of the sequence controller in a cycle, for events and counters.

    Members
    -------
    slot_valid : a slot is issued; empty slots of a partial stripe included.
    slot_real : a pixel is issued.
    stall_feature, stall_weight, stall_acc : no slot is issued because input rows, a weight tile or an
        accumulator bank are missing; at most one of them is high.
    macs, array_macs : multiply-accumulates of the slot: those of real pixels, channels and kernels (padded
        taps included), and those of the whole array.
    """

    def __init__(self) -> None:
        levels = ("slot_valid", "slot_real", "stall_feature", "stall_weight", "stall_acc")
        super().__init__(dict.fromkeys(levels, Out(1)) | {"macs": Out(12), "array_macs": Out(12)})


class CorePort(wiring.Signature):
    """Port from the sequence controller to CORE, seen from the sequence controller.

    Members
    -------
    cell : inputs of the array cell.
    stripe : stripes whose accumulators are complete, in order.
    size : size of the task, constant while stripes are offered.
    bank_free : one level for each accumulator bank, high unless the bank is being drained. It is low from the
        cycle after CORE has accepted a stripe of the bank until its last read has been issued.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "cell": Out(CellIn),
                "stripe": Out(stream.Signature(StripeDone)),
                "size": Out(TaskSize),
                "bank_free": In(2),
            }
        )


ACC_BITS = 48
"""Width of an accumulator in bits."""


class Clip(data.Struct):
    """How the DPU reduces a sum to 32 bits: the shift, and whether ties are rounded up instead of to even."""

    shift: 5
    half_up: 1


class AccOctet(data.Struct):
    """CORE to DPU: eight neighbouring channels of one output pixel.

    The order is kernel group, stripe, pixel, octet; a group always has all of its octets
    [HW 6.3].

    Members
    -------
    acc : the sums, or the bits of a binary32 for float types (sign-extended).
    sum : window sums of the inputs, zero without QD_EN and for floats [HW 7.4].
    clip : CLIP_TRUNCATE of the task, zero for floats.
    """

    acc: data.ArrayLayout(ACC_BITS, LANES)
    sum: data.ArrayLayout(32, LANES)
    clip: Clip


class BsOctet(data.Struct):
    """BRDMA or NRDMA to DPU: operands of eight channels [HW 3.7]; zero where not fetched."""

    alu: data.ArrayLayout(32, LANES)
    cpend: data.ArrayLayout(16, LANES)
    mul: data.ArrayLayout(16, LANES)


class ElementOctet(data.Struct):
    """MRDMA or ERDMA to DPU: eight elements in the order of `AccOctet`.

    Integers are sign-extended to 32 bits, floats widened to binary32 ([HW 8.2], [HW 8.4]).
    """

    data: data.ArrayLayout(32, LANES)


class PpuAtom(data.Struct):
    """DPU or PPU_RDMA to PPU: one 16-byte atom.

    PPU_RDMA sends surface by surface, row by row. The DPU sends in its own order: channel group, stripe of
    16 pixels (row-major; a stripe may continue in the next row), surface of the group, pixel.
    """

    data: 128
