"""The DPU's writer of packets: eight atoms each, unchanged or transposed [HW 7.12]."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.npu.arith import held
from rkcosim.rtl.npu.atom_writer import ATOM_BITS, AtomRun
from rkcosim.rtl.npu.dpu_modes import PACKET_M1, PacketSizes, area_of
from rkcosim.rtl.npu.dpu_types import Precision
from rkcosim.rtl.npu.dpu_writer_surfaces import ATOMS, StripePort
from rkcosim.rtl.regfile import config_signature

BLOCK = 16
"""Maximum number of atoms that are transposed together."""


class PacketBlock(wiring.Component):
    """Read a block of atoms from the stripes, two per cycle, or one where a stripe or the block ends.

    The atoms of a block are consecutive along the surfaces one after the other (data from memory), or along
    the four surfaces of a pixel (int32 data of CORE), or its two surfaces (fp16).

    Members
    -------
    cfg : registers of the DPU.
    start : a task starts.
    stripe : the stripe that is being emptied.
    words : data of the two memories of the buffer, the first memory's word low.
    full : a block has been read; no further atom is requested.
    landing : the last atoms of the block are valid in the next cycle.
    release : the block has been written.
    busy : a block is being read or is waiting.
    atoms : the block.
    """

    cfg: In(config_signature("DPU"))
    start: In(1)
    stripe: Out(StripePort())
    words: In(2 * ATOM_BITS)
    full: Out(1)
    landing: Out(1)
    release: In(1)
    busy: Out(1)
    atoms: Out(ATOM_BITS).array(BLOCK)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cfg, start, stripe = self.cfg, self.start, self.stripe
        sizes = PacketSizes(cfg, area_of(cfg), Const(0))  # only the low bits of the sizes are used here
        flying = held(m, start, cfg.FEATURE_MODE_CFG.FLYING_MODE)
        off = held(m, start, sizes.misaligned | sizes.open_group)  # there are no blocks: nothing is written
        narrow = held(m, start, cfg.BS_OW_CFG.TP_ORG_EN & ~cfg.WDMA_SIZE_0.TP_PRECISION)
        half = held(m, start, cfg.DATA_FORMAT.OUT_PRECISION == Precision.FP16)
        block = [Signal(ATOM_BITS, name=f"atom{index}", reset_less=True) for index in range(BLOCK)]
        count, place, swap = Signal(4), Signal(4, reset_less=True), Signal(reset_less=True)
        pixel, upper = Signal(4), Signal()  # upper: surfaces 2 and 3 of the pixel
        read, ends, last, two, end = Signal(), Signal(), Signal(), Signal(), Signal(4)
        done = Signal()  # these are the last surfaces of the pixel
        m.d.comb += [
            done.eq(upper | half),
            read.eq(stripe.valid & ~self.full & ~off),
            end.eq(Mux(narrow, BLOCK - 1, BLOCK // 2 - 1)),
            two.eq(~flying | ((pixel != stripe.pixels_m1) & (count != end))),
            ends.eq(Mux(flying, pixel + two == stripe.pixels_m1, done & (pixel == stripe.pixels_m1))),
            last.eq(count + two == end),
            stripe.read.eq(read),
            stripe.pixel.eq(pixel),
            stripe.surface.eq(Mux(flying, 0, Cat(Const(0, 1), upper))),
            stripe.upward.eq(~flying),
            stripe.done.eq((read & ends) | (stripe.valid & off)),
            self.busy.eq(self.full | self.landing | (count != 0)),
            *(self.atoms[index].eq(atom) for index, atom in enumerate(block)),
        ]
        m.d.sync += self.landing.eq(read)
        with m.If(read):
            m.d.sync += [place.eq(count), swap.eq(pixel[0]), count.eq(count + 1 + two)]
            with m.If(flying):
                m.d.sync += pixel.eq(pixel + 1 + two)
            with m.Else():
                m.d.sync += [upper.eq(~done), pixel.eq(pixel + done)]
            with m.If(ends):
                m.d.sync += [pixel.eq(0), upper.eq(0)]
            with m.If(last):
                m.d.sync += [self.full.eq(1), count.eq(0)]
        with m.If(self.landing):
            first = Mux(swap, self.words[ATOM_BITS:], self.words[:ATOM_BITS])
            second = Mux(swap, self.words[:ATOM_BITS], self.words[ATOM_BITS:])
            with m.Switch(place):
                for number in range(BLOCK):
                    with m.Case(number):  # an atom that is not part of the block is overwritten by the next
                        m.d.sync += block[number].eq(first)
                        if number + 1 < BLOCK:
                            m.d.sync += block[number + 1].eq(second)
        with m.If(self.release):
            m.d.sync += self.full.eq(0)
        with m.If(start):
            m.d.sync += [signal.eq(0) for signal in (self.full, count, pixel, upper)]
        return m


class PacketWalk(wiring.Component):
    """Take blocks of atoms from the stripes and write them as packets of eight atoms.

    Packet k goes to the line, row and surface that follow from counting k through the sizes of WDMA. The
    atoms of a packet are DST_SURF_STRIDE apart.

    Members
    -------
    cfg : registers of the DPU.
    start : a task starts.
    stripe : the stripe that is being emptied.
    run : destination of the next atoms.
    wanted, taken : an atom is offered to memory; it is accepted.
    words : data of the two memories of the buffer, the first memory's word low.
    atom : the atom to write.
    busy : a block, a run or an atom is waiting.
    """

    cfg: In(config_signature("DPU"))
    start: In(1)
    stripe: Out(StripePort())
    run: Out(stream.Signature(AtomRun))
    wanted: Out(1)
    taken: In(1)
    words: In(2 * ATOM_BITS)
    atom: Out(ATOM_BITS)
    busy: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.block = block = PacketBlock()
        cfg, start, ow = self.cfg, self.start, self.cfg.BS_OW_CFG
        wiring.connect(m, wiring.flipped(cfg), block.cfg)
        wiring.connect(m, block.stripe, wiring.flipped(self.stripe))
        turned = held(m, start, ow.TP_ORG_EN)
        narrow = held(m, start, ow.TP_ORG_EN & ~cfg.WDMA_SIZE_0.TP_PRECISION)  # bytes: 16 atoms
        joined = held(m, start, cfg.DST_SURF_STRIDE.DST_SURF_STRIDE == 1)  # contiguous atoms
        most = held(m, start, ow.SIZE_E_1)  # last atom of a packet that is written
        base = held(m, start, cfg.DST_BASE_ADDR.DST_BASE_ADDR, ATOMS)
        stride = held(m, start, cfg.DST_SURF_STRIDE.DST_SURF_STRIDE, ATOMS)
        jump = held(m, start, cfg.SURFACE_ADD.SURF_ADD, ATOMS)
        pitch = held(m, start, cfg.WDMA_SIZE_1.WIDTH_WDMA + 1 + cfg.DATA_CUBE_NOTCH_ADDR.NOTCH_ADDR_0, 15)
        width_m1 = held(m, start, cfg.WDMA_SIZE_1.WIDTH_WDMA)
        height_m1 = held(m, start, cfg.WDMA_SIZE_1.HEIGHT_WDMA)

        run_valid, atom_valid = Signal(), Signal()
        payload, atom = Signal(AtomRun, reset_less=True), Signal(ATOM_BITS, reset_less=True)
        element, step, opens, last = Signal(4), Signal(), Signal(), Signal()
        x, y = Signal(13), Signal(13)
        line, area = Signal(ATOMS), Signal(ATOMS)
        spot = Signal(ATOMS)  # address of the atom relative to its packet
        m.d.comb += [
            block.start.eq(start),
            block.words.eq(self.words),
            opens.eq(~joined | (element[:3] == 0)),
            step.eq(block.full & ~block.landing & (~run_valid | self.run.ready) & (~atom_valid | self.taken)),
            last.eq(element[:3] == most),
            block.release.eq(step & last & (~narrow | element[3])),
            self.run.valid.eq(run_valid),
            self.run.payload.eq(payload),
            self.wanted.eq(atom_valid),
            self.atom.eq(atom),
            self.busy.eq(block.busy | run_valid | atom_valid),
        ]
        with m.If(self.run.ready):
            m.d.sync += run_valid.eq(0)
        with m.If(self.taken):
            m.d.sync += atom_valid.eq(0)
        with m.If(step):
            m.d.sync += [
                atom_valid.eq(1),
                run_valid.eq(opens),
                element.eq(element + 1),
                spot.eq(spot + stride),
            ]
            with m.If(opens):
                m.d.sync += [
                    payload.addr.eq(Cat(Const(0, 4), (base + area + line + x + spot)[:ATOMS])),
                    payload.atoms.eq(Mux(joined, most + 1, 1)),
                    payload.masked.eq(0),
                ]
            # One case at a time: shifts of wide words are slow in simulation.
            for mode, count in ((0b00, 8), (0b01, 8), (0b11, BLOCK)):
                with m.If(Cat(turned, narrow) == mode), m.Switch(element):
                    for case in range(count):
                        with m.Case(case):
                            m.d.sync += atom.eq(_atom(block.atoms, mode, case))
            with m.If(last):
                m.d.sync += [spot.eq(0), x.eq(x + 1)]
                m.d.sync += element.eq(Mux(narrow & ~element[3], PACKET_M1 + 1, 0))
                with m.If(x == width_m1):
                    m.d.sync += [x.eq(0), y.eq(y + 1), line.eq(line + pitch)]
                    with m.If(y == height_m1):
                        m.d.sync += [y.eq(0), line.eq(0), area.eq(area + jump)]
        with m.If(start):
            m.d.sync += [signal.eq(0) for signal in (element, x, y, line, area, spot)]
        # The atoms of the last read land in the first cycle of a full block; then nothing delays the walk.
        lands = block.landing & block.full
        assertions.behind(m, platform, lands, ~block.full, 1, "PacketWalk.block.landing")
        assertions.ports(m, platform, self)
        return m


def _atom(block: Sequence[Value], mode: int, case: int) -> Value:
    """The next atom of a packet: an atom of the block, or one element of each atom of the block."""
    if mode == 0:
        return block[case]
    bits = 8 if mode == 0b11 else 16
    return Cat(atom.word_select(case, bits) for atom in block[: ATOM_BITS // bits])
