"""Buses of one core towards the outside, and the parts that keep them registered.

Every output of a part in this file that faces a top-level bus is a register, ready included
(DESIGN 4), so that engines agree cycle for cycle and cores can be stepped apart.
"""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.hdl import ShapeLike, Value
from amaranth.lib import enum, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.layouts import AXI_BITS, Diagnostic, DiagnosticPort

AXI_ADDRESS_BITS = 40
READ_ID_BITS = 5
WRITE_ID_BITS = 4
REGISTER_OFFSET_BITS = 16


class Response(enum.IntEnum, shape=2):
    """AXI response codes; bit 1 is set in both error codes."""

    OKAY = 0
    EXOKAY = 1
    SLVERR = 2
    DECERR = 3


class Burst(enum.IntEnum, shape=2):
    """AXI burst types."""

    FIXED = 0
    INCR = 1
    WRAP = 2


class AxiLite(wiring.Signature):
    """AXI4-Lite with 32-bit data and 16-bit addresses, seen from the master."""

    def __init__(self) -> None:
        super().__init__(
            {
                "awaddr": Out(REGISTER_OFFSET_BITS),
                "awprot": Out(3),
                "awvalid": Out(1),
                "awready": In(1),
                "wdata": Out(32),
                "wstrb": Out(4),
                "wvalid": Out(1),
                "wready": In(1),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
                "araddr": Out(REGISTER_OFFSET_BITS),
                "arprot": Out(3),
                "arvalid": Out(1),
                "arready": In(1),
                "rdata": In(32),
                "rresp": In(2),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )


class Axi4(wiring.Signature):
    """AXI4 with 256-bit data, 40-bit addresses, 5-bit read and 4-bit write ids, from the master."""

    def __init__(self) -> None:
        members: dict[str, wiring.Member] = {}
        for channel, id_bits in (("aw", WRITE_ID_BITS), ("ar", READ_ID_BITS)):
            members |= {
                f"{channel}id": Out(id_bits),
                f"{channel}addr": Out(AXI_ADDRESS_BITS),
                f"{channel}len": Out(8),
                f"{channel}size": Out(3),
                f"{channel}burst": Out(2),
                f"{channel}lock": Out(1),
                f"{channel}cache": Out(4),
                f"{channel}prot": Out(3),
                f"{channel}qos": Out(4),
                f"{channel}valid": Out(1),
                f"{channel}ready": In(1),
            }
        members |= {
            "wdata": Out(AXI_BITS),
            "wstrb": Out(AXI_BITS // 8),
            "wlast": Out(1),
            "wvalid": Out(1),
            "wready": In(1),
            "bid": In(WRITE_ID_BITS),
            "bresp": In(2),
            "bvalid": In(1),
            "bready": Out(1),
            "rid": In(READ_ID_BITS),
            "rdata": In(AXI_BITS),
            "rresp": In(2),
            "rlast": In(1),
            "rvalid": In(1),
            "rready": Out(1),
        }
        super().__init__(members)


class RegisterBus(wiring.Signature):
    """An access to one core's registers by full offset, seen from the initiator.

    The initiator holds `write` or `read` (never both) with `offset` and `wdata` until a cycle in
    which `ready` is high; the access takes place in that cycle, and `rdata` and `error` are valid
    in it.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "write": Out(1),
                "read": Out(1),
                "offset": Out(REGISTER_OFFSET_BITS),
                "wdata": Out(32),
                "ready": In(1),
                "rdata": In(32),
                "error": In(1),
            }
        )


class SkidBuffer(wiring.Component):
    """Two places of a stream, with every output (ready included) from a register.

    Sustains one transfer a cycle, with one cycle of delay.

    Parameters
    ----------
    shape
        Shape of the payload.

    Members
    -------
    i : In(stream.Signature(shape))
    o : Out(stream.Signature(shape))
    """

    def __init__(self, shape: ShapeLike) -> None:
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})
        self._shape = shape

    def elaborate(self, platform: object) -> Module:
        m = Module()
        kept = Signal(self._shape, reset_less=True)
        shown = Signal(self._shape, reset_less=True)
        full = Signal()
        room = Signal(init=1)
        valid = Signal()
        m.d.comb += [self.i.ready.eq(room), self.o.valid.eq(valid), self.o.payload.eq(shown), full.eq(~room)]
        with m.If(~valid | self.o.ready):
            m.d.sync += [valid.eq(self.i.valid | full), room.eq(1)]
            with m.If(full):
                m.d.sync += shown.eq(kept)
            with m.Elif(self.i.valid):
                m.d.sync += shown.eq(self.i.payload)
        with m.Elif(self.i.valid & room):
            m.d.sync += [kept.eq(self.i.payload), room.eq(0)]
        return m


class DiagnosticMerge(wiring.Component):
    """Join diagnostic ports into one, one event a cycle, lower inputs first.

    Each input keeps `DEPTH` events until they have gone out, enough for blocks that check their
    settings at the same time; an event that comes to an input that is full is lost.

    Parameters
    ----------
    count : int
        Number of inputs, at least 1.

    Members
    -------
    i : In(DiagnosticPort()).array(count)
    o : Out(DiagnosticPort())
    """

    DEPTH = 8

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"count must be at least 1, not {count}")
        super().__init__({"i": In(DiagnosticPort()).array(count), "o": Out(DiagnosticPort())})
        self._count = count

    def elaborate(self, platform: object) -> Module:
        m = Module()
        earlier: list[Value] = []
        for n in range(self._count):
            port = self.i[n]
            kept = memory.Memory(shape=Diagnostic, depth=self.DEPTH, init=[])
            m.submodules[f"kept_{n}"] = kept
            write, read = kept.write_port(), kept.read_port(domain="comb")
            first, count = Signal(range(self.DEPTH)), Signal(range(self.DEPTH + 1))
            taken = (count != 0) & ~Cat(earlier).any()
            put = port.valid & (count != self.DEPTH)
            m.d.comb += read.addr.eq(first)
            with m.If(put):
                m.d.comb += [write.en.eq(1), write.addr.eq(first + count), write.data.eq(port.payload)]
            with m.If(taken):
                m.d.sync += first.eq(first + 1)
                m.d.comb += [self.o.valid.eq(1), self.o.payload.eq(read.data)]
            with m.If(put != taken):
                m.d.sync += count.eq(Mux(put, count + 1, count - 1))
            earlier.append(count != 0)
        return m


class AxiLiteSlave(wiring.Component):
    """AXI4-Lite slave that turns each transfer into one access of a register bus.

    One access at a time; reads and writes that wait together take turns.  A write with any strobe
    bit clear is not performed and answers SLVERR, since the registers take whole words only.  An
    access that its block delays holds the bus, as silicon does.

    Members
    -------
    axil : In(AxiLite())
    bus : Out(RegisterBus())
    """

    axil: In(AxiLite())
    bus: Out(RegisterBus())

    def elaborate(self, platform: object) -> Module:
        m = Module()
        axil, bus = self.axil, self.bus

        # The three request channels each hold one transfer; their ready is "I hold none".
        aw_room, w_room, ar_room = Signal(), Signal(), Signal()
        aw_held, w_held, ar_held = Signal(), Signal(), Signal()
        waddr = Signal(REGISTER_OFFSET_BITS, reset_less=True)
        raddr = Signal(REGISTER_OFFSET_BITS, reset_less=True)
        wdata = Signal(32, reset_less=True)
        whole = Signal(reset_less=True)
        m.d.comb += [axil.awready.eq(aw_room), axil.wready.eq(w_room), axil.arready.eq(ar_room)]

        write_ready = Signal()
        read_ready = Signal()
        read_turn = Signal()
        write_go, read_go = Signal(), Signal()
        m.d.comb += [
            write_ready.eq(aw_held & w_held & ~axil.bvalid),
            read_ready.eq(ar_held & ~axil.rvalid),
            read_go.eq(read_ready & (read_turn | ~write_ready)),
            write_go.eq(write_ready & ~read_go),
            bus.read.eq(read_go),
            bus.write.eq(write_go & whole),
            bus.offset.eq(raddr),
            bus.wdata.eq(wdata),
        ]
        with m.If(write_go):
            m.d.comb += bus.offset.eq(waddr)

        # Whoever has started keeps the bus; a served read hands over to writes and vice versa.
        with m.If(write_go):
            m.d.sync += read_turn.eq(~whole | bus.ready)
        with m.Elif(read_go):
            m.d.sync += read_turn.eq(~bus.ready)

        with m.If(axil.bvalid & axil.bready):
            m.d.sync += axil.bvalid.eq(0)
        with m.If(axil.rvalid & axil.rready):
            m.d.sync += axil.rvalid.eq(0)

        for held, room, valid in (
            (aw_held, aw_room, axil.awvalid),
            (w_held, w_room, axil.wvalid),
            (ar_held, ar_room, axil.arvalid),
        ):
            m.d.sync += room.eq(~held)
            with m.If(room & valid):
                m.d.sync += [held.eq(1), room.eq(0)]
        with m.If(aw_room):
            m.d.sync += waddr.eq(axil.awaddr)
        with m.If(w_room):
            m.d.sync += [wdata.eq(axil.wdata), whole.eq(axil.wstrb.all())]
        with m.If(ar_room):
            m.d.sync += raddr.eq(axil.araddr)

        with m.If(write_go & (~whole | bus.ready)):
            m.d.sync += [
                aw_held.eq(0),
                w_held.eq(0),
                aw_room.eq(1),
                w_room.eq(1),
                axil.bvalid.eq(1),
                axil.bresp.eq(
                    Cat(Const(0, 1), ~whole | bus.error)  # SLVERR is 0b10
                ),
            ]
        with m.If(read_go & bus.ready):
            m.d.sync += [
                ar_held.eq(0),
                ar_room.eq(1),
                axil.rvalid.eq(1),
                axil.rdata.eq(bus.rdata),
                axil.rresp.eq(Cat(Const(0, 1), bus.error)),
            ]
        return m
