"""Converts the DPU's order of atoms to the PPU's: pixel by pixel, all surfaces of a group [HW 9.7]."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.layouts import PpuAtom
from rkcosim.spec.types import POOL_SURFACES

_STRIPE = 16


class PpuStripes(wiring.Component):
    """Buffer of two stripes of 16 pixels: one is filled surface by surface, the other is sent.

    Members
    -------
    start : load the sizes; no atom is accepted before.
    pixels : pixels of a surface.
    surfaces : surfaces of the cube, at least 1.
    group : surfaces of a full group, 1..8.
    i : atoms by group, stripe (which may continue in the next row), surface, pixel.
    o : atoms by group, pixel, surface.
    """

    start: In(1)
    pixels: In(26)
    surfaces: In(10)
    group: In(4)
    i: In(stream.Signature(PpuAtom))
    o: Out(stream.Signature(PpuAtom))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = memory = Memory(shape=128, depth=2 * POOL_SURFACES * _STRIPE, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        full = Signal(2)
        shape = [Signal(8, name=f"shape{bank}", reset_less=True) for bank in range(2)]

        # 1. Fill.
        filling, bank = Signal(), Signal()
        pixels_left, surfaces_left = Signal(26, reset_less=True), Signal(10, reset_less=True)
        surface, pixel = Signal(3, reset_less=True), Signal(4, reset_less=True)
        pixels_m1, here_m1 = Signal(4), Signal(4)
        take, stripe_end = Signal(), Signal()
        m.d.comb += [
            pixels_m1.eq(Mux(pixels_left < _STRIPE, pixels_left - 1, _STRIPE - 1)),
            here_m1.eq(Mux(surfaces_left < self.group, surfaces_left, self.group) - 1),
            self.i.ready.eq(filling & ~Mux(bank, full[1], full[0])),
            take.eq(self.i.valid & self.i.ready),
            stripe_end.eq((pixel == pixels_m1) & (surface == here_m1)),
            write.addr.eq(Cat(pixel, surface, bank)),
            write.data.eq(self.i.payload.data),
            write.en.eq(take),
        ]
        with m.If(self.start):
            m.d.sync += [
                filling.eq(1),
                surface.eq(0),
                pixel.eq(0),
                pixels_left.eq(self.pixels),
                surfaces_left.eq(self.surfaces),
            ]
        with m.Elif(take):
            m.d.sync += pixel.eq(pixel + 1)
            with m.If(pixel == pixels_m1):
                m.d.sync += [pixel.eq(0), surface.eq(surface + 1)]
            with m.If(stripe_end):
                m.d.sync += [surface.eq(0), bank.eq(~bank), pixels_left.eq(pixels_left - _STRIPE)]
                m.d.sync += full.bit_select(bank, 1).eq(1)
                for index, held in enumerate(shape):
                    with m.If(bank == index):
                        m.d.sync += held.eq(Cat(pixels_m1, here_m1))
                with m.If(pixels_left <= _STRIPE):
                    m.d.sync += [
                        pixels_left.eq(self.pixels),
                        surfaces_left.eq(surfaces_left - here_m1 - 1),
                    ]
                    with m.If(surfaces_left == here_m1 + 1):
                        m.d.sync += filling.eq(0)

        # 2. Send.
        out_bank = Signal()
        out_surface, out_pixel = Signal(3), Signal(4)
        now = Mux(out_bank, shape[1], shape[0])
        m.d.comb += [
            read.addr.eq(Cat(out_pixel, out_surface, out_bank)),
            self.o.valid.eq(Mux(out_bank, full[1], full[0])),
            self.o.payload.data.eq(read.data),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += out_surface.eq(out_surface + 1)
            with m.If(out_surface == now[4:]):
                m.d.sync += [out_surface.eq(0), out_pixel.eq(out_pixel + 1)]
                with m.If(out_pixel == now[:4]):
                    m.d.sync += [out_pixel.eq(0), out_bank.eq(~out_bank)]
                    m.d.sync += full.bit_select(out_bank, 1).eq(0)
        assertions.ports(m, platform, self)
        return m
