"""Registers of the PC window: where the first list is, how many tasks there are, and their status [HW 1]."""

from amaranth import Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.layouts import DiagnosticCode, DiagnosticPort, RegisterPort
from rkcosim.rtl.regfile import pack_fields, register_layout, unpack_fields
from rkcosim.spec.regs import Register, registers

_PC = registers()["PC"]


class PcRegisters(wiring.Component):
    """Registers of the PC window except INTERRUPT_*, which are passed on.

    Members
    -------
    port : In(RegisterPort())
    interrupts : Out(RegisterPort())  : accesses of INTERRUPT_*, for `InterruptUnit`.
    link_base, link_amount : In(1)    : write BASE_ADDRESS / REGISTER_AMOUNTS from `link_value`.
    link_value : In(32)
    status : In(layout)               : fields of TASK_STATUS.
    kick : Out(1)                     : pulse, OP_EN was written with 1.
    clear_count : Out(1)              : pulse, TASK_COUNT_CLEAR was written with 1.
    slave_mode : Out(1)               : BASE_ADDRESS.PC_SEL.
    base : Out(28), amount : Out(16), tasks : Out(12), prefetch : Out(1), dma_base : Out(32)
    diag : Out(DiagnosticPort())      : UNKNOWN_WRITE, UNALIGNED_ADDRESS.
    """

    port: In(RegisterPort())
    interrupts: Out(RegisterPort())
    link_base: In(1)
    link_amount: In(1)
    link_value: In(32)
    status: In(register_layout(_PC["TASK_STATUS"]))
    kick: Out(1)
    clear_count: Out(1)
    slave_mode: Out(1)
    base: Out(28)
    amount: Out(16)
    tasks: Out(12)
    prefetch: Out(1)
    dma_base: Out(32)
    diag: Out(DiagnosticPort())

    def elaborate(self, platform: object) -> Module:
        m = Module()
        port, inner = self.port, self.interrupts
        stored: dict[str, data.View] = {}
        # Plain storage; registers that start, clear or report something are handled separately.
        for name in ("BASE_ADDRESS", "REGISTER_AMOUNTS", "TASK_CON", "TASK_DMA_BASE_ADDR"):
            resets = {field.name: field.reset for field in _PC[name].fields.values()}
            stored[name] = Signal(register_layout(_PC[name]), name=name, init=resets)

        def write(register: Register, value: Value) -> list:
            return [Value.cast(stored[register.name]).eq(pack_fields(register, value))]

        m.d.comb += [
            port.ready.eq(1),
            inner.offset.eq(port.offset),
            inner.wdata.eq(port.wdata),
            self.diag.payload.code.eq(DiagnosticCode.UNKNOWN_WRITE),
            self.diag.payload.register.eq(_PC.base + port.offset),
            self.diag.payload.value.eq(port.wdata),
        ]
        op_en = _PC["OPERATION_ENABLE"].fields["OP_EN"]
        clear = _PC["TASK_CON"].fields["TASK_COUNT_CLEAR"]
        with m.Switch(port.offset):
            for register in _PC:
                with m.Case(register.local):
                    if register.name in stored:
                        m.d.comb += port.rdata.eq(unpack_fields(register, stored[register.name]))
                        with m.If(port.write):
                            m.d.sync += write(register, port.wdata)
                    if register.name == "OPERATION_ENABLE":
                        m.d.comb += self.kick.eq(port.write & port.wdata[op_en.lsb])  # reads 0
                    elif register.name == "TASK_CON":
                        m.d.comb += self.clear_count.eq(port.write & port.wdata[clear.lsb])
                    elif register.name == "TASK_STATUS":
                        m.d.comb += port.rdata.eq(unpack_fields(register, self.status))
                    elif register.name.startswith("VERSION"):
                        m.d.comb += port.rdata.eq(register.reset)
                    elif register.name.startswith("INTERRUPT_"):
                        m.d.comb += [
                            inner.write.eq(port.write),
                            inner.read.eq(port.read),
                            port.ready.eq(inner.ready),
                            port.rdata.eq(inner.rdata),
                        ]
            with m.Default():
                m.d.comb += self.diag.valid.eq(port.write)

        with m.If(self.link_base):
            m.d.sync += write(_PC["BASE_ADDRESS"], self.link_value)
        with m.If(self.link_amount):
            m.d.sync += write(_PC["REGISTER_AMOUNTS"], self.link_value)

        # A base that is no multiple of a beat would shift the halves of every client's beats.
        dma_base = _PC["TASK_DMA_BASE_ADDR"]
        with m.If(
            port.write & (port.offset == dma_base.local) & port.wdata[dma_base.fields["DMA_BASE_ADDR"].lsb]
        ):
            m.d.comb += [
                self.diag.valid.eq(1),
                self.diag.payload.code.eq(DiagnosticCode.UNALIGNED_ADDRESS),
            ]
        m.d.comb += [
            self.slave_mode.eq(stored["BASE_ADDRESS"].PC_SEL),
            self.base.eq(stored["BASE_ADDRESS"].PC_SOURCE_ADDR),
            self.amount.eq(stored["REGISTER_AMOUNTS"].PC_DATA_AMOUNT),
            self.tasks.eq(stored["TASK_CON"].TASK_NUMBER),
            self.prefetch.eq(stored["TASK_CON"].TASK_PP_EN),
            self.dma_base.eq(unpack_fields(dma_base, stored["TASK_DMA_BASE_ADDR"])),
        ]
        assertions.ports(m, platform, self)
        return m
