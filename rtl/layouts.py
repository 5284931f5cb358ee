"""Payloads and port groups that cross a block border inside one NPU core.

Directions are those of the side that *initiates* (the master of the port); the other side uses
`In(...)` of the same signature.  Streams follow `amaranth.lib.stream`: payload holds while valid
and not ready, and valid never waits for ready.
"""

# No postponed annotations here: Amaranth reads the fields of a Struct from them.
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

AXI_BITS = 256
LANES = 8
"""Elements that the DPU takes a cycle (HARDWARE Q20)."""


class ReadClient(enum.IntEnum):
    """AXI read id of each reader of a core (5 bits; DESIGN 4)."""

    FEATURE = 0
    WEIGHT = 1
    MRDMA = 2
    BRDMA = 3
    NRDMA = 4
    ERDMA = 5
    PPU = 6
    PC = 7


class WriteClient(enum.IntEnum):
    """AXI write id of each writer of a core (4 bits)."""

    DPU = 0
    PPU = 1


class ReadRequest(data.Struct):
    """One burst of a read client: `beats_m1 + 1` beats of 32 bytes from `addr`.

    `addr` is a byte address and a multiple of 32.  A client that wants data from an odd atom asks
    for the aligned beat and drops the first half.  Splits at 4 KiB and TASK_DMA_BASE are added
    behind this port, by the DMA.
    """

    addr: 32
    beats_m1: 4


class ReadBeat(data.Struct):
    """One beat of read data; `last` closes the request (never a 4 KiB split of it)."""

    data: AXI_BITS
    last: 1


class WriteRequest(data.Struct):
    """One burst of a write client; as `ReadRequest`."""

    addr: 32
    beats_m1: 4


class WriteBeat(data.Struct):
    """One beat of write data with a strobe bit per byte; `last` closes the request."""

    data: AXI_BITS
    strb: AXI_BITS // 8
    last: 1


class ReadPort(wiring.Signature):
    """A read client's port, seen from the client.

    The client reserves room before it asks: `rsp` has no ready and every beat is taken in the
    cycle it comes.  Beats of one client arrive in the order of its requests.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "req": Out(stream.Signature(ReadRequest)),
                "rsp": In(stream.Signature(ReadBeat, always_ready=True)),
            }
        )


class WritePort(wiring.Signature):
    """A write client's port, seen from the client.

    `done` is a pulse for each request whose write response has arrived.
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
    """An access to one block's registers, seen from the initiator.

    The initiator holds `write` or `read` with `offset` (byte offset in the block's 4 KiB window)
    and `wdata` until a cycle in which `ready` is high; the access takes place in that cycle and
    `rdata` is valid in it.
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
    """Start and end of a block's work, seen from its register file.

    `start` is a pulse; the block's configuration port is stable from the cycle of the pulse until
    the block answers with a pulse on `done`.  `group` is the register group that runs.
    """

    def __init__(self) -> None:
        super().__init__({"start": Out(1), "group": Out(1), "done": In(1)})


class RegisterWatch(data.Struct):
    """A register write as it is done: `offset` in the core, `fetched` if the command stream does it."""

    valid: 1
    fetched: 1
    offset: 16
    value: 32


class Diagnostic(data.Struct):
    """One suspicious thing a block saw (DESIGN 4.1); invisible to the registers.

    `register` is the full offset inside the core; `code` is a `DiagnosticCode`.
    """

    code: 8
    register: 16
    value: 32


class DiagnosticCode(enum.IntEnum, shape=8):
    """What a diagnostic says.  Texts for people live in `cosim.engines.diagnostics`."""

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


class DiagnosticPort(wiring.Signature):
    """A pulse with a `Diagnostic`, seen from the block that raises it."""

    def __init__(self) -> None:
        super().__init__({"valid": Out(1), "payload": Out(Diagnostic)})


class CbufFill(data.Struct):
    """Up to two atoms written into CBUF in one cycle.

    `entry` is the 64-byte entry of the first atom (0 = first entry of bank 0), `column` its
    16-byte place in the entry.  With `two` set the second atom goes to `entry2`/`column2`, where
    `entry2` is `entry` or `entry + 1` modulo the CBUF size (DESIGN 4.2).
    """

    data: 256
    entry: 13
    column: 2
    two: 1
    entry2: 13
    column2: 2


class CellIn(data.Struct):
    """What the sequence controller gives the array cell in one cycle (see `rtl/npu/array.py`).

    `precision` is the CNA's code (HARDWARE 3.1).  Weights: `w_valid` writes the 64 bytes `w_data` as
    chunk `w_index` into the shadow tile, laid out with `16 << w_stride` bytes per kernel.  Features:
    `f_valid` feeds one output pixel's operands, `f_swap` (with `f_valid`) makes the shadow tile active
    for this pixel and those after it, `f_first` clears the accumulators of the slot before adding.
    `f_slot` is the pixel's place in the stripe and `f_bank` the accumulator bank.
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
    """Sequence controller to CORE: a stripe's last operand has entered the cell.

    `bank` the accumulator bank, `pixels_m1` pixels of the stripe minus one, `kernels` the number of
    real kernels (or depthwise channels) of the group, 1..64; lanes from there on read as zero.
    `last` marks the last stripe of the task.
    """

    bank: 1
    pixels_m1: 4
    kernels: 7
    last: 1


class TaskSize(data.Struct):
    """Sequence controller to CORE: what a task consists of; stands still while stripes are offered.

    `groups` kernel groups (or depthwise channel groups), `stripes` of each.
    """

    groups: 11
    stripes: 18


ACC_BITS = 48
"""Bits of an accumulator."""


class Clip(data.Struct):
    """How the DPU brings a sum to 32 bits: the shift, and whether ties go up instead of to even."""

    shift: 5
    half_up: 1


class AccOctet(data.Struct):
    """CORE to DPU: eight neighbouring channels of one output pixel.

    `acc` the sums, or binary32 bits for float types (sign-extended); `sum` the window sum of the
    inputs, zero without QD_EN and for floats (HARDWARE 5.2); `clip` the task's CLIP_TRUNCATE, zero for
    floats.  Order: kernel group, stripe, pixel, octet; a group always has all its octets
    (docs/hardware.md 3.8).
    """

    acc: data.ArrayLayout(ACC_BITS, LANES)
    sum: data.ArrayLayout(32, LANES)
    clip: Clip


class BsOctet(data.Struct):
    """BRDMA or NRDMA to DPU: operands of eight channels (HARDWARE 3.7); zero where not fetched."""

    alu: data.ArrayLayout(32, LANES)
    cpend: data.ArrayLayout(16, LANES)
    mul: data.ArrayLayout(16, LANES)


class ElementOctet(data.Struct):
    """MRDMA or ERDMA to DPU: eight elements in the order of AccOctet.

    Integers are sign-extended to 32 bit, floats widened to binary32 (docs/hardware.md 5.2, 5.4).
    """

    data: data.ArrayLayout(32, LANES)


class PpuAtom(data.Struct):
    """DPU or PPU_RDMA to PPU: one 16-byte atom.

    PPU_RDMA sends surface by surface, row by row.  The DPU sends its own order: channel group,
    stripe of 16 pixels (row-major, running on across rows), surface of the group, pixel.
    """

    data: 128
