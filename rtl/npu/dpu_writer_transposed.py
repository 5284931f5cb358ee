"""The DPU's transposed writer: elements of every fourth channel side by side (docs 4.11)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.npu.atom_writer import AtomRun
from rtl.npu.dpu_types import Width
from rtl.npu.dpu_writer_surfaces import ATOMS, StripePort
from rtl.regfile import config_signature

PIECES = ATOMS + 2
"""Bits of an address counted in pieces of four elements of 8 bits."""


class TransposedWalk(wiring.Component):
    """Writes stripes in pieces of four elements: channels 16q + j, + 4, + 8 and + 12 of a pixel.

    A piece lies in one atom of memory and goes there as a run of its own, of which only its bytes are
    written.  In pieces, it is the `m + q*M + 4*j*M`-th of the output, m the pixel of M.

    Members
    -------
    cfg : configuration of the DPU
    start : 1, in
    octets : 4, in
        Octets of a full channel group.
    kind : Width, in
        8 or 16 bits; looked at with `start` only.
    stripe : StripePort, out
    run : stream of AtomRun, out
    wanted, taken : 1, out and in
        The memory is to take the piece made of the atoms read.
    words : 256, in
        What the two memories of the buffer read, the first memory's word low.
    piece : 128, out
        The piece in every place it may have in an atom.
    busy : 1, out
        A run or an atom waits to be taken.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "cfg": In(config_signature("DPU")),
                "start": In(1),
                "octets": In(4),
                "kind": In(Width),
                "stripe": Out(StripePort()),
                "run": Out(stream.Signature(AtomRun)),
                "wanted": Out(1),
                "taken": In(1),
                "words": In(256),
                "piece": Out(128),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cfg, stripe = self.cfg, self.stripe
        wide = Signal(reset_less=True)
        base, area = Signal(PIECES, reset_less=True), Signal(26, reset_less=True)
        blocks = Signal(3, reset_less=True)  # of 16 channels in a full group
        left, left0 = Signal(14, reset_less=True), Signal(14, reset_less=True)  # channels from a block on
        block, j, pixel = Signal(2), Signal(2), Signal(4)
        origin = Signal(26)  # pixels before this stripe
        row_q, row_q0, row = Signal(PIECES), Signal(PIECES), Signal(PIECES)

        run_valid, pair_valid = Signal(), Signal()
        payload = Signal(AtomRun, reset_less=True)
        chosen = Signal(2, reset_less=True)  # j of the atoms read
        swap = Signal(reset_less=True)  # the first of them comes from the second memory
        step, some, at = Signal(), Signal(), Signal(PIECES, init=1)
        last_pixel, last_j, last_block = Signal(), Signal(), Signal()
        live, keep = Signal(4), Signal(16)
        m.d.comb += [
            step.eq(stripe.valid & (~run_valid | self.run.ready) & (~pair_valid | self.taken)),
            self.busy.eq(run_valid | pair_valid),
            self.run.valid.eq(run_valid),
            self.run.payload.eq(payload),
            self.wanted.eq(pair_valid),
        ]
        with m.If(self.run.ready):
            m.d.sync += run_valid.eq(0)
        with m.If(self.taken):
            m.d.sync += pair_valid.eq(0)

        with m.If(step):
            m.d.comb += [
                stripe.read.eq(1),
                stripe.pixel.eq(pixel),
                stripe.surface.eq(Mux(wide, block << 1, block)),
                stripe.upward.eq(1),
                at.eq(base + origin + row + pixel),
                live.eq(Cat(left > j + 4 * r for r in range(4))),
                some.eq(live[0]),
                last_pixel.eq(pixel == stripe.pixels_m1),
                last_j.eq(j == 3),
                last_block.eq((block == blocks - 1) | (left <= 16)),
            ]
            with m.If(wide):
                bytes_ = Cat(bit.replicate(2) for bit in live)
                m.d.comb += keep.eq(Mux(at[0], bytes_ << 8, bytes_))
            with m.Else():
                m.d.comb += keep.eq(live << Cat(Const(0, 2), at[:2]))
            m.d.sync += [
                pair_valid.eq(some),
                run_valid.eq(some),
                chosen.eq(j),
                swap.eq(stripe.surface[0] ^ pixel[0]),
                payload.addr.eq(Cat(Const(0, 4), Mux(wide, at[1:], at[2:])[:ATOMS])),
                payload.atoms.eq(1),
                payload.masked.eq(~keep),
                pixel.eq(pixel + 1),
            ]
            with m.If(last_pixel):
                m.d.sync += [pixel.eq(0), j.eq(j + 1), row.eq(row + (area << 2))]
                with m.If(last_j):
                    m.d.sync += [
                        block.eq(block + 1),
                        left.eq(left - 16),
                        row_q.eq(row_q + area),
                        row.eq(row_q + area),
                    ]
                    with m.If(last_block):
                        m.d.comb += stripe.done.eq(1)
                        m.d.sync += block.eq(0)
                        with m.If(stripe.group_last):
                            m.d.sync += [origin.eq(0), row_q0.eq(row_q + area), left0.eq(left - 16)]
                        with m.Else():
                            m.d.sync += [origin.eq(origin + 16), left.eq(left0)]
                            m.d.sync += [row_q.eq(row_q0), row.eq(row_q0)]

        self._gather(m, pair_valid, wide, chosen, swap)
        with m.If(self.start):
            channels = cfg.DATA_CUBE_CHANNEL.CHANNEL + 1
            turned = self.kind == Width.BITS16
            destination = cfg.DST_BASE_ADDR.DST_BASE_ADDR
            m.d.sync += [
                wide.eq(turned),
                base.eq(Mux(turned, destination << 1, destination << 2)),
                area.eq((cfg.DATA_CUBE_WIDTH.WIDTH + 1) * (cfg.DATA_CUBE_HEIGHT.HEIGHT + 1)),
                blocks.eq(self.octets >> 1),
                left.eq(channels),
                left0.eq(channels),
            ]
            m.d.sync += [signal.eq(0) for signal in (block, j, pixel, origin, row_q, row_q0, row)]
        return m

    def _gather(self, m: Module, valid: Signal, wide: Signal, chosen: Signal, swap: Signal) -> None:
        """The piece; spelled out case by case, since shifts of wide words are dear in simulation."""
        piece = Signal(64, init=1)
        with m.If(valid):
            with m.Switch(Cat(chosen, swap)):
                for case in range(8):
                    j, first, second = case & 3, self.words[:128], self.words[128:]
                    if case & 4:
                        first, second = second, first
                    halves = [atom[16 * at :][:16] for atom in (first, second) for at in (j, j + 4)]
                    four = Cat(first[8 * at :][:8] for at in range(j, 16, 4))
                    with m.Case(case):
                        m.d.comb += piece.eq(Mux(wide, Cat(*halves), four.replicate(2)))
            m.d.comb += self.piece.eq(piece.replicate(2))
