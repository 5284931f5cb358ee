"""The DPU's writer of packets: eight atoms that belong together, as they are or transposed (docs 4.11)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.npu.atom_writer import ATOM_BITS, AtomRun
from rtl.npu.dpu_modes import PACKET_M1, PacketSizes
from rtl.npu.dpu_writer_surfaces import ATOMS, StripePort
from rtl.regfile import config_signature

BLOCK = 16
"""The most atoms that are transposed together."""


class PacketWalk(wiring.Component):
    """Takes blocks of atoms out of the stripes and writes them as packets of eight.

    The atoms of a block follow each other along a surface (data from memory) or along the surfaces of a
    pixel (data of CORE, four surfaces).  The k-th packet lies at line, row and surface of the WDMA's
    sizes that k counts through; its atoms are DST_SURF_STRIDE apart.

    Members
    -------
    cfg : configuration of the DPU
    start : 1, in
    stripe : StripePort, out
    run : stream of AtomRun, out
    wanted, taken : 1, out and in
        The memory is to take the atom.
    words : 256, in
        What the two memories of the buffer read, the first memory's word low.
    atom : 128, out
    busy : 1, out
        A block, a run or an atom waits.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "cfg": In(config_signature("DPU")),
                "start": In(1),
                "stripe": Out(StripePort()),
                "run": Out(stream.Signature(AtomRun)),
                "wanted": Out(1),
                "taken": In(1),
                "words": In(2 * ATOM_BITS),
                "atom": Out(ATOM_BITS),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._settings(m)
        self._load(m)
        self._emit(m)
        m.d.comb += self.busy.eq(
            self.full | self.capture | (self.pair != 0) | self.run_valid | self.atom_valid
        )
        return m

    def _settings(self, m: Module) -> None:
        """What the walk needs, copied at the start of a task."""
        cfg = self.cfg
        ow, wdma = cfg.BS_OW_CFG, cfg.WDMA_SIZE_0
        self.flying = Signal(reset_less=True)
        self.off = Signal(reset_less=True)  # the sizes make no blocks: nothing is written
        self.turned = Signal(reset_less=True)
        self.narrow = Signal(reset_less=True)  # elements of a byte: blocks of 16 atoms
        self.joined = Signal(reset_less=True)  # the atoms of a packet lie side by side
        self.most = Signal(3, reset_less=True)  # last atom of a packet that is written
        self.base = Signal(ATOMS, reset_less=True)
        self.stride = Signal(ATOMS, reset_less=True)
        self.jump = Signal(ATOMS, reset_less=True)
        self.pitch = Signal(15, reset_less=True)
        self.width_m1 = Signal(13, reset_less=True)
        self.height_m1 = Signal(13, reset_less=True)
        with m.If(self.start):
            sizes = PacketSizes(cfg)
            m.d.sync += [
                self.flying.eq(cfg.FEATURE_MODE_CFG.FLYING_MODE),
                self.off.eq(sizes.misaligned | sizes.open_group),
                self.turned.eq(ow.TP_ORG_EN),
                self.narrow.eq(ow.TP_ORG_EN & ~wdma.TP_PRECISION),
                self.joined.eq(cfg.DST_SURF_STRIDE.DST_SURF_STRIDE == 1),
                self.most.eq(ow.SIZE_E_1),
                self.base.eq(cfg.DST_BASE_ADDR.DST_BASE_ADDR),
                self.stride.eq(cfg.DST_SURF_STRIDE.DST_SURF_STRIDE),
                self.jump.eq(cfg.SURFACE_ADD.SURF_ADD),
                self.pitch.eq(cfg.WDMA_SIZE_1.WIDTH_WDMA + 1 + cfg.DATA_CUBE_NOTCH_ADDR.NOTCH_ADDR_0),
                self.width_m1.eq(cfg.WDMA_SIZE_1.WIDTH_WDMA),
                self.height_m1.eq(cfg.WDMA_SIZE_1.HEIGHT_WDMA),
            ]

    def _load(self, m: Module) -> None:
        """Read a block from the stripe, two atoms a cycle."""
        stripe = self.stripe
        self.full = Signal()  # the block is complete and waits to be written
        self.pair, self.capture = Signal(3), Signal()
        self.block = [Signal(ATOM_BITS, name=f"atom{index}", reset_less=True) for index in range(BLOCK)]
        place, swap = Signal(3, reset_less=True), Signal(reset_less=True)
        pixel, upper = Signal(4), Signal()  # upper: surfaces 2 and 3 of the pixel
        read, ends, last = Signal(), Signal(), Signal()
        m.d.comb += [
            read.eq(stripe.valid & ~self.full & ~self.off),
            ends.eq(Mux(self.flying, pixel + 1 == stripe.pixels_m1, upper & (pixel == stripe.pixels_m1))),
            last.eq(self.pair == Mux(self.narrow, BLOCK // 2 - 1, BLOCK // 4 - 1)),
            stripe.read.eq(read),
            stripe.pixel.eq(pixel),
            stripe.surface.eq(Mux(self.flying, 0, Cat(Const(0, 1), upper))),
            stripe.upward.eq(~self.flying),
            stripe.done.eq((read & ends) | (stripe.valid & self.off)),
        ]
        m.d.sync += self.capture.eq(read)
        with m.If(read):
            m.d.sync += [
                place.eq(self.pair),
                swap.eq(pixel[0] & ~self.flying),
                self.pair.eq(self.pair + 1),
            ]
            with m.If(self.flying):
                m.d.sync += pixel.eq(pixel + 2)
            with m.Else():
                m.d.sync += [upper.eq(~upper), pixel.eq(pixel + upper)]
            with m.If(ends):
                m.d.sync += [pixel.eq(0), upper.eq(0)]
            with m.If(last):
                m.d.sync += [self.full.eq(1), self.pair.eq(0)]
        with m.If(self.capture):
            first = Mux(swap, self.words[ATOM_BITS:], self.words[:ATOM_BITS])
            second = Mux(swap, self.words[:ATOM_BITS], self.words[ATOM_BITS:])
            with m.Switch(place):
                for pair in range(BLOCK // 2):
                    with m.Case(pair):
                        m.d.sync += [self.block[2 * pair].eq(first), self.block[2 * pair + 1].eq(second)]
        with m.If(self.start):
            m.d.sync += [signal.eq(0) for signal in (self.full, self.pair, pixel, upper)]

    def _emit(self, m: Module) -> None:
        """Write the atoms of the block's packets."""
        self.run_valid, self.atom_valid = Signal(), Signal()
        payload, data = Signal(AtomRun, reset_less=True), Signal(ATOM_BITS, reset_less=True)
        element, step, opens, last = Signal(4), Signal(), Signal(), Signal()
        x, y = Signal(13), Signal(13)
        line, area = Signal(ATOMS), Signal(ATOMS)
        spot = Signal(ATOMS)  # of the atom within its packet
        m.d.comb += [
            opens.eq(~self.joined | (element[:3] == 0)),
            step.eq(
                self.full
                & ~self.capture
                & (~self.run_valid | self.run.ready)
                & (~self.atom_valid | self.taken)
            ),
            last.eq(element[:3] == self.most),
            self.run.valid.eq(self.run_valid),
            self.run.payload.eq(payload),
            self.wanted.eq(self.atom_valid),
            self.atom.eq(data),
        ]
        with m.If(self.run.ready):
            m.d.sync += self.run_valid.eq(0)
        with m.If(self.taken):
            m.d.sync += self.atom_valid.eq(0)
        with m.If(step):
            m.d.sync += [
                self.atom_valid.eq(1),
                self.run_valid.eq(opens),
                element.eq(element + 1),
                spot.eq(spot + self.stride),
            ]
            with m.If(opens):
                m.d.sync += [
                    payload.addr.eq(Cat(Const(0, 4), (self.base + area + line + x + spot)[:ATOMS])),
                    payload.atoms.eq(Mux(self.joined, self.most + 1, 1)),
                    payload.masked.eq(0),
                ]
            self._choose(m, element, data)
            with m.If(last):
                self._next_packet(m, x, y, line, area)
                m.d.sync += spot.eq(0)
                with m.If(self.narrow & ~element[3]):
                    m.d.sync += element.eq(PACKET_M1 + 1)
                with m.Else():
                    m.d.sync += [element.eq(0), self.full.eq(0)]
        with m.If(self.start):
            m.d.sync += [signal.eq(0) for signal in (element, x, y, line, area, spot)]

    def _choose(self, m: Module, element: Signal, data: Signal) -> None:
        """The atom of a packet, case by case: shifts of wide words are dear in simulation."""
        for mode, count in ((0b00, 8), (0b01, 8), (0b11, BLOCK)):
            with m.If(Cat(self.turned, self.narrow) == mode):
                with m.Switch(element):
                    for case in range(count):
                        with m.Case(case):
                            m.d.sync += data.eq(self._atom(mode, case))

    def _atom(self, mode: int, case: int) -> Value:
        if mode == 0:
            return self.block[case]
        bits = 8 if mode == 0b11 else 16
        return Cat(atom.word_select(case, bits) for atom in self.block[: ATOM_BITS // bits])

    def _next_packet(self, m: Module, x: Signal, y: Signal, line: Signal, area: Signal) -> None:
        m.d.sync += x.eq(x + 1)
        with m.If(x == self.width_m1):
            m.d.sync += [x.eq(0), y.eq(y + 1), line.eq(line + self.pitch)]
            with m.If(y == self.height_m1):
                m.d.sync += [y.eq(0), line.eq(0), area.eq(area + self.jump)]
