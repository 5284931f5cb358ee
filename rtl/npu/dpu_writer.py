"""The DPU's write side: a reorder buffer of two stripes between the pipe, memory and PPU [HW 7]."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.layouts import IDLE, LANES, PpuAtom, WritePort
from rkcosim.rtl.npu.arith import held, wire
from rkcosim.rtl.npu.atom_writer import ATOM_BITS, AtomWriter
from rkcosim.rtl.npu.dpu_frame import PipeOut
from rkcosim.rtl.npu.dpu_modes import atom_width, makes_packets
from rkcosim.rtl.npu.dpu_types import Width, width_of
from rkcosim.rtl.npu.dpu_writer_packets import PacketWalk
from rkcosim.rtl.npu.dpu_writer_surfaces import StripePort, SurfaceWalk
from rkcosim.rtl.regfile import config_signature

SURFACES = 16
"""Surfaces of the widest channel group: 64 channels of 4 bytes."""


class StripeBuffer(wiring.Component):
    """Two stripes of 16 pixels: one is filled octet by octet while the other is emptied.

    Atom (surface s, pixel p) is stored in memory (s + p) mod 2, so that neighbours in either direction are
    written and read together.

    Members
    -------
    cfg : registers of the DPU.
    start : a task starts: both stripes are empty.
    octets : octets of a full channel group.
    kind : width by which channels are laid out in atoms.
    out : width of the elements: smaller than `kind` where the rest of each atom is 0 [HW 7.11].
    enabled : stripes are stored; otherwise octets are accepted and dropped.
    source : converted elements.
    stripe : the stripe that is being emptied.
    words : data of the two memories, from the cycle after `stripe.read` on.
    swap : the requested atom is the second one of `words`.
    ends : the last stripe of the task is released, or its last octet is dropped.
    """

    cfg: In(config_signature("DPU"))
    start: In(1)
    octets: In(4)
    kind: In(Width)
    out: In(Width)
    enabled: In(1)
    source: In(stream.Signature(PipeOut))
    stripe: In(StripePort())
    words: Out(ATOM_BITS).array(2)
    swap: Out(1)
    ends: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        layout = data.ArrayLayout(ATOM_BITS // 2, 2)
        m.submodules.memory0 = memory0 = Memory(shape=layout, depth=2 * SURFACES * 8, init=[])
        m.submodules.memory1 = memory1 = Memory(shape=layout, depth=2 * SURFACES * 8, init=[])
        memories = (memory0, memory1)
        full = [Signal(name=f"full{bank}") for bank in range(2)]
        tags = [Signal(6, name=f"stripe{bank}", reset_less=True) for bank in range(2)]
        given, tag = self.stripe, self.source.payload.tag

        # 1. Octets are written to the stripe that is being filled.
        fills, take, keep = Signal(), Signal(), Signal()
        m.d.comb += [
            self.source.ready.eq(~self.enabled | ~Mux(fills, full[1], full[0])),
            take.eq(self.source.valid & self.source.ready),
            keep.eq(take & self.enabled),
        ]
        self._place(m, memories, fills, keep)
        with m.If(take & tag.stripe_last):
            m.d.sync += fills.eq(~fills)

        # 2. The other stripe is read; the first atom of a pair is in memory (surface + pixel) mod 2.
        empties = Signal()
        odd = given.surface[0] ^ given.pixel[0]
        stripe = Mux(empties, tags[1], tags[0])
        for index, memory in enumerate(memories):
            port = memory.read_port()
            other, pixel, surface = Signal(), Signal(4), Signal(4)
            m.d.comb += [
                other.eq(odd ^ index),
                pixel.eq(given.pixel + (other & ~given.upward)),
                surface.eq(given.surface + (other & given.upward)),
                port.addr.eq(Cat(pixel[1:], surface, empties)),
                port.en.eq(given.read),
                self.words[index].eq(port.data),
            ]
        swap = held(m, given.read, odd)
        m.d.comb += [
            given.valid.eq(Mux(empties, full[1], full[0])),
            given.pixels_m1.eq(stripe[:4]),
            given.group_last.eq(stripe[4]),
            self.swap.eq(swap),
            self.ends.eq((given.done & stripe[5]) | (take & ~self.enabled & tag.task_last)),
        ]
        for index in range(2):
            with m.If(keep & tag.stripe_last & (fills == index)):
                m.d.sync += full[index].eq(1)
                m.d.sync += tags[index].eq(Cat(tag.slot, tag.group_last, tag.task_last))
            with m.Elif(given.done & (empties == index)):
                m.d.sync += full[index].eq(0)
        with m.If(given.done):
            m.d.sync += empties.eq(~empties)
        with m.If(self.start):
            m.d.sync += [fills.eq(0), empties.eq(0)]
        taken = given.done & ~given.valid
        assertions.always(m, platform, ~taken, "StripeBuffer.stripe: a stripe is released that is not full")
        assertions.ports(m, platform, self)
        return m

    def _place(self, m: Module, memories: tuple[Memory, Memory], fills: Signal, keep: Signal) -> None:
        """Write the octet into its stripe.  Elements below 32 bits make one atom, in one of the memories."""
        tag, lanes = self.source.payload.tag, self.source.payload.data
        pend = held(m, self.start, self.cfg.OFFSET_PEND.OFFSET_PEND[:8], 8)
        nibbles, quarters = self._nibbles(m, keep, pend)
        surface, content, halves = Signal(4), Signal(128, init=IDLE), Signal(2)
        bytes_ = Signal(64, init=IDLE)
        narrow = Signal()  # the elements fill only a part of the atom
        m.d.comb += narrow.eq(self.kind != self.out)
        with m.If(keep):
            m.d.comb += bytes_.eq(Cat(lanes[lane][:8] for lane in range(LANES)))
            with m.Switch(self.kind):
                with m.Case(Width.BITS8):
                    m.d.comb += surface.eq(tag.octet[1:])
                    with m.If(narrow):
                        m.d.comb += [content.eq(nibbles[:64]), halves.eq(quarters)]
                    with m.Else():
                        # The lower half is also written to the upper one, in case no octet follows for it.
                        m.d.comb += [
                            content.eq(Cat(bytes_, Mux(tag.octet[0], bytes_, pend.replicate(8)))),
                            halves.eq(Mux(tag.octet[0], 0b10, 0b11)),
                        ]
                with m.Case(Width.BITS16):
                    m.d.comb += [surface.eq(tag.octet), halves.eq(0b11)]
                    with m.If(~narrow):
                        m.d.comb += content.eq(Cat(lanes[lane][:16] for lane in range(LANES)))
                    with m.Elif(self.out == Width.BITS8):
                        m.d.comb += content.eq(bytes_)
                    with m.Else():
                        m.d.comb += content.eq(nibbles[:32])
                with m.Case(Width.BITS4):
                    m.d.comb += [surface.eq(tag.octet[2]), content.eq(nibbles), halves.eq(quarters)]
        # Two atoms of four channels.
        whole = Signal(256, init=IDLE)
        with m.If(keep):
            m.d.comb += whole.eq(Cat(*lanes))
            with m.If(narrow):
                parts = [
                    [Cat(lane[:bits] for lane in lanes[first : first + 4]) for first in (0, 4)]
                    for bits in (16, 8, 4)
                ]
                for width, (low, high) in zip((Width.BITS16, Width.BITS8, Width.BITS4), parts, strict=True):
                    with m.If(self.out == width):
                        m.d.comb += [whole[:128].eq(low), whole[128:].eq(high)]
        for index, memory in enumerate(memories):
            port = memory.write_port(granularity=1)
            upper = tag.slot[0] ^ index
            with m.If(keep):
                with m.If(self.kind == Width.BITS32):
                    m.d.comb += [
                        port.addr.eq(Cat(tag.slot[1:], upper, tag.octet, fills)),
                        port.data.eq(Mux(upper, whole[128:], whole[:128])),
                        port.en.eq(0b11),
                    ]
                with m.Else():
                    m.d.comb += [
                        port.addr.eq(Cat(tag.slot[1:], surface, fills)),
                        port.data.eq(content),
                        port.en.eq(Mux(tag.slot[0] ^ surface[0] == index, halves, 0)),
                    ]

    def _nibbles(self, m: Module, keep: Signal, pend: Signal) -> tuple[Signal, Signal]:
        """int4: an atom of four octets, or a part of it of one or two; the rest of it is padding.

        Returns the new contents of the atom and which halves of it to write.
        """
        tag, lanes = self.source.payload.tag, self.source.payload.data
        content, quarters, newest = Signal(128, init=IDLE), Signal(2), Signal(32, init=IDLE)
        upper, before = Signal(), Signal(32, reset_less=True)  # upper: the upper half of the surface
        part = Signal(2)
        with m.If(keep & (self.out == Width.BITS4)):
            filler = pend[:4].replicate(8)
            half = wire(m, Mux(part[0], Cat(before, newest), Cat(newest, filler)), 64)
            m.d.comb += [
                newest.eq(Cat(lanes[lane][:4] for lane in range(LANES))),
                content.eq(Cat(half, Mux(part[1], half, filler.replicate(2)))),
                quarters.eq(Mux(part == 0, 0b11, Mux(part[1], 0b10, 0b01))),
            ]
            # The place of the octet in its atom: of four, of two (whose atom is the lower half), or alone.
            with m.Switch(self.kind):
                with m.Case(Width.BITS4):
                    m.d.comb += part.eq(tag.octet | Cat(0, upper))
                with m.Case(Width.BITS8):
                    m.d.comb += part.eq(tag.octet[0])
            m.d.sync += before.eq(newest)
            with m.If(tag.group_last & (self.octets == 2)):
                m.d.sync += upper.eq(~upper)
        with m.If(self.start):
            m.d.sync += upper.eq(0)
        return content, quarters


class StripeWriter(wiring.Component):
    """Collect a stripe of 16 pixels and write it surface by surface, or as packets.

    Members
    -------
    cfg : registers of the DPU.
    start : a task starts.
    octets : octets of a full channel group.
    copies : copies of a row that unpooling requires; 0 without unpooling.
    source : converted elements.
    write : port towards the DMA.
    ppu : the atoms of each stripe: surface of the group, then pixel.
    finished : the last stripe is in memory (all responses have arrived) and has been sent to the PPU.
    """

    cfg: In(config_signature("DPU"))
    start: In(1)
    octets: In(4)
    copies: In(4)
    source: In(stream.Signature(PipeOut))
    write: Out(WritePort())
    ppu: Out(stream.Signature(PpuAtom))
    finished: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.buffer = buffer = StripeBuffer()
        m.submodules.writer = writer = AtomWriter()
        m.submodules.surfaces = surfaces = SurfaceWalk()
        m.submodules.packets = packets = PacketWalk()
        wiring.connect(m, writer.write, wiring.flipped(self.write))
        wiring.connect(m, wiring.flipped(self.source), buffer.source)
        wiring.connect(m, wiring.flipped(self.cfg), buffer.cfg, surfaces.cfg, packets.cfg)
        mode, makes = self.cfg.FEATURE_MODE_CFG.OUTPUT_MODE, makes_packets(self.cfg)
        kind = Signal(Width)
        with m.If(self.start):
            m.d.comb += kind.eq(atom_width(self.cfg))
        enabled = held(m, self.start, mode[1] | (mode[0] & ~makes & (self.copies == 0)))
        packed = held(m, self.start, makes)
        width = held(m, self.start, kind, Width)
        out = held(m, self.start, width_of(self.cfg.DATA_FORMAT.OUT_PRECISION), Width, name="out_width")
        m.d.comb += [
            *(part.start.eq(self.start) for part in (buffer, surfaces, packets)),
            buffer.octets.eq(self.octets),
            buffer.kind.eq(width),
            buffer.out.eq(out),
            buffer.enabled.eq(enabled),
            surfaces.octets.eq(self.octets),
            surfaces.copies.eq(self.copies),
            surfaces.kind.eq(kind),
        ]

        # The active walk empties the buffer and drives the writer.
        atoms = writer.atoms
        for walk, in_use in ((packets, m.If(packed)), (surfaces, m.Else())):
            with in_use:
                wiring.connect(m, walk.stripe, buffer.stripe)
                wiring.connect(m, walk.run, writer.run)
                m.d.comb += [atoms.valid.eq(walk.wanted), walk.taken.eq(atoms.ready)]
        words, swap = buffer.words, buffer.swap
        m.d.comb += [
            packets.words.eq(Cat(words)),
            surfaces.pooled.eq(self.ppu.ready),
            self.ppu.valid.eq(surfaces.pool),
        ]
        with m.If(surfaces.pool):
            m.d.comb += self.ppu.payload.data.eq(Mux(swap ^ surfaces.second, words[1], words[0]))
        with m.If(packed):
            m.d.comb += atoms.payload.data.eq(packets.atom)
        with m.Else():
            m.d.comb += atoms.payload.two.eq(surfaces.two)
            with m.If(swap):
                m.d.comb += atoms.payload.data.eq(Cat(words[1], words[0]))
            with m.Else():
                m.d.comb += atoms.payload.data.eq(Cat(words))

        over = Signal()
        with m.If(buffer.ends):
            m.d.sync += over.eq(1)
        with m.If(self.start):
            m.d.sync += over.eq(0)
        m.d.comb += self.finished.eq(over & ~surfaces.busy & ~packets.busy & writer.idle)
        parts = {"packets": packets, "surfaces": surfaces}
        upward = {f"{name}.upward": walk.stripe.upward for name, walk in parts.items()}
        assertions.stable(m, platform, upward, "StripeWriter", after=self.start)
        again = self.start | ~self.finished
        assertions.stable(m, platform, {"finished": self.finished}, "StripeWriter", after=again)
        assertions.ports(m, platform, self)
        return m
