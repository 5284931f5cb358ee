"""The array cell: weight tiles, multipliers, window sums and accumulators of one core.

The cell is the only block that a compiled engine may replace by hand-written code. Its ports are therefore
flat and its timing is fixed: every input is sampled at the clock edge, every output comes from a
register. `ArrayCell` is the RTL, `ArrayCellPorts` the same as a module `npu_array_cell` with
plain ports; `ArrayCell(external=True)` is an instance of that module instead of the RTL.
"""

from amaranth import Cat, ClockSignal, Const, Instance, Module, Mux, ResetSignal, Signal, signed
from amaranth.hdl import Value
from amaranth.lib import data, enum, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from rkcosim.rtl.layouts import ACC_BITS, IDLE, LANES, CellIn
from rkcosim.rtl.npu.array_float import KERNELS as FLOAT_KERNELS
from rkcosim.rtl.npu.array_float import FloatKernel, FloatOctet, OperandRegisters
from rkcosim.rtl.npu.array_integer import PackedDot, dot, element, extended, window_sum
from rkcosim.rtl.npu.cna_types import FLOATS, Precision, one_of

CELL_MODULE = "npu_array_cell"
"""Verilog name of the module of the cell, RTL or compiled."""

CELL_LATENCY = 4
"""Cycles from `f_valid` to the first cycle in which that slot may be drained (`d_valid`).

Integer results are available one cycle earlier.
"""

DEPTHWISE_LANES = 64
"""Channels of a depthwise group [HW 6.1], and kernels of an int4 group."""

SUM_BITS = 32
STRIPE_SLOTS = 16
BANKS = 2
PLACE_BITS = 5
"""Bits of a slot number (low) together with a bank number."""

CHUNKS = 16
"""Chunks of 64 bytes in a weight tile of 1 KiB."""

_CHUNK_WORDS = 16
"""32-bit words of a chunk."""

_TILE_WORDS = CHUNKS * _CHUNK_WORDS
_OCTETS = DEPTHWISE_LANES // LANES
_DIRECT_OCTETS = FLOAT_KERNELS // LANES
_DRAIN = {"d_valid": 1, "d_bank": 1, "d_slot": 4, "d_octet": 3}


class Path(enum.IntEnum, shape=3):
    """Kind of operation for a pixel of an integer type, from type and mode; WIDE is depthwise."""

    INT8 = 0
    INT8_WIDE = 1
    INT16 = 2
    INT16_WIDE = 3
    INT4 = 4


KERNELS = {Path.INT8: 32, Path.INT16: 16, Path.INT4: 64, Path.INT8_WIDE: 64, Path.INT16_WIDE: 64}
"""Number of accumulators that a path writes."""


class Tag(data.Struct):
    """Place of a pixel: its slot (low) and bank, and whether it is the first one added there."""

    place: PLACE_BITS
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

    Direct: `acc[k] += sum(f[c] * w[k][c])`, `sum += sum(f[c])`. Depthwise: `acc[c] += f[c] * w[c]`,
    `sum[c] += f[c]`. Octets beyond the kernels of a type are not written. Reserved precisions count as int8,
    depthwise int4 and tf32 as direct.

    Parameters
    ----------
    external : bool
        Instantiate the module `npu_array_cell` (see `ArrayCellPorts`) instead of the RTL.
    floats : bool
        Whether the RTL has the path of floats.  Without it, pixels of float types change no accumulator.

    Members
    -------
    i : In(CellIn) : weights and features of this cycle.  Chunk `w_index` of the shadow tile is written at
        the clock edge: rows of `16 << w_stride` bytes, each at the place of its kernel and followed by zeros
        (depthwise: 64 consecutive bytes).  With `f_swap`, the tile that the shadow held before that edge
        becomes active for this and the following pixels.  The same slot is used again after 16 cycles at the
        earliest.  `precision` and `depthwise` change only while the pipeline is empty (`CELL_LATENCY`); then
        the next pixel has `f_swap`, for a tile written after the change, and the next pixel of each slot
        has `f_first`.  The same holds after a reset.
    d_valid, d_bank, d_slot, d_octet : In : read channels `8*d_octet..` of a slot; allowed from
        `CELL_LATENCY` cycles after the slot's last `f_valid`.
    o_acc : Out(ArrayLayout(signed(48), 8)) : accumulators, from the cycle after `d_valid` until the
        cycle after the next `d_valid`; for floats the bits of a binary32.
    o_sum : Out(ArrayLayout(32, 8)) : window sums of the same lanes and cycles as `o_acc`; direct
        mode has one sum, which all lanes show; floats have no window sums and show 0.
    """

    i: In(CellIn)
    d_valid: In(1)
    d_bank: In(1)
    d_slot: In(4)
    d_octet: In(3)
    o_acc: Out(data.ArrayLayout(signed(ACC_BITS), LANES))
    o_sum: Out(data.ArrayLayout(SUM_BITS, LANES))

    def __init__(self, *, external: bool = False, floats: bool = True) -> None:
        self._external, self._floats = external, floats
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if self._external:
            m.submodules.cell = self._instance()
        else:
            self._rtl(m)
        return m

    def _instance(self) -> Instance:
        ports: dict[str, Value] = {"i_clk": ClockSignal(), "i_rst": ResetSignal()}
        ports |= {f"i_{name}": getattr(self.i, name) for name in CellIn.as_shape().members}
        ports |= {f"i_{name}": getattr(self, name) for name in _DRAIN}
        ports |= {"o_o_acc": self.o_acc.as_value(), "o_o_sum": self.o_sum.as_value()}
        return Instance(CELL_MODULE, **ports)

    def _rtl(self, m: Module) -> None:
        i = self.i
        shadow = self._weights(m)

        # A: register the operands and select the tile that they belong to.
        path = Signal(Path)
        a_valid, a_tag = Signal(), Signal(Tag, reset_less=True)
        a_data = [Signal(32, name=f"a_data_{n}", reset_less=True) for n in range(DEPTHWISE_LANES // 2)]
        is_float = one_of(i.precision, *FLOATS)
        m.d.sync += a_valid.eq(i.f_valid & ~is_float)
        with m.If(i.f_valid):
            m.d.comb += path.eq(self._path())
            m.d.sync += [
                a_tag.place.eq(Cat(i.f_slot, i.f_bank)),
                a_tag.first.eq(i.f_first),
                a_tag.path.eq(path),
            ]
            m.d.sync += [word.eq(i.f_data[32 * n : 32 * n + 32]) for n, word in enumerate(a_data)]
        active = [Signal(32, name=f"active_{n}", reset_less=True) for n in range(_TILE_WORDS)]
        m.submodules.packed = packed = PackedDot()
        take_tile = Signal()
        m.d.comb += [
            take_tile.eq(i.f_valid & i.f_swap),
            packed.take.eq(take_tile & (i.precision == Precision.INT4)),
            packed.on.eq(a_valid & (a_tag.path == Path.INT4)),
            *(to.eq(word) for to, word in zip(packed.shadow, shadow, strict=True)),
            *(to.eq(word) for to, word in zip(packed.words, a_data, strict=False)),
        ]
        with m.If(take_tile & (i.precision != Precision.INT4)):
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
                    direct(4, list(packed.o))

        # C: accumulate.
        m.submodules.floats = floats = FloatPath() if self._floats else NoFloatPath()
        m.d.comb += [
            floats.cell.eq(i),
            floats.valid.eq(i.f_valid & is_float),
            floats.tag.eq(a_tag),
            *(to.eq(word) for to, word in zip(floats.features, a_data, strict=True)),
            *(to.eq(word) for to, word in zip(floats.weights, active, strict=False)),
        ]
        octet_out = Signal(3, reset_less=True)
        with m.If(self.d_valid):
            m.d.sync += octet_out.eq(self.d_octet)
        each = Signal()
        m.d.comb += each.eq(one_of(b_tag.path, Path.INT8_WIDE, Path.INT16_WIDE))
        for octet in range(_OCTETS):
            lanes = slice(LANES * octet, LANES * octet + LANES)
            row = Accumulators(len(b_acc[LANES * octet]), floats=self._floats)
            m.submodules[f"acc_{octet}"] = row
            m.d.comb += [
                row.add.eq(b_valid & _uses(b_tag.path, octet)),
                row.place.eq(b_tag.place),
                row.first.eq(b_tag.first),
                row.each.eq(each),
                row.window.eq(b_window),
                *(to.eq(value) for to, value in zip(row.values, b_acc[lanes], strict=True)),
                *(to.eq(value) for to, value in zip(row.sums, b_sum[lanes], strict=True)),
                row.drain.eq(self.d_valid & (self.d_octet == octet)),
                row.drain_place.eq(Cat(self.d_slot, self.d_bank)),
                *(to.eq(old) for to, old in zip(floats.old[lanes], row.old, strict=True)),
            ]
            kind = 0 if octet < _DIRECT_OCTETS else 1
            with m.If(floats.fetch[kind]):
                m.d.comb += [row.fetch.eq(1), row.fetch_place.eq(floats.fetch_place)]
            with m.Elif(a_valid & _uses(a_tag.path, octet)):
                m.d.comb += [row.fetch.eq(1), row.fetch_place.eq(a_tag.place)]
            with m.If(floats.put[kind]):
                m.d.comb += [row.put.eq(1), row.place.eq(floats.put_place)]
            m.d.comb += [to.eq(value) for to, value in zip(row.floats, floats.o[lanes], strict=True)]
            with m.If(octet_out == octet):
                m.d.comb += [self.o_acc.as_value().eq(row.o_acc), self.o_sum.as_value().eq(row.o_sum)]

    def _path(self) -> Value:
        """The `Path` for this cycle's precision and mode."""
        precision, wide = self.i.precision, self.i.depthwise
        other = Mux(wide, Path.INT8_WIDE, Path.INT8)
        path = Mux(precision == Precision.INT16, Mux(wide, Path.INT16_WIDE, Path.INT16), other)
        return Mux(precision == Precision.INT4, Path.INT4, path)

    def _weights(self, m: Module) -> list[Signal]:
        """The shadow tile in words of four bytes, row by row.

        It is many narrow words, because extracting bytes from wide words is slow in the compiled engine.
        """
        i = self.i
        shadow = [Signal(32, name=f"shadow_{n}", reset_less=True) for n in range(_TILE_WORDS)]
        words = [Signal(32, name=f"w_word_{n}") for n in range(_CHUNK_WORDS)]
        # (A gated wire, not only a name: CXXRTL would extract the word from all inputs again at each use.)
        m.d.comb += [word.eq(Mux(i.w_valid, i.w_data[32 * n :][:32], 0)) for n, word in enumerate(words)]
        # Full rows are stored directly.  Rows of half or a quarter of the full length are spread over the
        # places of two or four chunks; a `piece` of a row is 16 or 32 bytes long.
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


class FloatPath(wiring.Component):
    """Float pixels: stages A, B, C, and the accumulation one cycle after that of integers.

    Members
    -------
    cell : In(CellIn)       : as `ArrayCell.i`.
    valid : In(1)           : a float pixel enters.
    tag : In(Tag)           : its place, one cycle later.
    features : In(32) x 32  : its operands, one cycle later.
    weights : In(32) x 32   : the active depthwise weights, one cycle later.
    fetch, put : Out(2)     : `old` is needed in the next cycle; `o` is valid.  Bit 0 is for the octets that
        all float types use, bit 1 for those of depthwise types.
    fetch_place, put_place : Out(5) : the accumulators to fetch and to write, as `Tag.place`.
    old : In(32) x 64       : the previous accumulators.
    o : Out(32) x 64        : the new accumulators.
    """

    cell: In(CellIn)
    valid: In(1)
    tag: In(Tag)
    features: In(32).array(DEPTHWISE_LANES // 2)
    weights: In(32).array(DEPTHWISE_LANES // 2)
    fetch: Out(2)
    put: Out(2)
    fetch_place: Out(PLACE_BITS)
    put_place: Out(PLACE_BITS)
    old: In(32).array(DEPTHWISE_LANES)
    o: Out(32).array(DEPTHWISE_LANES)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        i, valid = self.cell, self.valid
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
        b_tag, c_tag = (Signal(Tag, name=f"{stage}_tag", reset_less=True) for stage in "bc")
        with m.If(a["float"]):
            m.d.sync += b_tag.eq(self.tag)
        with m.If(b["float"]):
            m.d.sync += c_tag.eq(b_tag)
        m.d.comb += [
            self.fetch.eq(Cat(b["float"], b["wide"])),
            self.fetch_place.eq(b_tag.place),
            self.put.eq(Cat(c["float"], c["wide"])),
            self.put_place.eq(c_tag.place),
        ]

        # Weights are split into sign, exponent and mantissa as they arrive, a cycle later than the bytes.
        m.submodules.operands = operands = OperandRegisters()
        m.submodules.chunk = chunk = OperandRegisters()
        load, loads = Signal(), Signal()
        index, stride = Signal(4), Signal(2)
        m.d.comb += [
            operands.take.eq(a["direct"]),
            operands.precision.eq(precision),
            *(to.eq(word) for to, word in zip(operands.words, self.features, strict=False)),
            loads.eq(i.w_valid & one_of(i.precision, *FLOATS) & ~i.depthwise),
            chunk.take.eq(loads),
            chunk.precision.eq(i.precision),
            *(to.eq(i.w_data[32 * n :][:32]) for n, to in enumerate(chunk.words)),
        ]
        m.d.sync += load.eq(loads)
        with m.If(loads):
            m.d.sync += [index.eq(i.w_index), stride.eq(i.w_stride)]
        kernels = [FloatKernel(k) for k in range(FLOAT_KERNELS)]
        for k, kernel in enumerate(kernels):
            m.submodules[f"float_kernel_{k}"] = kernel
            wiring.connect(m, chunk.o, kernel.weights)
            wiring.connect(m, operands.o, kernel.features)
            m.d.comb += [
                kernel.load.eq(load),
                kernel.index.eq(index),
                kernel.stride.eq(stride),
                kernel.take.eq(take),
                kernel.exact.eq(b["exact"]),
                kernel.window.eq(b["window"]),
                kernel.tf32.eq(precision == Precision.TF32),
            ]
        for number in range(_OCTETS):
            direct = number < _DIRECT_OCTETS
            m.submodules[f"float_octet_{number}"] = octet = FloatOctet(direct=direct)
            words = slice(LANES // 2 * number, LANES // 2 * (number + 1))
            lanes = slice(LANES * number, LANES * (number + 1))
            pairs = [
                *zip(octet.features, self.features[words], strict=True),
                *zip(octet.weights, self.weights[words], strict=True),
                *zip(octet.old, self.old[lanes], strict=True),
                *zip(self.o[lanes], octet.o, strict=True),
            ]
            if direct:
                pairs += zip(octet.sums, (kernel.mantissa for kernel in kernels[lanes]), strict=True)
                pairs += zip(octet.marks, (kernel.marks for kernel in kernels[lanes]), strict=True)
            m.d.comb += [
                octet.wide.eq(a["wide"]),
                octet.bf16.eq(precision == Precision.BF16),
                octet.move.eq(b["wide"]),
                octet.add.eq(c["float" if direct else "wide"]),
                octet.add_products.eq(c["wide"]),
                octet.first.eq(c_tag.first),
                *(to.eq(value) for to, value in pairs),
            ]
        return m


class NoFloatPath(FloatPath):
    """Takes the place of `FloatPath` in a cell without floats: all outputs are 0."""

    def elaborate(self, platform: object) -> Module:
        return Module()


class Accumulators(wiring.Component):
    """Accumulators and window sums of eight lanes: a memory with a row for each slot of each bank.

    Parameters
    ----------
    bits : int
        Width of `values`.
    floats : bool
        Whether `put` has an effect.

    Members
    -------
    fetch, fetch_place : In(1), In(5) : read a row, to which the next cycle may add.
    old : Out(32) x 8       : the lower 32 bits of the accumulators fetched last.
    place : In(5)           : the row that `add` or `put` writes.
    add : In(1)             : add `values` to the accumulators; add to each sum its element of `sums` if
        `each` is set, otherwise `window`.
    first : In(1)           : with `add`, use 0 instead of the fetched row.
    each : In(1)
    values : In(signed(bits)) x 8
    sums : In(signed(16)) x 8
    window : In(signed(21))
    put : In(1)             : replace the accumulators by `floats` (binary32), which have no window sums.
    floats : In(32) x 8
    drain, drain_place : In(1), In(5) : read a row for the outputs.
    o_acc, o_sum : Out(384), Out(256) : the row drained last, from the next cycle on.
    """

    def __init__(self, bits: int, *, floats: bool = True) -> None:
        self._floats = floats
        super().__init__(
            {
                "fetch": In(1),
                "fetch_place": In(PLACE_BITS),
                "old": Out(32).array(LANES),
                "place": In(PLACE_BITS),
                "add": In(1),
                "first": In(1),
                "each": In(1),
                "values": In(signed(bits)).array(LANES),
                "sums": In(signed(16)).array(LANES),
                "window": In(signed(21)),
                "put": In(1),
                "floats": In(32).array(LANES),
                "drain": In(1),
                "drain_place": In(PLACE_BITS),
                "o_acc": Out(ACC_BITS * LANES),
                "o_sum": Out(SUM_BITS * LANES),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Words of 32 bits here as well: `low` and `high` together are the 48 bits.
        shape = data.StructLayout(
            {
                "low": data.ArrayLayout(32, LANES),
                "high": data.ArrayLayout(ACC_BITS - 32, LANES),
                "sum": data.ArrayLayout(SUM_BITS, LANES),
            }
        )
        m.submodules.rows = rows = Memory(shape=shape, depth=BANKS * STRIPE_SLOTS, init=[])
        read, drain, write = rows.read_port(), rows.read_port(), rows.write_port()
        old, result, shown = read.data, Signal(shape, init={"low": [IDLE] * LANES}), drain.data
        total = Signal(SUM_BITS, init=IDLE)
        m.d.comb += [
            read.en.eq(self.fetch),
            read.addr.eq(self.fetch_place),
            drain.en.eq(self.drain),
            drain.addr.eq(self.drain_place),
            write.en.eq(self.add | self.put if self._floats else self.add),
            write.addr.eq(self.place),
            write.data.eq(result),
            self.o_acc.eq(Cat(Cat(shown.low[lane], shown.high[lane]) for lane in range(LANES))),
            self.o_sum.eq(shown.sum),
        ]
        for lane in range(LANES):
            place = Cat(result.low[lane], result.high[lane])
            m.d.comb += self.old[lane].eq(old.low[lane])
            with m.If(self.put if self._floats else Const(0)):
                m.d.comb += [place.eq(self.floats[lane]), result.sum[lane].eq(0)]
            with m.If(self.add):
                base = Mux(self.first, 0, Cat(old.low[lane], old.high[lane]))
                m.d.comb += place.eq((base + extended(self.values[lane], ACC_BITS))[:ACC_BITS])
                with m.If(self.each):
                    base = Mux(self.first, 0, old.sum[lane])
                    m.d.comb += result.sum[lane].eq(base + extended(self.sums[lane], SUM_BITS))
                with m.Else():
                    m.d.comb += result.sum[lane].eq(total)
        with m.If(self.add & ~self.each):
            m.d.comb += total.eq(Mux(self.first, 0, old.sum[0]) + extended(self.window, SUM_BITS))
        return m


class ArrayCellPorts(wiring.Component):
    """`ArrayCell` with plain ports, to be converted to Verilog with the name `npu_array_cell`.

    Parameters
    ----------
    floats : bool
        As for `ArrayCell`.

    Members
    -------
    precision, depthwise : In : type and mode of the operands, as in `CellIn`.
    w_valid, w_index, w_stride, w_data : In : a chunk of weights for the shadow tile, as in `CellIn`.
    f_valid, f_data : In : operands of one output pixel, as in `CellIn`.
    f_swap, f_first : In : the shadow tile becomes active; the accumulators of the slot are cleared.
    f_bank, f_slot : In : accumulator bank and slot of the pixel, as in `CellIn`.
    d_valid, d_bank, d_slot, d_octet : In : read channels `8*d_octet..` of a slot, as in `ArrayCell`.
    o_acc : Out(384) : accumulators of the octet that was read last, lane 0 lowest.
    o_sum : Out(256) : window sums of the same lanes.
    """

    def __init__(self, *, floats: bool = True) -> None:
        self._floats = floats
        fields = {name: In(field.shape) for name, field in CellIn.as_shape()}
        super().__init__(
            fields
            | {name: In(width) for name, width in _DRAIN.items()}
            | {"o_acc": Out(ACC_BITS * LANES), "o_sum": Out(SUM_BITS * LANES)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.rtl = cell = ArrayCell(floats=self._floats)
        m.d.comb += [getattr(cell.i, name).eq(getattr(self, name)) for name in CellIn.as_shape().members]
        m.d.comb += [getattr(cell, name).eq(getattr(self, name)) for name in _DRAIN]
        m.d.comb += [self.o_acc.eq(cell.o_acc), self.o_sum.eq(cell.o_sum)]
        return m
