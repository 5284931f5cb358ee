"""Sequence controller: walks through a convolution and feeds the array cell from CBUF ([HW 5], [HW 6]).

Two walks run in parallel. The weight walk reads the next tile into the shadow registers of the cell, 64
bytes per cycle, while the pixel walk issues the 16 slots of the current tile. Both paths to the cell have the
same latency, so the first weights of a tile may be issued in the cycle of the slot that swaps in
the previous tile.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.counters import activity_layout, drive_activity
from rkcosim.rtl.layouts import (
    IDLE,
    CbufReads,
    CorePort,
    DiagnosticCode,
    DiagnosticPort,
    SlotStatus,
    StripeDone,
)
from rkcosim.rtl.npu.array import CELL_LATENCY
from rkcosim.rtl.npu.checks import SPACING, Check, add_checker
from rkcosim.rtl.npu.cna_types import DEPTHWISE, one_of
from rkcosim.rtl.npu.csc_pixels import PixelWalk
from rkcosim.rtl.npu.csc_task import DECONV_SHIFTS, GO_LATENCY, TaskConstants
from rkcosim.rtl.npu.csc_weights import WeightWalk
from rkcosim.rtl.regfile import config_signature
from rkcosim.spec.config import NpuConfig
from rkcosim.spec.regs.options import OPTION_BITS, option_bit

ISSUE_LATENCY = 2
"""Cycles from the issue of a slot until its operands are at the cell."""

STRIPE_LATENCY = ISSUE_LATENCY + CELL_LATENCY
"""Cycles from the issue of a stripe's last slot until the stripe is offered to CORE and may be drained."""

_HALF = 512
"""Bits of an entry, and of an operand; operands of depthwise 16-bit types have twice as many."""

_ATOM = 128


class SequenceController(wiring.Component):
    """Issue the operands of every pixel, tile after tile, 16 cycles each.

    Members
    -------
    cfg : In(config_signature("CNA"))
    start : In(1)         : pulse; `cfg` is stable from here to `done`.
    done : Out(1)         : pulse, CORE has accepted the last stripe.
    rows_ready : In(12)   : number of feature rows in CBUF; from the cycle after `start` on.
    loaded : In(32)       : bytes of the weight stream in CBUF; from the cycle after `start` on.
    released : Out(32)    : bytes of it that are not needed any more; zero from the cycle after `start`.
    reads : Out(CbufReads())
    core : Out(CorePort())
    options : In(8)       : interpretations of the hardware (spec/regs/options.py).
    diag : Out(DiagnosticPort())
    status : Out(SlotStatus())
    activity : Out(layout) : for the counters (spec/regs/counters.rdl).
    """

    cfg: In(config_signature("CNA"))
    start: In(1)
    done: Out(1)
    rows_ready: In(12)
    loaded: In(32)
    released: Out(32)
    reads: Out(CbufReads())
    core: Out(CorePort())
    options: In(OPTION_BITS)
    diag: Out(DiagnosticPort())
    status: Out(SlotStatus())
    activity: Out(activity_layout("CSC"))

    def __init__(self, cfg: NpuConfig) -> None:
        self._cfg = cfg
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        check = add_checker(m, "CNA", self.cfg, self.start, self.diag, self._checks(), spacing=SPACING)

        m.submodules.constants = constants = TaskConstants(self._cfg)
        m.submodules.weights = weights = WeightWalk()
        m.submodules.pixels = pixels = PixelWalk()
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
            constants.loaded_first.eq(self.options[option_bit("i5_rows_and_weights_first")]),
            self.released.eq(weights.released),
            self.core.size.groups.eq(constants.task.groups),
            self.core.size.stripes.eq(constants.task.stripes),
            weights.swap.eq(pixels.swap),
            pixels.tile_here.eq(weights.tile_here),
            pixels.rows_ready.eq(self.rows_ready),
            pixels.loaded.eq(self.loaded),
            pixels.bank_free.eq(self.core.bank_free),
            pixels.taken.eq(self.core.stripe.valid & self.core.stripe.ready),
            pixels.taken_bank.eq(self.core.stripe.payload.bank),
        ]
        wiring.connect(m, pixels.status, wiring.flipped(self.status))
        active, preparing = Signal(), Signal()
        with m.If(self.start):
            m.d.sync += [active.eq(1), preparing.eq(1)]
        with m.Elif(self.done):
            m.d.sync += active.eq(0)
        with m.If(constants.go):
            m.d.sync += preparing.eq(0)
        drive_activity(
            m,
            platform,
            "SequenceController",
            self.activity,
            ~active,
            BUSY=preparing | self.status.slot_valid,
            FEATURE=self.status.stall_feature,
            WEIGHT=self.status.stall_weight,
            ACC=self.status.stall_acc,
            CORE=active & ~pixels.running,
        )
        self._feed_cell(m, constants.task, constants.go, weights.chunk, pixels.issued)
        last_taken = self._hand_over(m, platform, constants.go, pixels.issued)

        go = constants.go
        assertions.behind(m, platform, go, self.start, GO_LATENCY, "SequenceController.constants.go")
        finished = Signal()
        with m.If(last_taken):
            m.d.sync += finished.eq(1)
        m.d.comb += self.done.eq(finished & ~check.busy)
        with m.If(self.done):
            m.d.sync += finished.eq(0)
        assertions.ports(m, platform, self)
        return m

    def _checks(self) -> list[Check]:
        cfg, C = self.cfg, DiagnosticCode
        kernel, con1, con2, con3 = cfg.WEIGHT_SIZE2, cfg.CONV_CON1, cfg.CONV_CON2, cfg.CONV_CON3
        no_kernel = (kernel.WEIGHT_WIDTH == 0) | (kernel.WEIGHT_HEIGHT == 0)
        no_kernels = (con1.CONV_MODE != DEPTHWISE) & (kernel.WEIGHT_KERNELS == 0)
        bad_spread = ~(
            one_of(con3.DECONV_X_STRIDE, *DECONV_SHIFTS) & one_of(con3.DECONV_Y_STRIDE, *DECONV_SHIFTS)
        )
        return [
            Check("DATA_SIZE3", cfg.DATA_SIZE3.DATAOUT_ATOMICS == 0, C.EMPTY_SIZE),
            Check("DATA_SIZE2", cfg.DATA_SIZE2.DATAOUT_WIDTH == 0, C.EMPTY_SIZE),
            Check("WEIGHT_SIZE2", no_kernel | no_kernels, C.EMPTY_SIZE),
            Check("CONV_CON3", con1.DECONV & bad_spread),
            Check("CONV_CON2", con2.CSC_WO_EN | con2.CSC_DO_EN),
            Check("DATA_SIZE3", cfg.DATA_SIZE3.SURF_MODE[1]),
        ]

    # ------------------------------------------------------------------ outputs to the cell and to CORE

    def _feed_cell(self, m: Module, task: Value, go: Value, chunk: Value, issued: Value) -> None:
        """Read CBUF in the cycle after the issue, and drive the cell's inputs in the cycle after that."""
        cell, weights = self.core.cell, self.reads.weights
        first, second = self.reads.feature0, self.reads.feature1
        m.d.comb += [cell.precision.eq(task.precision), cell.depthwise.eq(task.depthwise)]

        # 1. Addresses.
        w_tag, w_late = Signal(chunk.shape()), Signal(chunk.shape())
        m.d.sync += [w_tag.valid.eq(chunk.valid), w_late.valid.eq(w_tag.valid)]
        with m.If(chunk.valid):
            m.d.sync += [
                w_tag.index.eq(chunk.index),
                w_tag.stride.eq(chunk.stride),
                weights.entry0.eq(task.ring_first + chunk.place[2:]),
                weights.entry1.eq(task.ring_first + chunk.next[2:]),
                weights.column.eq(chunk.place[:2]),
            ]
        m.d.comb += weights.en.eq(w_tag.valid)
        with m.If(w_tag.valid):
            m.d.sync += [w_late.index.eq(w_tag.index), w_late.stride.eq(w_tag.stride)]
        tag = Signal(issued.shape(), reset_less=True)
        valid, late_valid = Signal(), Signal()
        m.d.sync += [valid.eq(issued.valid), late_valid.eq(valid)]
        with m.If(issued.valid):
            m.d.sync += tag.eq(issued)
        m.d.comb += [
            first.en.eq(valid & tag.inside),
            first.entry.eq(tag.entry),
            second.en.eq(valid & tag.two),
            second.entry.eq(tag.entry2),
        ]

        # 2. Masks change only with a tile; depthwise 16-bit operands have more than 64 bytes.
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

        # 3. Operands: shift the atoms of this pixel to the front, then mask; or the pad value, or zeros.
        entry, entry2 = first.data, second.data
        operand, operand2 = Signal(_HALF, init=IDLE), Signal(_HALF, init=IDLE)
        with m.If(late_valid):
            m.d.comb += operand.eq(0)
            with m.If(late.inside & task.argb):
                # A pixel of two words begins at an even word; of a pixel of one word only 4 bytes are used.
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
            cell.w_data.eq(weights.data),
            cell.f_valid.eq(late_valid),
            cell.f_swap.eq(late_valid & late.swap),
            cell.f_first.eq(late.first),
            cell.f_bank.eq(late.bank),
            cell.f_slot.eq(late.slot),
            cell.f_data.eq(Cat(operand, operand2)),
        ]

    def _from_atom(self, m: Module, operand: Value, entry: Value, first: Value, mask: Value) -> None:
        """Drive an operand with the atoms of an entry from `first` on, masked."""
        atom = [entry[_ATOM * n :][:_ATOM] for n in range(4)]
        with m.Switch(first):
            for column in range(4):
                with m.Case(column):
                    m.d.comb += operand.eq(Cat(atom[column], atom[column | 1], atom[2], atom[3]) & mask)

    def _ones(self, m: Module, task: Value, name: str, channels: Value) -> tuple[Value, Value]:
        """Masks of the first `channels` channels in the first and second 64 bytes of an operand."""
        bits = Signal(12, name=f"{name}_bits", init=IDLE)
        absent = [Signal(10, name=f"{name}_absent{n}", init=IDLE) for n in range(2)]
        ones = Const((1 << _HALF) - 1, _HALF)
        m.d.comb += [
            bits.eq(channels << task.element),
            absent[0].eq(Mux(bits > _HALF, 0, _HALF - bits)),
            absent[1].eq(Mux(bits > _HALF, 2 * _HALF - bits, _HALF)),
        ]
        return ones >> absent[0], ones >> absent[1]

    def _pad_pattern(self, m: Module, task: Value, go: Value) -> Signal:
        """64 bytes of pad values for the type [HW 5.5.2], set when the task begins."""
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
                    # Depthwise: byte 1 for the odd channels among the first 32 [HW 2.2].
                    odd = Mux(task.depthwise, pad[8:16], pad[:8])
                    m.d.sync += pattern.eq(Cat(Cat(pad[:8], odd).replicate(16), pad[:8].replicate(32)))
        return pattern

    def _hand_over(self, m: Module, platform: object, go: Value, issued: Value) -> Value:
        """Queue finished stripes for CORE; returns a pulse when the last one of the task is accepted."""
        entries = [Signal(StripeDone, name=f"stripe_{bank}", reset_less=True) for bank in range(2)]
        ready = Signal(2)
        head = Signal()
        # The entry of a stripe is held back until its last operand has passed through the cell.
        delay = Signal(STRIPE_LATENCY - 1)
        delay_bank = Signal(STRIPE_LATENCY - 1, reset_less=True)
        m.d.sync += [delay.eq(Cat(issued.ends, delay)), delay_bank.eq(Cat(issued.bank, delay_bank))]
        for bank in range(2):
            with m.If(issued.ends & (issued.bank == bank)):
                m.d.sync += entries[bank].eq(issued.done)
        with m.If(go):
            m.d.sync += head.eq(0)
        taken = self.core.stripe.valid & self.core.stripe.ready
        m.d.comb += [
            self.core.stripe.valid.eq(ready.bit_select(head, 1)),
            self.core.stripe.payload.eq(Mux(head, entries[1], entries[0])),
        ]
        with m.If(taken):
            m.d.sync += [
                head.eq(~head),
                ready.bit_select(head, 1).eq(0),
            ]
        with m.If(delay[-1]):
            m.d.sync += ready.bit_select(delay_bank[-1], 1).eq(1)
        offered = ready.bit_select(issued.bank, 1) & ~(taken & (head == issued.bank))
        early = issued.valid & issued.first & offered
        text = "SequenceController.core: a stripe is written over one that CORE has not accepted"
        assertions.always(m, platform, ~early, text)
        return taken & self.core.stripe.payload.last
