"""The DPU's write side: a reorder buffer of two stripes between the pipe, memory and PPU (docs 4.9-4.11)."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from rtl.layouts import LANES, PpuAtom, WritePort
from rtl.npu.atom_writer import AtomWriter
from rtl.npu.dpu_modes import makes_packets
from rtl.npu.dpu_pipe import PipeOut
from rtl.npu.dpu_types import Width, width_of
from rtl.npu.dpu_writer_packets import PacketWalk
from rtl.npu.dpu_writer_surfaces import SurfaceWalk
from rtl.regfile import config_signature

SURFACES = 16
"""Surfaces of the widest channel group: 64 channels of 4 bytes."""

IDLE = 1
"""What wires show that nobody looks at, see `rtl.npu.dpu_pipe.IDLE`."""


class StripeWriter(wiring.Component):
    """Collects a stripe of 16 pixels and hands it over surface by surface, or as packets.

    Members
    -------
    cfg : configuration of the DPU
    start : 1, in
    octets : 4, in
        Octets of a full channel group.
    copies : 4, in
        Copies of a row that unpooling asks for; 0 without it.
    source : stream of PipeOut, in
    write : WritePort, out
    ppu : stream of PpuAtom, out
        Every stripe's atoms: surface of the group, then pixel.
    finished : 1, out
        The last stripe of the task is in memory (every response has come) and with the PPU.
    moves : 1, out
        A register in here may change (rtl/clock_groups.py).
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "cfg": In(config_signature("DPU")),
                "start": In(1),
                "octets": In(4),
                "copies": In(4),
                "source": In(stream.Signature(PipeOut)),
                "write": Out(WritePort()),
                "ppu": Out(stream.Signature(PpuAtom)),
                "finished": Out(1),
                "moves": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.writer = self.writer = AtomWriter()
        m.submodules.surfaces = self.surfaces = SurfaceWalk()
        m.submodules.packets = self.packets = PacketWalk()
        wiring.connect(m, self.writer.write, wiring.flipped(self.write))
        # Two memories of 16-byte words: atom (surface s, pixel p) lies in memory (s + p) mod 2, so that
        # neighbours in either direction are written and read together.
        layout = data.ArrayLayout(64, 2)
        self.memories = []
        for bank in range(2):
            memory = Memory(shape=layout, depth=2 * SURFACES * 8, init=[])
            m.submodules[f"memory{bank}"] = memory
            self.memories.append(memory)
        self.full = [Signal(name=f"full{bank}") for bank in range(2)]
        self.tags = [Signal(6, name=f"stripe{bank}", reset_less=True) for bank in range(2)]
        self.drained = [Signal(name=f"drained{bank}") for bank in range(2)]
        self.enabled = Signal(reset_less=True)
        self.packed = Signal(reset_less=True)  # packets are made
        self.kind = Signal(Width, reset_less=True)
        cfg = self.cfg
        mode = cfg.FEATURE_MODE_CFG.OUTPUT_MODE
        kind = Signal(Width)
        with m.If(self.start):
            packed = makes_packets(cfg)
            m.d.comb += kind.eq(width_of(cfg.DATA_FORMAT.OUT_PRECISION))
            m.d.sync += [
                self.enabled.eq(mode[1] | (mode[0] & ~packed & (self.copies == 0))),
                self.packed.eq(packed),
                self.kind.eq(kind),
            ]
        for walk in (self.surfaces, self.packets):
            wiring.connect(m, wiring.flipped(cfg), walk.cfg)
            m.d.comb += walk.start.eq(self.start)
        m.d.comb += [
            self.surfaces.octets.eq(self.octets),
            self.surfaces.copies.eq(self.copies),
            self.surfaces.kind.eq(kind),
        ]
        self._fill(m)
        self._drain(m)
        m.d.comb += self.moves.eq(
            self.source.valid
            | self.full[0]
            | self.full[1]
            | self.surfaces.busy
            | self.packets.busy
            | self.writer.moves
        )
        return m

    def _fill(self, m: Module) -> None:
        """Place each octet in the buffer of its stripe."""
        source, tag, lanes = self.source, self.source.payload.tag, self.source.payload.data
        bank, take, keep = Signal(), Signal(), Signal()
        blocked = Mux(bank, self.full[1], self.full[0])
        m.d.comb += [
            source.ready.eq(~self.enabled | ~blocked),
            take.eq(source.valid & source.ready),
            keep.eq(take & self.enabled),
        ]
        pend = Signal(8, reset_less=True)
        with m.If(self.start):
            m.d.sync += pend.eq(self.cfg.OFFSET_PEND.OFFSET_PEND[:8])
        nibbles, place, quarters = self._nibbles(m, keep, pend)

        # Elements below 32 bits make one atom a time, which lies in one of the memories.
        surface, content, halves = Signal(4), Signal(128, init=IDLE), Signal(2)
        with m.If(keep):
            with m.Switch(self.kind):
                with m.Case(Width.BITS8):
                    # The lower half also fills the upper one, in case no octet comes for it.
                    bytes_ = Signal(64, init=IDLE)
                    m.d.comb += [
                        bytes_.eq(Cat(lanes[lane][:8] for lane in range(LANES))),
                        surface.eq(tag.octet[1:]),
                        content.eq(Cat(bytes_, Mux(tag.octet[0], bytes_, pend.replicate(8)))),
                        halves.eq(Mux(tag.octet[0], 0b10, 0b11)),
                    ]
                with m.Case(Width.BITS16):
                    m.d.comb += [
                        surface.eq(tag.octet),
                        content.eq(Cat(lanes[lane][:16] for lane in range(LANES))),
                        halves.eq(0b11),
                    ]
                with m.Case(Width.BITS4):
                    m.d.comb += [surface.eq(tag.octet[2]), content.eq(nibbles), halves.eq(quarters)]
        whole = Cat(*lanes)
        for index, memory in enumerate(self.memories):
            port = memory.write_port(granularity=1)
            upper = tag.slot[0] ^ index
            with m.If(keep):
                with m.If(self.kind == Width.BITS32):
                    m.d.comb += [
                        port.addr.eq(Cat(tag.slot[1:], upper, tag.octet, bank)),
                        port.data.eq(Mux(upper, whole[128:], whole[:128])),
                        port.en.eq(0b11),
                    ]
                with m.Else():
                    m.d.comb += [
                        port.addr.eq(Cat(tag.slot[1:], surface, bank)),
                        port.data.eq(content),
                        port.en.eq(Mux(tag.slot[0] ^ surface[0] == index, halves, 0)),
                    ]
        self.last_dropped = Signal()
        m.d.comb += self.last_dropped.eq(take & ~self.enabled & tag.task_last)
        for index in range(2):
            ends = keep & tag.stripe_last & (bank == index)
            with m.If(ends):
                m.d.sync += self.full[index].eq(1)
                m.d.sync += self.tags[index].eq(Cat(tag.slot, tag.group_last, tag.task_last))
            with m.Elif(self.drained[index]):
                m.d.sync += self.full[index].eq(0)
        with m.If(take & tag.stripe_last):
            m.d.sync += bank.eq(~bank)
        with m.If(self.start):
            m.d.sync += [bank.eq(0), place.eq(0)]

    def _nibbles(self, m: Module, keep: Signal, pend: Signal) -> tuple[Signal, Signal, Signal]:
        """int4: an atom of four octets, filled up behind the newest of them.

        Returns the atom's new content, whether the group takes the upper half of its surface, and which
        halves of the content to write.
        """
        tag, lanes = self.source.payload.tag, self.source.payload.data
        content, quarters, newest = Signal(128, init=IDLE), Signal(2), Signal(32, init=IDLE)
        upper, before = Signal(), Signal(32, reset_less=True)
        part = Signal(2)
        with m.If(keep & (self.kind == Width.BITS4)):
            filler = pend[:4].replicate(8)
            m.d.comb += [
                newest.eq(Cat(lanes[lane][:4] for lane in range(LANES))),
                part.eq(tag.octet | Cat(0, upper)),
                content.eq(
                    Cat(
                        Mux(part[0], Cat(before, newest), Cat(newest, filler)),
                        Mux(
                            part[1],
                            Mux(part[0], Cat(before, newest), Cat(newest, filler)),
                            filler.replicate(2),
                        ),
                    )
                ),
                quarters.eq(Mux(part == 0, 0b11, Mux(part[1], 0b10, 0b01))),
            ]
            m.d.sync += before.eq(newest)
            with m.If(tag.group_last & (self.octets == 2)):
                m.d.sync += upper.eq(~upper)
        return content, upper, quarters

    def _drain(self, m: Module) -> None:
        """Give full stripes to the walk in use and its runs to the writer."""
        walks, writer = (self.surfaces, self.packets), self.writer
        bank, over = Signal(), Signal()
        ready = Mux(bank, self.full[1], self.full[0])
        stripe = Mux(bank, self.tags[1], self.tags[0])
        read, pixel, surface, upward = Signal(), Signal(4), Signal(4), Signal()
        done = Signal()
        for walk, on in zip(walks, (~self.packed, self.packed), strict=True):
            m.d.comb += [
                walk.stripe.valid.eq(ready & on),
                walk.stripe.pixels_m1.eq(stripe[:4]),
                walk.stripe.group_last.eq(stripe[4]),
            ]
        with m.If(self.packed):
            self._connect(m, self.packets, read, pixel, surface, upward, done)
        with m.Else():
            self._connect(m, self.surfaces, read, pixel, surface, upward, done)

        swap = Signal(reset_less=True)
        for index, memory in enumerate(self.memories):
            port = memory.read_port()
            # The first atom of the pair lies in memory (surface + pixel) mod 2, the second in the other.
            other = Signal()
            m.d.comb += other.eq(surface[0] ^ pixel[0] ^ index)
            row_pixel, row_surface = Signal(4), Signal(4)
            m.d.comb += [
                row_pixel.eq(pixel + (other & ~upward)),
                row_surface.eq(surface + (other & upward)),
                port.addr.eq(Cat(row_pixel[1:], row_surface, bank)),
                port.en.eq(read),
            ]
        with m.If(read):
            m.d.sync += swap.eq(surface[0] ^ pixel[0])
        read0, read1 = (memory.read_ports[0].data.as_value() for memory in self.memories)
        surfaces, packets, atoms = self.surfaces, self.packets, writer.atoms
        m.d.comb += [
            packets.words.eq(Cat(read0, read1)),
            surfaces.pooled.eq(self.ppu.ready),
            self.ppu.valid.eq(surfaces.pool),
        ]
        with m.If(surfaces.pool):
            m.d.comb += self.ppu.payload.data.eq(Mux(swap ^ surfaces.second, read1, read0))
        with m.If(self.packed):
            m.d.comb += [
                atoms.valid.eq(packets.wanted),
                packets.taken.eq(atoms.ready),
                atoms.payload.data.eq(packets.atom),
            ]
        with m.Else():
            m.d.comb += [
                atoms.valid.eq(surfaces.wanted),
                surfaces.taken.eq(atoms.ready),
                atoms.payload.two.eq(surfaces.two),
            ]
            with m.If(swap):
                m.d.comb += atoms.payload.data.eq(Cat(read1, read0))
            with m.Else():
                m.d.comb += atoms.payload.data.eq(Cat(read0, read1))

        with m.If(done):
            m.d.sync += bank.eq(~bank)
        m.d.comb += [self.drained[0].eq(done & ~bank), self.drained[1].eq(done & bank)]
        last = Mux(bank, self.tags[1], self.tags[0])[5]
        with m.If((done & last) | self.last_dropped):
            m.d.sync += over.eq(1)
        m.d.comb += self.finished.eq(over & ~self.surfaces.busy & ~self.packets.busy & writer.idle)
        with m.If(self.start):
            m.d.sync += [over.eq(0), bank.eq(0)]

    def _connect(
        self,
        m: Module,
        walk: SurfaceWalk | PacketWalk,
        read: Signal,
        pixel: Signal,
        surface: Signal,
        upward: Signal,
        done: Signal,
    ) -> None:
        """Let `walk` read the buffer and drive the writer, under the condition around the call."""
        writer, stripe = self.writer, walk.stripe
        m.d.comb += [
            read.eq(stripe.read),
            pixel.eq(stripe.pixel),
            surface.eq(stripe.surface),
            upward.eq(stripe.upward),
            done.eq(stripe.done),
            writer.run.valid.eq(walk.run.valid),
            writer.run.payload.eq(walk.run.payload),
            walk.run.ready.eq(writer.run.ready),
        ]
