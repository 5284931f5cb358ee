"""Register fabric of one core: arbitration between initiators, and address decoding to blocks."""

from amaranth import Module, Signal
from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.bus import RegisterBus
from rkcosim.rtl.layouts import DiagnosticCode, DiagnosticPort, RegisterPort, RegisterWatch
from rkcosim.spec.regs import registers

BLOCKS = ("PC", "CNA", "CORE", "DPU", "DPU_RDMA", "PPU", "PPU_RDMA", "DDMA", "SDMA")
"""Blocks with a register port; GLOBAL is implemented in the fabric."""

OP_ENABLE_BITS = 7
"""Width of the op-enable mask [HW 1.5]."""

HANGING_WINDOW = 0x2
"""Register window in which no read is decoded; silicon hangs, the model answers an error [HW 1.2]."""

PATIENCE = 4
"""Cycles for which a delayed write keeps the fabric before the other initiator is served."""

_R = registers()


def op_enable_fields() -> dict[str, int]:
    """Bit of the op-enable mask by block name, from the fields of the GLOBAL register.

    Returns
    -------
    dict[str, int]
        CNA 0, CORE 2, DPU 3, DPU_RDMA 4, PPU 5, PPU_RDMA 6 [HW 1.5].
    """
    fields = _R["GLOBAL"]["OPERATION_ENABLE"].fields
    found = {}
    for block in BLOCKS:
        for name, field in fields.items():
            if name in (f"{block}_OP_EN", block):
                found[block] = field.lsb
    return found


class RegisterFabric(wiring.Component):
    """Carry register accesses of the host and of the PC's command stream to the blocks.

    The fabric performs one access per cycle, the host's first. A read keeps the fabric until it is served.
    A write that its block delays gives way to the other initiator after some cycles, so that neither can
    block the other. The port of a block may therefore see a delayed access withdrawn.

    Windows without a block: writes are dropped (diagnostic UNKNOWN_WRITE), reads return 0, except
    reads of 0x2000-0x2FFF, which return an error (diagnostic UNDECODED_ACCESS).

    Members
    -------
    host : In(RegisterBus())      : the AXI4-Lite slave.
    fetch : In(RegisterBus())     : words of the command stream.
    pc, cna, core, dpu, dpu_rdma, ppu, ppu_rdma, ddma, sdma : Out(RegisterPort())
    op_enable : Out(7)            : pulses of a write to GLOBAL.OPERATION_ENABLE.
    watch : Out(RegisterWatch)    : the write that takes place in this cycle, for observers.
    diag : Out(DiagnosticPort())
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "host": In(RegisterBus()),
                "fetch": In(RegisterBus()),
                **{block.lower(): Out(RegisterPort()) for block in BLOCKS},
                "op_enable": Out(OP_ENABLE_BITS),
                "watch": Out(RegisterWatch),
                "diag": Out(DiagnosticPort()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        host, fetch = self.host, self.fetch
        host_wants, fetch_wants = Signal(), Signal()
        fetch_turn = Signal()
        use_fetch = Signal()
        write, read, ready, error = Signal(), Signal(), Signal(), Signal()
        offset = Signal(16)
        wdata = Signal(32)
        rdata = Signal(32)
        m.d.comb += [
            host_wants.eq(host.write | host.read),
            fetch_wants.eq(fetch.write | fetch.read),
            use_fetch.eq(fetch_wants & (fetch_turn | ~host_wants)),
        ]
        with m.If(use_fetch):
            m.d.comb += [
                write.eq(fetch.write),
                read.eq(fetch.read),
                offset.eq(fetch.offset),
                wdata.eq(fetch.wdata),
                fetch.ready.eq(ready),
            ]
        with m.Else():
            m.d.comb += [
                write.eq(host.write),
                read.eq(host.read),
                offset.eq(host.offset),
                wdata.eq(host.wdata),
                host.ready.eq(ready),
            ]
        m.d.comb += [
            fetch.rdata.eq(rdata),
            fetch.error.eq(error),
            host.rdata.eq(rdata),
            host.error.eq(error),
        ]
        self._watch(m, write & ready, use_fetch, offset, wdata)
        refused = Signal(range(PATIENCE))
        m.d.sync += refused.eq(0)
        taken = Signal()
        m.d.comb += taken.eq(write | read)
        with m.If(taken & ~ready):
            m.d.sync += fetch_turn.eq(use_fetch)
            with m.If(write):
                m.d.sync += refused.eq(refused + 1)
                with m.If(refused == PATIENCE - 1):
                    m.d.sync += [fetch_turn.eq(~use_fetch), refused.eq(0)]
        with m.Elif(taken):
            m.d.sync += fetch_turn.eq(~use_fetch & fetch_wants)

        with m.Switch(offset[12:16]):
            for block in BLOCKS:
                port = getattr(self, block.lower())
                m.d.comb += [port.offset.eq(offset[:12]), port.wdata.eq(wdata)]
                with m.Case(_R[block].base >> 12):
                    m.d.comb += [
                        port.write.eq(write),
                        port.read.eq(read),
                        ready.eq(port.ready),
                        rdata.eq(port.rdata),
                    ]
            with m.Case(_R["GLOBAL"].base >> 12):
                m.d.comb += ready.eq(1)
                with m.If(offset == _R["GLOBAL"]["OPERATION_ENABLE"].offset):
                    with m.If(write):
                        m.d.comb += self.op_enable.eq(wdata[:OP_ENABLE_BITS])
                with m.Else():
                    m.d.comb += self.diag.valid.eq(write)
            with m.Case(HANGING_WINDOW):
                m.d.comb += [ready.eq(1), error.eq(read), self.diag.valid.eq(write | read)]
            with m.Default():
                m.d.comb += [ready.eq(1), self.diag.valid.eq(write)]
        m.d.comb += [
            self.diag.payload.code.eq(DiagnosticCode.UNKNOWN_WRITE),
            self.diag.payload.register.eq(offset),
            self.diag.payload.value.eq(wdata),
        ]
        with m.If(read):
            m.d.comb += [
                self.diag.payload.code.eq(DiagnosticCode.UNDECODED_ACCESS),
                self.diag.payload.value.eq(0),
            ]
        assertions.ports(m, platform, self)
        return m

    def _watch(self, m: Module, done: Value, fetched: Value, offset: Value, value: Value) -> None:
        """Show a write in the cycle in which it takes place."""
        watch = self.watch
        with m.If(done):
            m.d.comb += [
                watch.valid.eq(1),
                watch.fetched.eq(fetched),
                watch.offset.eq(offset),
                watch.value.eq(value),
            ]
