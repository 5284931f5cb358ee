"""The array cell: weight tiles, multipliers, window sums and accumulators of one core (DESIGN 4.3).

The cell is the one block that a compiled engine may replace by hand-written code, so its border is
flat and its timing is fixed: every input is sampled at the clock edge, every output comes from a
register.  `ArrayCell` is the RTL, `ArrayCellPorts` the same thing as a module `npu_array_cell` with
plain ports; `ArrayCell(external=True)` is an instance of that module instead of the RTL.
"""

from amaranth import Cat, ClockSignal, Instance, Module, Mux, ResetSignal, Signal, signed
from amaranth.hdl import Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from rtl.layouts import LANES, CellIn

CELL_MODULE = "npu_array_cell"
"""Verilog name of the cell's module, RTL or compiled."""

CELL_LATENCY = 3
"""Cycles from `f_valid` to the first cycle in which that slot may be drained (`d_valid`)."""

KERNELS = 32
"""Kernels of an int8 group, and channels of an int8 channel group (HARDWARE 4.1)."""

DEPTHWISE_LANES = 64
"""Channels of a depthwise group (HARDWARE 4.1)."""

ACC_BITS = 40
SUM_BITS = 32
STRIPE_SLOTS = 16
BANKS = 2
CHUNKS = 16
"""Chunks of 64 bytes in a weight tile of 1 KiB."""

_CHUNK_WORDS = 16
"""32-bit words of a chunk."""

_OCTETS = DEPTHWISE_LANES // LANES
_DRAIN = {"d_valid": 1, "d_bank": 1, "d_slot": 4, "d_octet": 3}


def _tree(terms: list[Value]) -> Value:
    """Balanced sum of the terms."""
    while len(terms) > 1:
        terms = [sum(terms[n : n + 2][1:], terms[n]) for n in range(0, len(terms), 2)]
    return terms[0]


def _byte(words: list[Signal], index: int) -> Value:
    """Signed byte `index` of words of 4 bytes."""
    return words[index // 4][8 * (index % 4) :][:8].as_signed()


class ArrayCell(wiring.Component):
    """32 x 32 int8 multiply-accumulates a cycle, or 64 depthwise ones, with their accumulators.

    Parameters
    ----------
    external : instantiate the module `npu_array_cell` (see `ArrayCellPorts`) instead of the RTL.

    Members
    -------
    i : In(CellIn) : weights and features of this cycle.  A chunk `w_index` of the shadow tile is
        written at the clock edge; with `f_swap` the tile that the shadow held before that edge becomes
        active for this pixel and those after it.  A slot comes again after 16 cycles at the earliest.
    d_valid, d_bank, d_slot, d_octet : In : read channels `8*d_octet..` of a slot; allowed from
        `CELL_LATENCY` cycles after the slot's last `f_valid`.
    o_acc : Out(ArrayLayout(signed(40), 8)) : accumulators, from the cycle after `d_valid` until the
        cycle after the next one.
    o_sum : Out(ArrayLayout(32, 8)) : window sums of the same lanes, in step with `o_acc`; direct
        mode has one sum and gives it in all lanes.

    Direct: `acc[k] += sum(f[c] * w[k][c])` over c < 32, for k < 32; `sum += sum(f[c])`.  Depthwise:
    `acc[c] += f[c] * w[c]`, `sum[c] += f[c]`, c < 64; lanes from 32 on are written only there.
    """

    i: In(CellIn)
    d_valid: In(1)
    d_bank: In(1)
    d_slot: In(4)
    d_octet: In(3)
    o_acc: Out(data.ArrayLayout(signed(ACC_BITS), LANES))
    o_sum: Out(data.ArrayLayout(SUM_BITS, LANES))

    def __init__(self, *, external: bool = False) -> None:
        self._external = external
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if self._external:
            m.submodules.cell = self._instance()
        else:
            self._elaborate_rtl(m)
        return m

    def _instance(self) -> Instance:
        ports: dict[str, Value] = {"i_clk": ClockSignal(), "i_rst": ResetSignal()}
        ports |= {f"i_{name}": getattr(self.i, name) for name in CellIn.as_shape().members}
        ports |= {f"i_{name}": getattr(self, name) for name in _DRAIN}
        ports |= {"o_o_acc": self.o_acc.as_value(), "o_o_sum": self.o_sum.as_value()}
        return Instance(CELL_MODULE, **ports)

    def _elaborate_rtl(self, m: Module) -> None:
        i = self.i

        # Weights: a chunk holds two kernels of 32 bytes, four of 16, or 64 depthwise channels.  Kept as
        # many narrow words: bytes cut out of wide ones cost the compiled engines much time.
        shadow = [Signal(32, name=f"shadow_{n}", reset_less=True) for n in range(CHUNKS * _CHUNK_WORDS)]
        active = [Signal(32, name=f"active_{n}", reset_less=True) for n in range(CHUNKS * _CHUNK_WORDS)]
        words = [Signal(32, name=f"w_word_{n}") for n in range(_CHUNK_WORDS)]
        write_wide, write_narrow, w_index = Signal(), Signal(), Signal(4)
        m.d.comb += [
            write_wide.eq(i.w_valid & (i.w_stride != 0)),
            write_narrow.eq(i.w_valid & (i.w_stride == 0)),
            w_index.eq(Mux(i.w_valid, i.w_index, 0)),
        ]
        # (A gate, not only a name: CXXRTL would cut the word out of all inputs again at each use.)
        m.d.comb += [word.eq(Mux(i.w_valid, i.w_data[32 * n :][:32], 0)) for n, word in enumerate(words)]
        for chunk in range(CHUNKS):
            mine = shadow[_CHUNK_WORDS * chunk :][:_CHUNK_WORDS]
            with m.If(write_wide & (w_index == chunk)):
                m.d.sync += [to.eq(word) for to, word in zip(mine, words, strict=True)]
            # Kernels of 16 bytes: half a chunk of them fills the low halves of two rows.
            half = words[_CHUNK_WORDS // 2 * (chunk % 2) :]
            with m.If(write_narrow & (w_index == chunk // 2)):
                m.d.sync += [mine[n].eq(half[n]) for n in range(4)]
                m.d.sync += [mine[8 + n].eq(half[4 + n]) for n in range(4)]

        # A: latch the operands, and the tile they belong to.
        a_valid = Signal()
        a_tag = Signal(data.StructLayout({"slot": 4, "bank": 1, "first": 1, "depthwise": 1}), reset_less=True)
        a_data = [Signal(32, name=f"a_data_{n}", reset_less=True) for n in range(DEPTHWISE_LANES // 4)]
        m.d.sync += a_valid.eq(i.f_valid)
        with m.If(i.f_valid):
            m.d.sync += [
                a_tag.slot.eq(i.f_slot),
                a_tag.bank.eq(i.f_bank),
                a_tag.first.eq(i.f_first),
                a_tag.depthwise.eq(i.depthwise),
            ]
            m.d.sync += [word.eq(i.f_data[32 * n : 32 * n + 32]) for n, word in enumerate(a_data)]
        take_tile = Signal()
        m.d.comb += take_tile.eq(i.f_valid & i.f_swap)
        with m.If(take_tile):
            m.d.sync += [now.eq(then) for now, then in zip(active, shadow, strict=True)]

        # B: products and their sums.
        b_valid = Signal()
        b_tag = Signal(a_tag.shape(), reset_less=True)
        b_acc = [
            Signal(signed(21 if lane < KERNELS else 16), name=f"b_acc_{lane}", reset_less=True)
            for lane in range(DEPTHWISE_LANES)
        ]
        b_sum = [
            Signal(signed(13 if lane < KERNELS else 8), name=f"b_sum_{lane}", reset_less=True)
            for lane in range(DEPTHWISE_LANES)
        ]
        operand = [_byte(a_data, lane) for lane in range(DEPTHWISE_LANES)]
        m.d.sync += b_valid.eq(a_valid)
        with m.If(a_valid):
            m.d.sync += b_tag.eq(a_tag)
        with m.If(a_valid & ~a_tag.depthwise):
            window = Signal(signed(13))
            m.d.comb += window.eq(_tree(operand[:32]))
            for kernel in range(KERNELS):
                products = [operand[c] * _byte(active, 32 * kernel + c) for c in range(32)]
                m.d.sync += [b_acc[kernel].eq(_tree(products)), b_sum[kernel].eq(window)]
        with m.If(a_valid & a_tag.depthwise):
            for lane in range(DEPTHWISE_LANES):
                m.d.sync += [
                    b_acc[lane].eq(operand[lane] * _byte(active, lane)),
                    b_sum[lane].eq(operand[lane]),
                ]

        # C: accumulate.  One memory per octet, a row is a slot of a bank.
        row_layout = data.StructLayout(
            {
                "acc": data.ArrayLayout(signed(ACC_BITS), LANES),
                "sum": data.ArrayLayout(SUM_BITS, LANES),
            }
        )
        octet_out = Signal(3, reset_less=True)
        with m.If(self.d_valid):
            m.d.sync += octet_out.eq(self.d_octet)
        drained = []
        for octet in range(_OCTETS):
            memory = Memory(shape=row_layout, depth=BANKS * STRIPE_SLOTS, init=[])
            m.submodules[f"acc_{octet}"] = memory
            read, drain, write = memory.read_port(), memory.read_port(), memory.write_port()
            wide_only = LANES * octet >= KERNELS
            a_used, b_used = (a_tag.depthwise, b_tag.depthwise) if wide_only else (1, 1)
            m.d.comb += [
                read.en.eq(a_valid & a_used),
                read.addr.eq(Cat(a_tag.slot, a_tag.bank)),
                write.en.eq(b_valid & b_used),
                write.addr.eq(Cat(b_tag.slot, b_tag.bank)),
                drain.en.eq(self.d_valid & (self.d_octet == octet)),
                drain.addr.eq(Cat(self.d_slot, self.d_bank)),
            ]
            for lane in range(LANES):
                index = LANES * octet + lane
                m.d.comb += [
                    write.data.acc[lane].eq(Mux(b_tag.first, 0, read.data.acc[lane]) + b_acc[index]),
                    write.data.sum[lane].eq(Mux(b_tag.first, 0, read.data.sum[lane]) + b_sum[index]),
                ]
            drained.append(drain.data)
        with m.Switch(octet_out):
            for octet in range(_OCTETS):
                with m.Case(octet):
                    m.d.comb += [self.o_acc.eq(drained[octet].acc), self.o_sum.eq(drained[octet].sum)]


class ArrayCellPorts(wiring.Component):
    """`ArrayCell` behind plain ports: convert it with the name `npu_array_cell`.

    Members: the fields of `CellIn` and the drain inputs by their names (In), `o_acc` (320 bits, lane 0
    lowest) and `o_sum` (256 bits) (Out).
    """

    def __init__(self) -> None:
        fields = {name: In(field.shape) for name, field in CellIn.as_shape()}
        super().__init__(
            fields
            | {name: In(width) for name, width in _DRAIN.items()}
            | {"o_acc": Out(ACC_BITS * LANES), "o_sum": Out(SUM_BITS * LANES)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.rtl = cell = ArrayCell()
        m.d.comb += [getattr(cell.i, name).eq(getattr(self, name)) for name in CellIn.as_shape().members]
        m.d.comb += [getattr(cell, name).eq(getattr(self, name)) for name in _DRAIN]
        m.d.comb += [self.o_acc.eq(cell.o_acc), self.o_sum.eq(cell.o_sum)]
        return m
