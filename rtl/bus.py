"""Bus signatures of a core, and the components that register the buses.

Every output of a component in this file that drives a top-level bus is a register, `ready` included
. Engines therefore agree in every cycle, and cores can be stepped separately.
"""

from amaranth import Cat, Const, Module, Signal
from amaranth.hdl import ShapeLike, Value
from amaranth.lib import enum, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.layouts import AXI_BITS, Diagnostic, DiagnosticPort, RegisterPort

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
    """AXI4-Lite with 32-bit data and 16-bit addresses, seen from the master.

    Members
    -------
    awaddr : address of a write, a byte offset in the window.
    awprot : protection attributes of a write, ignored.
    awvalid, awready : handshake of the write address.
    wdata : data of a write.
    wstrb : strobe of each byte; a write without all four is answered with SLVERR.
    wvalid, wready : handshake of the write data.
    bresp : response to a write, OKAY or SLVERR.
    bvalid, bready : handshake of the write response.
    araddr : address of a read, a byte offset in the window.
    arprot : protection attributes of a read, ignored.
    arvalid, arready : handshake of the read address.
    rdata : data of a read.
    rresp : response to a read, OKAY or SLVERR.
    rvalid, rready : handshake of the read data.
    """

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
    """AXI4 with 256-bit data, 40-bit addresses, 5-bit read ids and 4-bit write ids, seen from the master.

    Members
    -------
    awid : client of a write (`rkcosim.rtl.layouts.WriteClient`).
    awaddr : byte address of the first beat of a write.
    awlen : beats of a write minus one.
    awsize : bytes of a beat as a power of two.
    awburst : type of the burst, always INCR.
    awlock, awcache, awprot, awqos : attributes of a write.
    awvalid, awready : handshake of the write address.
    arid : client of a read (`rkcosim.rtl.layouts.ReadClient`).
    araddr : byte address of the first beat of a read.
    arlen : beats of a read minus one.
    arsize : bytes of a beat as a power of two.
    arburst : type of the burst, always INCR.
    arlock, arcache, arprot, arqos : attributes of a read.
    arvalid, arready : handshake of the read address.
    wdata : data of a beat that is written.
    wstrb : strobe of each byte of a beat that is written.
    wlast : last beat of a write.
    wvalid, wready : handshake of the write data.
    bid : client of the write that is answered.
    bresp : response to a write.
    bvalid, bready : handshake of the write response.
    rid : client of the read that is answered.
    rdata : data of a beat that is read.
    rresp : response to a beat that is read.
    rlast : last beat of a read.
    rvalid, rready : handshake of the read data.
    """

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


def flat_members(prefix: str, signature: wiring.Signature) -> dict[str, wiring.Member]:
    """Return the members of a bus as members of a component, with the names of the bus's standard."""
    return {prefix + name: member for name, member in signature.members.items()}


def connect_flat(m: Module, prefix: str, outside: wiring.Component, inside: wiring.PureInterface) -> None:
    """Connect a component's `flat_members` to the bus of the submodule that implements them."""
    for name, member in inside.signature.members.items():
        outer, inner = getattr(outside, prefix + name), getattr(inside, name)
        m.d.comb += inner.eq(outer) if member.flow == In else outer.eq(inner)


class RegisterBus(wiring.Signature):
    """Register access within one core by full offset, seen from the initiator.

    The handshake is that of `RegisterPort`. `error` is valid together with `rdata`. `write` and `read` are
    never high in the same cycle.
    """

    def __init__(self) -> None:
        block = dict(RegisterPort().members.items())
        super().__init__(block | {"offset": Out(REGISTER_OFFSET_BITS), "error": In(1)})


class SkidBuffer(wiring.Component):
    """Two-entry stream buffer whose outputs, `ready` included, are all registers.

    It sustains one transfer per cycle and adds one cycle of latency.

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
        assertions.ports(m, platform, self)
        return m


class DiagnosticMerge(wiring.Component):
    """Merge diagnostic ports into one: one event per cycle, inputs with a lower index first.

    Each input buffers up to `DEPTH` events, which is enough for blocks that check their settings at the
    same time. An event that arrives at a full buffer is lost.

    Parameters
    ----------
    count : int
        Number of inputs, at least 1.

    Members
    -------
    i : In(DiagnosticPort()).array(count)
    o : Out(DiagnosticPort())

    Raises
    ------
    ValueError
        If `count` is less than 1.
    """

    DEPTH = 8

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"count must be at least 1, not {count}")
        super().__init__({"i": In(DiagnosticPort()).array(count), "o": Out(DiagnosticPort())})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        earlier: list[Value] = []
        for n, port in enumerate(self.i):
            m.submodules[f"kept_{n}"] = kept = SyncFIFO(width=Diagnostic.as_shape().size, depth=self.DEPTH)
            m.d.comb += [
                kept.w_en.eq(port.valid),
                kept.w_data.eq(port.payload),
                kept.r_en.eq(~Cat(earlier).any()),
            ]
            with m.If(kept.r_rdy & kept.r_en):
                m.d.comb += [self.o.valid.eq(1), self.o.payload.eq(kept.r_data)]
            earlier.append(kept.r_rdy)
        return m


class AxiLiteSlave(wiring.Component):
    """AXI4-Lite slave that turns each transfer into one access of a register bus.

    It performs one access at a time; when a read and a write wait at the same time, they alternate. A
    write with any strobe bit clear is not performed and is answered with SLVERR, because registers accept
    whole words only. An access that its block delays occupies the bus meanwhile, as on silicon.

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

        # Each of the three request channels holds one transfer; `ready` means that the channel is empty.
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

        # The operation that has started keeps the bus. After a read, writes go first, and vice versa.
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
                    Cat(Const(0, 1), ~whole | bus.error)  # SLVERR is 0b10.
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
        assertions.ports(m, platform, self)
        return m
