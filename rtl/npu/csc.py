"""Sequence controller: walks a convolution and feeds the array cell from CBUF (docs/hardware.md 3).

Two walks run side by side.  The weight walk reads the next tile into the cell's shadow registers, 64
bytes a cycle, while the pixel walk issues the 16 slots of the current one; both paths take the same
number of cycles to the cell, so a tile's first weights may leave in the cycle of the slot that swaps
the tile before it.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.activity import activity_layout, tell
from rtl.config import NpuConfig
from rtl.layouts import CellIn, DiagnosticCode, DiagnosticPort, StripeDone, TaskSize
from rtl.npu.array import CELL_LATENCY
from rtl.npu.cna_check import Check, Checker
from rtl.npu.cna_types import DEPTHWISE, one_of
from rtl.npu.csc_pixels import PixelWalk
from rtl.npu.csc_task import DECONV_SHIFTS, TaskConstants
from rtl.npu.csc_weights import WeightWalk
from rtl.regfile import config_signature
from rtl.regs import registers
from rtl.regs.options import OPTION_BITS, option_bit

ISSUE_LATENCY = 2
"""Cycles from the issue of a slot to its operands at the cell."""

STRIPE_LATENCY = ISSUE_LATENCY + CELL_LATENCY
"""Cycles from the issue of a stripe's last slot to its entry for CORE: from then on it may be drained."""

_HALF = 512
"""Bits of an entry, and of an operand but for depthwise 16-bit types, which take two."""

_ATOM = 128

_IDLE = 1
"""What wires show while they are not needed; not 0, so that Verilator keeps the condition around them."""

EVENTS = ("slot_valid", "slot_real", "stall_feature", "stall_weight", "stall_acc")


class SequenceController(wiring.Component):
    """Issue the operands of every pixel, tile after tile, 16 cycles each.

    Members
    -------
    cfg : In(config_signature("CNA"))
    start : In(1)         : pulse; `cfg` is stable from here to `done`.
    done : Out(1)         : pulse, CORE has taken the last stripe.
    rows_ready : In(12)   : feature rows that are in CBUF; from the cycle after `start` on.
    loaded : In(32)       : bytes of the weight stream that have come; from the cycle after `start` on.
    released : Out(32)    : bytes of it that are not needed any more; zero from the cycle after `start`.
    releases : Out(1)     : that will be more soon (rtl/clock_groups.py).
    f_en0, f_entry0, f_en1, f_entry1 : Out(1), Out(13) : feature read of one or two CBUF entries.
    f_data : In(1024)     : what was read, in the next cycle, entry 0 in the low half.
    w_en, w_entry0, w_entry1, w_column : Out(1), Out(13), Out(13), Out(2) : weight read of 64 bytes
        from 16-byte column `w_column` of entry 0 on, running on into entry 1.
    w_data : In(512)      : what was read, in the next cycle.
    cell : Out(CellIn)
    stripe : Out(stream of StripeDone) : a stripe whose accumulators are complete.
    size : Out(TaskSize)  : level while stripes are offered.
    options : In(8)       : readings of the hardware (rtl/regs/options.py).
    bank_free : In(2)     : level, accumulator bank b is not being drained.  Goes low in the cycle after
        CORE has taken a stripe of that bank.
    diag : Out(DiagnosticPort())
    stall_feature, stall_weight, stall_acc : Out(1) : no slot in this cycle, for want of input rows, of a
        weight tile, of an accumulator bank; at most one is high.
    slot_valid : Out(1)   : a slot is issued in this cycle, also an empty one of a partial stripe.
    slot_real : Out(1)    : a pixel is issued in this cycle.
    macs, array_macs : Out(12) : multiply-accumulates of the slot issued in this cycle: of real pixels,
        channels and kernels (of padded taps, too); of the whole array.
    activity : Out(layout) : for the counters (rtl/regs/counters.rdl).
    """

    def __init__(self, cfg: NpuConfig) -> None:
        self._cfg = cfg
        super().__init__(
            {
                "cfg": In(config_signature("CNA")),
                "start": In(1),
                "done": Out(1),
                "rows_ready": In(12),
                "loaded": In(32),
                "released": Out(32),
                "releases": Out(1),
                "f_en0": Out(1),
                "f_entry0": Out(13),
                "f_en1": Out(1),
                "f_entry1": Out(13),
                "f_data": In(1024),
                "w_en": Out(1),
                "w_entry0": Out(13),
                "w_entry1": Out(13),
                "w_column": Out(2),
                "w_data": In(512),
                "cell": Out(CellIn),
                "stripe": Out(stream.Signature(StripeDone)),
                "size": Out(TaskSize),
                "bank_free": In(2),
                "options": In(OPTION_BITS),
                "diag": Out(DiagnosticPort()),
                "stall_feature": Out(1),
                "stall_weight": Out(1),
                "stall_acc": Out(1),
                "slot_valid": Out(1),
                "slot_real": Out(1),
                "macs": Out(12),
                "array_macs": Out(12),
                "activity": Out(activity_layout("CSC")),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.check = check = Checker(self.cfg, self._checks())
        m.d.comb += check.start.eq(self.start)
        wiring.connect(m, check.diag, wiring.flipped(self.diag))

        m.submodules.constants = constants = TaskConstants(self._cfg)
        m.submodules.weights = weights = WeightWalk()
        m.submodules.pixels = pixels = PixelWalk(self._cfg)
        for part in (constants, weights, pixels):
            wiring.connect(m, wiring.flipped(self.cfg), part.cfg)
        for part in (weights, pixels):
            wiring.connect(m, constants.task, part.task)
            m.d.comb += part.go.eq(constants.go)
        m.d.comb += [
            constants.start.eq(self.start),
            weights.start.eq(self.start),
            weights.loaded.eq(self.loaded),
            weights.three_atoms.eq(self.options[option_bit("d1_three_atoms_int8")]),
            constants.first_stripe.eq(self.options[option_bit("j8_start_with_first_rows")]),
            self.released.eq(weights.released),
            self.releases.eq(weights.releases),
            self.size.groups.eq(constants.task.groups),
            self.size.stripes.eq(constants.task.stripes),
            weights.swap.eq(pixels.swap),
            pixels.tile_here.eq(weights.tile_here),
            pixels.rows_ready.eq(self.rows_ready),
            pixels.bank_free.eq(self.bank_free),
            pixels.taken.eq(self.stripe.valid & self.stripe.ready),
            pixels.taken_bank.eq(self.stripe.payload.bank),
        ]
        m.d.comb += [
            getattr(self, name).eq(getattr(pixels, name)) for name in (*EVENTS, "macs", "array_macs")
        ]
        active, preparing = Signal(), Signal()
        with m.If(self.start):
            m.d.sync += [active.eq(1), preparing.eq(1)]
        with m.Elif(self.done):
            m.d.sync += active.eq(0)
        with m.If(constants.go):
            m.d.sync += preparing.eq(0)
        tell(
            m,
            self.activity,
            ~active,
            BUSY=preparing | self.slot_valid,
            FEATURE=self.stall_feature,
            WEIGHT=self.stall_weight,
            ACC=self.stall_acc,
            CORE=active & ~pixels.running,
        )
        self._feed_cell(m, constants.task, constants.go, weights.chunk, pixels.issued)
        last_taken = self._hand_over(m, constants.go, pixels.issued)

        finished = Signal()
        with m.If(last_taken):
            m.d.sync += finished.eq(1)
        m.d.comb += self.done.eq(finished & ~check.busy)
        with m.If(self.done):
            m.d.sync += finished.eq(0)
        return m

    def _checks(self) -> list[Check]:
        cfg, C, R = self.cfg, DiagnosticCode, registers()["CNA"]
        kernel, con1, con2, con3 = cfg.WEIGHT_SIZE2, cfg.CONV_CON1, cfg.CONV_CON2, cfg.CONV_CON3
        no_kernel = (kernel.WEIGHT_WIDTH == 0) | (kernel.WEIGHT_HEIGHT == 0)
        no_kernels = (con1.CONV_MODE != DEPTHWISE) & (kernel.WEIGHT_KERNELS == 0)
        no_stride = (con3.CONV_X_STRIDE == 0) | (con3.CONV_Y_STRIDE == 0)
        bad_spread = ~(
            one_of(con3.DECONV_X_STRIDE, *DECONV_SHIFTS) & one_of(con3.DECONV_Y_STRIDE, *DECONV_SHIFTS)
        )
        return [
            Check(cfg.DATA_SIZE3.DATAOUT_ATOMICS == 0, C.EMPTY_SIZE, R["DATA_SIZE3"]),
            Check(cfg.DATA_SIZE2.DATAOUT_WIDTH == 0, C.EMPTY_SIZE, R["DATA_SIZE2"]),
            Check(no_kernel | no_kernels, C.EMPTY_SIZE, R["WEIGHT_SIZE2"]),
            Check(no_stride | (con1.DECONV & bad_spread), C.RESERVED_MODE, R["CONV_CON3"]),
            Check(con2.CSC_WO_EN | con2.CSC_DO_EN, C.RESERVED_MODE, R["CONV_CON2"]),
            Check(cfg.DATA_SIZE3.SURF_MODE[1], C.RESERVED_MODE, R["DATA_SIZE3"]),
        ]

    # ------------------------------------------------------------------ to the cell, to CORE

    def _feed_cell(self, m: Module, task: Value, go: Value, chunk: Value, issued: Value) -> None:
        """CBUF reads in the cycle after the issue, the cell's inputs in the one after that."""
        cell = self.cell
        m.d.comb += [cell.precision.eq(task.precision), cell.depthwise.eq(task.depthwise)]

        # 1. Addresses.
        w_tag, w_late = Signal(chunk.shape()), Signal(chunk.shape())
        m.d.sync += [w_tag.valid.eq(chunk.valid), w_late.valid.eq(w_tag.valid)]
        with m.If(chunk.valid):
            m.d.sync += [
                w_tag.index.eq(chunk.index),
                w_tag.stride.eq(chunk.stride),
                self.w_entry0.eq(task.ring_first + chunk.place[2:]),
                self.w_entry1.eq(task.ring_first + chunk.next[2:]),
                self.w_column.eq(chunk.place[:2]),
            ]
        m.d.comb += self.w_en.eq(w_tag.valid)
        with m.If(w_tag.valid):
            m.d.sync += [w_late.index.eq(w_tag.index), w_late.stride.eq(w_tag.stride)]
        tag = Signal(issued.shape(), reset_less=True)
        valid, late_valid = Signal(), Signal()
        m.d.sync += [valid.eq(issued.valid), late_valid.eq(valid)]
        with m.If(issued.valid):
            m.d.sync += tag.eq(issued)
        m.d.comb += [
            self.f_en0.eq(valid & tag.inside),
            self.f_entry0.eq(tag.entry),
            self.f_en1.eq(valid & tag.two),
            self.f_entry1.eq(tag.entry2),
        ]

        # 2. Masks change only with a tile; depthwise of 16-bit types has more than 64 bytes of them.
        late = Signal(issued.shape(), reset_less=True)
        mask, pads = Signal(_HALF, reset_less=True), Signal(_HALF, reset_less=True)
        mask2, pads2 = Signal(_HALF, reset_less=True), Signal(_HALF, reset_less=True)
        pattern = self._pad_pattern(m, task, go)
        with m.If(valid):
            m.d.sync += late.eq(tag)
            with m.If(tag.swap):
                live, live2 = self._ones(m, task, "live", tag.live)
                stored, stored2 = self._ones(m, task, "stored", tag.stored)
                m.d.sync += [mask.eq(stored), pads.eq(live & pattern)]
                with m.If(task.two_blocks):
                    m.d.sync += [mask2.eq(stored2), pads2.eq(live2 & pattern)]

        # 3. Operands: the atoms of this pixel to the front, then masked; or the pad value, or zeros.
        entry, entry2 = self.f_data[:_HALF], self.f_data[_HALF:]
        operand, operand2 = Signal(_HALF, init=_IDLE), Signal(_HALF, init=_IDLE)
        with m.If(late_valid):
            m.d.comb += operand.eq(0)
            with m.If(late.inside & task.argb):
                # A pixel of two words begins at an even one, and of one-word pixels only 4 bytes count.
                one, two = entry.word_select(late.word, 32), entry.word_select(late.word[1:], 64)
                m.d.comb += operand.eq(Mux(task.pixel_shift == 0, one, two) & mask[:64])
            with m.Elif(late.inside):
                self._from_atom(m, operand, entry, late.word[2:], mask)
            with m.Elif(late.pad):
                m.d.comb += operand.eq(pads)
        with m.If(late_valid & task.two_blocks):
            m.d.comb += operand2.eq(0)
            with m.If(late.two):
                self._from_atom(m, operand2, entry2, late.word2[2:], mask2)
            with m.Elif(late.pad):
                m.d.comb += operand2.eq(pads2)
        m.d.comb += [
            cell.w_valid.eq(w_late.valid),
            cell.w_index.eq(w_late.index),
            cell.w_stride.eq(w_late.stride),
            cell.w_data.eq(self.w_data),
            cell.f_valid.eq(late_valid),
            cell.f_swap.eq(late_valid & late.swap),
            cell.f_first.eq(late.first),
            cell.f_bank.eq(late.bank),
            cell.f_slot.eq(late.slot),
            cell.f_data.eq(Cat(operand, operand2)),
        ]

    def _from_atom(self, m: Module, operand: Value, entry: Value, first: Value, mask: Value) -> None:
        """Give an operand the atoms of an entry from `first` on, under a mask."""
        atom = [entry[_ATOM * n :][:_ATOM] for n in range(4)]
        with m.Switch(first):
            for column in range(4):
                with m.Case(column):
                    m.d.comb += operand.eq(Cat(atom[column], atom[column | 1], atom[2], atom[3]) & mask)

    def _ones(self, m: Module, task: Value, name: str, channels: Value) -> tuple[Value, Value]:
        """Masks of so many channels in the first and second 64 bytes of an operand."""
        bits = Signal(12, name=f"{name}_bits", init=_IDLE)
        absent = [Signal(10, name=f"{name}_absent{n}", init=_IDLE) for n in range(2)]
        ones = Const((1 << _HALF) - 1, _HALF)
        m.d.comb += [
            bits.eq(channels << task.element),
            absent[0].eq(Mux(bits > _HALF, 0, _HALF - bits)),
            absent[1].eq(Mux(bits > _HALF, 2 * _HALF - bits, _HALF)),
        ]
        return ones >> absent[0], ones >> absent[1]

    def _pad_pattern(self, m: Module, task: Value, go: Value) -> Signal:
        """64 bytes of pad values by type (docs/hardware.md 3.6), set when the task begins."""
        pad = self.cfg.PAD_CON1.PAD_VALUE
        pattern = Signal(_HALF, reset_less=True)
        with m.If(go):
            with m.Switch(task.element):
                with m.Case(2):
                    m.d.sync += pattern.eq(pad[:4].replicate(_HALF // 4))
                with m.Case(4):
                    m.d.sync += pattern.eq(pad[:16].replicate(_HALF // 16))
                with m.Case(5):
                    m.d.sync += pattern.eq(pad.replicate(_HALF // 32))
                with m.Default():
                    # Depthwise: byte 1 for the odd channels among the first 32 (HARDWARE 2.2).
                    odd = Mux(task.depthwise, pad[8:16], pad[:8])
                    m.d.sync += pattern.eq(Cat(Cat(pad[:8], odd).replicate(16), pad[:8].replicate(32)))
        return pattern

    def _hand_over(self, m: Module, go: Value, issued: Value) -> Value:
        """Queue finished stripes for CORE; returns a pulse when the task's last one is taken."""
        entries = [Signal(StripeDone, name=f"stripe_{bank}", reset_less=True) for bank in range(2)]
        ready = Signal(2)
        head = Signal()
        # A stripe's entry waits until its last operand has gone through the cell.
        delay = Signal(STRIPE_LATENCY - 1)
        delay_bank = Signal(STRIPE_LATENCY - 1, reset_less=True)
        m.d.sync += [delay.eq(Cat(issued.ends, delay)), delay_bank.eq(Cat(issued.bank, delay_bank))]
        for bank in range(2):
            with m.If(issued.ends & (issued.bank == bank)):
                m.d.sync += entries[bank].eq(issued.done)
        with m.If(go):
            m.d.sync += head.eq(0)
        taken = self.stripe.valid & self.stripe.ready
        m.d.comb += [
            self.stripe.valid.eq(ready.bit_select(head, 1)),
            self.stripe.payload.eq(Mux(head, entries[1], entries[0])),
        ]
        with m.If(taken):
            m.d.sync += [
                head.eq(~head),
                ready.bit_select(head, 1).eq(0),
            ]
        with m.If(delay[-1]):
            m.d.sync += ready.bit_select(delay_bank[-1], 1).eq(1)
        return taken & self.stripe.payload.last
