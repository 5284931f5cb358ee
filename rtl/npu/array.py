"""The array cell: weight tiles, multipliers, window sums and accumulators of one core (DESIGN 4.3).

The cell is the one block that a compiled engine may replace by hand-written code, so its border is
flat and its timing is fixed: every input is sampled at the clock edge, every output comes from a
register.  `ArrayCell` is the RTL, `ArrayCellPorts` the same thing as a module `npu_array_cell` with
plain ports; `ArrayCell(external=True)` is an instance of that module instead of the RTL.
"""

from amaranth import Cat, ClockSignal, Instance, Module, Mux, ResetSignal, Signal, signed
from amaranth.hdl import Value
from amaranth.lib import data, enum, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from rtl.layouts import ACC_BITS, LANES, CellIn
from rtl.npu.array_float import KERNELS as FLOAT_KERNELS
from rtl.npu.array_float import WORDS, FloatKernel, FloatOctet, Operands
from rtl.npu.array_integer import IDLE, PackedWeights, dot, element, extended, window_sum
from rtl.npu.cna_types import FLOATS, Precision, one_of

CELL_MODULE = "npu_array_cell"
"""Verilog name of the cell's module, RTL or compiled."""

CELL_LATENCY = 4
"""Cycles from `f_valid` to the first cycle in which that slot may be drained (`d_valid`); integers are there
a cycle earlier."""

DEPTHWISE_LANES = 64
"""Channels of a depthwise group (HARDWARE 4.1), and kernels of an int4 group."""

SUM_BITS = 32
STRIPE_SLOTS = 16
BANKS = 2
CHUNKS = 16
"""Chunks of 64 bytes in a weight tile of 1 KiB."""

_CHUNK_WORDS = 16
"""32-bit words of a chunk."""

_TILE_WORDS = CHUNKS * _CHUNK_WORDS
_OCTETS = DEPTHWISE_LANES // LANES
_DRAIN = {"d_valid": 1, "d_bank": 1, "d_slot": 4, "d_octet": 3}


class Path(enum.IntEnum, shape=3):
    """What a pixel of an integer type does in the cell: type and mode; WIDE is depthwise."""

    INT8 = 0
    INT8_WIDE = 1
    INT16 = 2
    INT16_WIDE = 3
    INT4 = 4


KERNELS = {Path.INT8: 32, Path.INT16: 16, Path.INT4: 64, Path.INT8_WIDE: 64, Path.INT16_WIDE: 64}
"""Accumulators that a path writes."""


class Tag(data.Struct):
    """Where a pixel belongs, beside its numbers."""

    slot: 4
    bank: 1
    first: 1
    path: Path


class ArrayCell(wiring.Component):
    """Multiply-accumulates of one cycle for every type, with their accumulators.

    | type | kernels x channels | bytes of a kernel's row in the tile, and of direct operands |
    | --- | --- | --- |
    | int4 | 64 x 32 | 16 |
    | int8 | 32 x 32 | 32 |
    | int16, fp16, bf16 | 16 x 32 | 64 |
    | tf32 | 16 x 16 | 64 |
    | depthwise int8; int16, fp16, bf16 | 64 | 64; 128 |

    Parameters
    ----------
    external : instantiate the module `npu_array_cell` (see `ArrayCellPorts`) instead of the RTL.

    Members
    -------
    i : In(CellIn) : weights and features of this cycle.  Chunk `w_index` of the shadow tile is written at
        the clock edge: rows of `16 << w_stride` bytes, each at its kernel's place and zeros behind it
        (depthwise: 64 bytes in line).  With `f_swap` the tile that the shadow held before that edge becomes
        active for this pixel and those after it.  A slot comes again after 16 cycles at the earliest.
        `precision` and `depthwise` change only while nothing is under way (`CELL_LATENCY`); the next
        pixel then has `f_swap`, for a tile written since, and the next one of each slot `f_first`.  So after
        a reset.
    d_valid, d_bank, d_slot, d_octet : In : read channels `8*d_octet..` of a slot; allowed from
        `CELL_LATENCY` cycles after the slot's last `f_valid`.
    o_acc : Out(ArrayLayout(signed(48), 8)) : accumulators, from the cycle after `d_valid` until the
        cycle after the next one; of floats the bits of a binary32.
    o_sum : Out(ArrayLayout(32, 8)) : window sums of the same lanes, in step with `o_acc`; direct
        mode has one sum and gives it in all lanes, floats have none and give 0.

    Direct: `acc[k] += sum(f[c] * w[k][c])`, `sum += sum(f[c])`.  Depthwise: `acc[c] += f[c] * w[c]`,
    `sum[c] += f[c]`.  Octets beyond a type's kernels are not written.  Reserved precisions count as int8,
    depthwise int4 and tf32 as direct.
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
        shadow = self._weights(m)

        # A: latch the operands, and the tile they belong to.
        path = Signal(Path)
        a_valid, a_tag = Signal(), Signal(Tag, reset_less=True)
        a_data = [Signal(32, name=f"a_data_{n}", reset_less=True) for n in range(DEPTHWISE_LANES // 2)]
        is_float = one_of(i.precision, *FLOATS)
        m.d.sync += a_valid.eq(i.f_valid & ~is_float)
        with m.If(i.f_valid):
            m.d.comb += path.eq(self._path())
            m.d.sync += [
                a_tag.slot.eq(i.f_slot),
                a_tag.bank.eq(i.f_bank),
                a_tag.first.eq(i.f_first),
                a_tag.path.eq(path),
            ]
            m.d.sync += [word.eq(i.f_data[32 * n : 32 * n + 32]) for n, word in enumerate(a_data)]
        active = [Signal(32, name=f"active_{n}", reset_less=True) for n in range(_TILE_WORDS)]
        packed = PackedWeights()
        take_tile = Signal()
        m.d.comb += take_tile.eq(i.f_valid & i.f_swap)
        with m.If(take_tile):
            with m.If(i.precision == Precision.INT4):
                packed.take(m, shadow)
            with m.Else():
                m.d.sync += [now.eq(then) for now, then in zip(active, shadow, strict=True)]

        # B: products and their sums.
        b_valid, b_tag = Signal(), Signal(Tag, reset_less=True)
        b_acc = [
            Signal(signed(37 if lane < 16 else 32), name=f"b_acc_{lane}", reset_less=True)
            for lane in range(DEPTHWISE_LANES)
        ]
        b_window = Signal(signed(21), reset_less=True)
        b_sum = [Signal(signed(16), name=f"b_sum_{n}", reset_less=True) for n in range(DEPTHWISE_LANES)]

        def wide(bits: int) -> None:
            for lane in range(DEPTHWISE_LANES):
                operand = element(a_data, lane, bits)
                product = operand * element(active, lane, bits)
                m.d.sync += [
                    b_acc[lane].eq(extended(product, len(b_acc[lane]))),
                    b_sum[lane].eq(extended(operand, len(b_sum[lane]))),
                ]

        def direct(bits: int, sums: list[Value]) -> None:
            m.d.sync += b_window.eq(extended(window_sum(a_data, bits), len(b_window)))
            m.d.sync += [to.eq(extended(total, len(to))) for to, total in zip(b_acc, sums, strict=False)]

        m.d.sync += b_valid.eq(a_valid)
        with m.If(a_valid):
            m.d.sync += b_tag.eq(a_tag)
            with m.Switch(a_tag.path):
                with m.Case(Path.INT8):
                    direct(8, [dot(a_data, active, k, 8) for k in range(KERNELS[Path.INT8])])
                with m.Case(Path.INT8_WIDE):
                    wide(8)
                with m.Case(Path.INT16):
                    direct(16, [dot(a_data, active, k, 16) for k in range(KERNELS[Path.INT16])])
                with m.Case(Path.INT16_WIDE):
                    wide(16)
                with m.Case(Path.INT4):
                    direct(4, packed.dot(m, a_data))

        # C: accumulate.
        rows = [_Row(m, octet) for octet in range(_OCTETS)]
        for octet, row in enumerate(rows):
            lanes = slice(LANES * octet, LANES * octet + LANES)
            with m.If(a_valid & _uses(a_tag.path, octet)):
                row.fetch(a_tag)
            with m.If(b_valid & _uses(b_tag.path, octet)):
                row.store(b_tag)
                row.add(b_tag.first, b_acc[lanes])
                with m.If(one_of(b_tag.path, Path.INT8_WIDE, Path.INT16_WIDE)):
                    row.add_sums(b_tag.first, b_sum[lanes])
                with m.Else():
                    row.add_sum(b_tag.first, b_window)

        floats = _Floats(m, i, i.f_valid & is_float, a_tag, a_data, active)
        for octet, row in enumerate(rows):
            floats.octet(m, octet, row)

        octet_out = Signal(3, reset_less=True)
        with m.If(self.d_valid):
            m.d.sync += octet_out.eq(self.d_octet)
        for octet, row in enumerate(rows):
            with m.If(self.d_valid & (self.d_octet == octet)):
                row.drain(self.d_bank, self.d_slot)
        with m.Switch(octet_out):
            for octet, row in enumerate(rows):
                with m.Case(octet):
                    m.d.comb += [
                        self.o_acc.as_value().eq(row.drained_acc()),
                        self.o_sum.as_value().eq(row.drained_sum()),
                    ]

    def _path(self) -> Value:
        """The `Path` of this cycle's precision and mode."""
        precision, wide = self.i.precision, self.i.depthwise
        other = Mux(wide, Path.INT8_WIDE, Path.INT8)
        path = Mux(precision == Precision.INT16, Mux(wide, Path.INT16_WIDE, Path.INT16), other)
        return Mux(precision == Precision.INT4, Path.INT4, path)

    def _weights(self, m: Module) -> list[Signal]:
        """The shadow tile as it is written, in words of four bytes, row by row.

        Many narrow words: bytes cut out of wide ones cost the compiled engines much time.
        """
        i = self.i
        shadow = [Signal(32, name=f"shadow_{n}", reset_less=True) for n in range(_TILE_WORDS)]
        words = [Signal(32, name=f"w_word_{n}") for n in range(_CHUNK_WORDS)]
        # (A gate, not only a name: CXXRTL would cut the word out of all inputs again at each use.)
        m.d.comb += [word.eq(Mux(i.w_valid, i.w_data[32 * n :][:32], 0)) for n, word in enumerate(words)]
        # Full rows go in as they come.  Rows of half or a quarter of the full length are spread over two
        # or four chunks' places; `piece` rows are 16 bytes long or 32.
        int4, int8 = i.precision == Precision.INT4, self._is_int8()
        full, half, quarter, long = Signal(), Signal(), Signal(), Signal()
        with m.If(i.w_valid):
            with m.If(int4 | (i.w_stride >= 2) | (int8 & (i.w_stride == 1))):
                m.d.comb += full.eq(1)
            with m.Elif(int8 | (i.w_stride == 1)):
                m.d.comb += [half.eq(1), long.eq(~int8)]
            with m.Else():
                m.d.comb += quarter.eq(1)
        for chunk in range(CHUNKS):
            place = shadow[_CHUNK_WORDS * chunk :][:_CHUNK_WORDS]
            with m.If(full & (i.w_index == chunk)):
                m.d.sync += [to.eq(word) for to, word in zip(place, words, strict=True)]
            with m.If(half & (i.w_index == chunk // 2)):
                piece = words[8 * (chunk % 2) :][:8]
                with m.If(long):
                    m.d.sync += [to.eq(piece[n] if n < 8 else 0) for n, to in enumerate(place)]
                with m.Else():
                    short = [piece[n % 8 + n // 8 * 4] if n % 8 < 4 else 0 for n in range(_CHUNK_WORDS)]
                    m.d.sync += [to.eq(word) for to, word in zip(place, short, strict=True)]
            with m.If(quarter & (i.w_index == chunk // 4)):
                piece = words[4 * (chunk % 4) :][:4]
                m.d.sync += [to.eq(piece[n] if n < 4 else 0) for n, to in enumerate(place)]
        return shadow

    def _is_int8(self) -> Value:
        others = (p for p in Precision if p != Precision.INT8)
        return ~one_of(self.i.precision, *others)


def _uses(path: Value, octet: int) -> Value:
    """Whether a path writes an octet of accumulators."""
    return one_of(path, *(p for p in Path if KERNELS[p] > LANES * octet))


class _Floats:
    """What pixels of floats do: stages A, B, C, and the accumulation a cycle after that of integers."""

    def __init__(
        self, m: Module, i: Value, valid: Value, tag: Value, features: list[Signal], active: list[Signal]
    ) -> None:
        """`valid`: a pixel enters; a cycle later its tag, features and weights are in the other arguments."""
        self._features, self._active = features, active
        a, b, c = (
            {name: Signal(name=f"{stage}_{name}") for name in ("float", "wide", "direct", "exact", "window")}
            for stage in "abc"
        )
        precision = Signal(Precision, reset_less=True)
        take = Signal()
        wide = i.depthwise & (i.precision != Precision.TF32)
        exact = i.precision == Precision.FP16
        m.d.sync += [
            a["float"].eq(valid),
            a["wide"].eq(valid & wide),
            a["direct"].eq(valid & ~wide),
            a["exact"].eq(valid & ~wide & exact),
            a["window"].eq(valid & ~wide & ~exact),
            take.eq(valid & ~wide & i.f_swap),
        ]
        m.d.sync += [b[name].eq(a[name]) for name in a] + [c[name].eq(b[name]) for name in a]
        with m.If(valid):
            m.d.sync += precision.eq(i.precision)
        self._a, self._b, self._c, self._precision = a, b, c, precision
        b_tag, c_tag = (Signal(Tag, name=f"{stage}_float_tag", reset_less=True) for stage in "bc")
        with m.If(a["float"]):
            m.d.sync += b_tag.eq(tag)
        with m.If(b["float"]):
            m.d.sync += c_tag.eq(b_tag)
        self._b_tag, self._c_tag = b_tag, c_tag

        operands = Operands("feature")
        with m.If(a["direct"]):
            operands.take(m, precision, features[:WORDS])
        # Weights are taken apart as they come, a cycle later than the bytes.
        chunk = Operands("float_chunk")
        load = Signal()
        index, stride = Signal(4, name="float_index"), Signal(2, name="float_stride")
        loads = i.w_valid & one_of(i.precision, *FLOATS) & ~i.depthwise
        m.d.sync += load.eq(loads)
        with m.If(loads):
            chunk.take(m, i.precision, [i.w_data[32 * n : 32 * n + 32] for n in range(WORDS)])
            m.d.sync += [index.eq(i.w_index), stride.eq(i.w_stride)]
        self._kernels = []
        for k in range(FLOAT_KERNELS):
            m.submodules[f"float_kernel_{k}"] = kernel = FloatKernel(k)
            m.d.comb += [
                kernel.load.eq(load),
                kernel.index.eq(index),
                kernel.stride.eq(stride),
                kernel.take.eq(take),
                kernel.exact.eq(b["exact"]),
                kernel.window.eq(b["window"]),
                kernel.tf32.eq(precision == Precision.TF32),
            ]
            m.d.comb += [to.eq(x) for to, x in zip(kernel.weights, chunk.number, strict=True)]
            m.d.comb += [getattr(kernel, f"weight_{flag}").eq(x) for flag, x in chunk.flags.items()]
            m.d.comb += [to.eq(x) for to, x in zip(kernel.features, operands.number, strict=True)]
            m.d.comb += [getattr(kernel, flag).eq(x) for flag, x in operands.flags.items()]
            self._kernels.append(kernel)

    def octet(self, m: Module, number: int, row: "_Row") -> None:
        """Connect the accumulators of an octet."""
        direct = number < FLOAT_KERNELS // LANES
        octet = FloatOctet(direct=direct)
        m.submodules[f"float_octet_{number}"] = octet
        words = slice(LANES // 2 * number, LANES // 2 * (number + 1))
        m.d.comb += [
            octet.wide.eq(self._a["wide"]),
            octet.bf16.eq(self._precision == Precision.BF16),
            octet.move.eq(self._b["wide"]),
            octet.add_products.eq(self._c["wide"]),
            octet.first.eq(self._c_tag.first),
        ]
        m.d.comb += [to.eq(x) for to, x in zip(octet.features, self._features[words], strict=True)]
        m.d.comb += [to.eq(x) for to, x in zip(octet.weights, self._active[words], strict=True)]
        if direct:
            kernels = self._kernels[LANES * number : LANES * (number + 1)]
            m.d.comb += [to.eq(kernel.mantissa) for to, kernel in zip(octet.sums, kernels, strict=True)]
            m.d.comb += [to.eq(kernel.marks) for to, kernel in zip(octet.marks, kernels, strict=True)]
        stage = "float" if direct else "wide"
        m.d.comb += octet.add.eq(self._c[stage])
        with m.If(self._b[stage]):
            row.fetch(self._b_tag)
        m.d.comb += [to.eq(x) for to, x in zip(octet.old, row.low(), strict=True)]
        with m.If(self._c[stage]):
            row.store(self._c_tag)
            row.put(list(octet.o))


class _Row:
    """Accumulators and sums of eight lanes: one memory, a row of it is a slot of a bank."""

    def __init__(self, m: Module, octet: int) -> None:
        self._m = m
        # Words of 32 bits, again: `low` and `high` together are the 48 bits.
        shape = data.StructLayout(
            {
                "low": data.ArrayLayout(32, LANES),
                "high": data.ArrayLayout(ACC_BITS - 32, LANES),
                "sum": data.ArrayLayout(SUM_BITS, LANES),
            }
        )
        memory = Memory(shape=shape, depth=BANKS * STRIPE_SLOTS, init=[])
        m.submodules[f"acc_{octet}"] = memory
        self._read, self._drain, self._write = memory.read_port(), memory.read_port(), memory.write_port()
        self._result = Signal(shape, name=f"row_{octet}", init={"low": [IDLE] * LANES})
        m.d.comb += [self._read.en.eq(0), self._drain.en.eq(0), self._write.data.eq(self._result)]

    def drain(self, bank: Value, slot: Value) -> None:
        """Read a slot for the outputs: `drained_acc` and `drained_sum` in the next cycle."""
        self._m.d.comb += [self._drain.en.eq(1), self._drain.addr.eq(Cat(slot, bank))]

    def drained_acc(self) -> Value:
        """The eight accumulators of the slot read last."""
        row = self._drain.data
        return Cat(*(Cat(row.low[lane], row.high[lane]) for lane in range(LANES)))

    def drained_sum(self) -> Value:
        """The eight sums of the slot read last."""
        return Value.cast(self._drain.data.sum)

    def fetch(self, tag: Value) -> None:
        """Read the slot of `tag`; what is added in the next cycle adds to that."""
        self._m.d.comb += [self._read.en.eq(1), self._read.addr.eq(Cat(tag.slot, tag.bank))]

    def store(self, tag: Value) -> None:
        """Write into the slot of `tag` what is added."""
        self._m.d.comb += [self._write.en.eq(1), self._write.addr.eq(Cat(tag.slot, tag.bank))]

    def add(self, first: Value, values: list[Signal]) -> None:
        """Add a signed value to each accumulator."""
        old = self._read.data
        for lane, value in enumerate(values):
            base = Mux(first, 0, Cat(old.low[lane], old.high[lane]))
            total = (base + extended(value, ACC_BITS))[:ACC_BITS]
            self._m.d.comb += Cat(self._result.low[lane], self._result.high[lane]).eq(total)

    def low(self) -> list[Value]:
        """The lower 32 bits of the accumulators in the slot fetched last."""
        return list(self._read.data.low)

    def put(self, values: list[Value]) -> None:
        """Replace the accumulators by binary32; floats have no window sums."""
        for lane, value in enumerate(values):
            self._m.d.comb += [
                self._result.low[lane].eq(value),
                self._result.high[lane].eq(0),
                self._result.sum[lane].eq(0),
            ]

    def add_sums(self, first: Value, values: list[Signal]) -> None:
        """Add to each lane's sum its own value."""
        for lane, value in enumerate(values):
            base = Mux(first, 0, self._read.data.sum[lane])
            self._m.d.comb += self._result.sum[lane].eq(base + extended(value, SUM_BITS))

    def add_sum(self, first: Value, value: Signal) -> None:
        """Add one value to the one sum that all lanes hold."""
        total = Signal(SUM_BITS, init=IDLE)
        self._m.d.comb += total.eq(Mux(first, 0, self._read.data.sum[0]) + extended(value, SUM_BITS))
        self._m.d.comb += [self._result.sum[lane].eq(total) for lane in range(LANES)]


class ArrayCellPorts(wiring.Component):
    """`ArrayCell` behind plain ports: convert it with the name `npu_array_cell`.

    Members: the fields of `CellIn` and the drain inputs by their names (In), `o_acc` (384 bits, lane 0
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
