"""Registers of the AXI masters DDMA and SDMA [HW 2.8], which have no register groups."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.layouts import DiagnosticCode, DiagnosticPort, RegisterPort
from rkcosim.rtl.regfile import register_layout, unpack_fields
from rkcosim.spec.regs import registers


class DmaRegisters(wiring.Component):
    """Storage of the registers of DDMA or SDMA, with reset values as read on silicon.

    Only the outstanding limits have an effect. Writes to unknown offsets are dropped with a
    diagnostic; reads of them return 0.

    Parameters
    ----------
    block : str
        "DDMA" or "SDMA".

    Members
    -------
    port : In(RegisterPort())
    read_limit : Out(8)           : CFG_OUTSTANDING.RD_OS_CNT.
    write_limit : Out(8)          : CFG_OUTSTANDING.WR_OS_CNT.
    read_error : In(1)            : pulse; `read_error_id` is stored in CFG_ID_ERROR.RD_RESP_ID.
    read_error_id : In(5)
    write_error : In(1)           : pulse; `write_error_id` is stored in CFG_ID_ERROR.WR_RESP_ID.
    write_error_id : In(4)
    idle : In(1)                  : CFG_STATUS.IDEL.
    diag : Out(DiagnosticPort())

    Raises
    ------
    ValueError
        If `block` is another name.
    """

    port: In(RegisterPort())
    read_limit: Out(8)
    write_limit: Out(8)
    read_error: In(1)
    read_error_id: In(5)
    write_error: In(1)
    write_error_id: In(4)
    idle: In(1)
    diag: Out(DiagnosticPort())

    def __init__(self, block: str) -> None:
        if block not in ("DDMA", "SDMA"):
            raise ValueError(f"block must be DDMA or SDMA, not {block}")
        super().__init__()
        self._block = registers()[block]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        port = self.port
        m.d.comb += [
            port.ready.eq(1),
            self.diag.payload.code.eq(DiagnosticCode.UNKNOWN_WRITE),
            self.diag.payload.register.eq(self._block.base + port.offset),
            self.diag.payload.value.eq(port.wdata),
        ]
        with m.Switch(port.offset):
            for register in self._block:
                resets = {field.name: field.reset for field in register.fields.values()}
                stored = Signal(register_layout(register), name=register.name, init=resets)
                with m.Case(register.local):
                    m.d.comb += port.rdata.eq(unpack_fields(register, stored))
                    with m.If(port.write):
                        for field in register.fields.values():
                            if "w" in field.sw:
                                m.d.sync += stored[field.name].eq(port.wdata[field.lsb : field.msb + 1])
                if register.name == "CFG_OUTSTANDING":
                    outside = [self.read_limit.eq(stored.RD_OS_CNT), self.write_limit.eq(stored.WR_OS_CNT)]
                elif register.name == "CFG_ID_ERROR":
                    id_error = stored
                elif register.name == "CFG_STATUS":
                    status = stored
            with m.Default():
                m.d.comb += self.diag.valid.eq(port.write)
        m.d.comb += outside
        m.d.sync += status.IDEL.eq(self.idle)
        with m.If(self.read_error):
            m.d.sync += id_error.RD_RESP_ID.eq(self.read_error_id)
        with m.If(self.write_error):
            m.d.sync += id_error.WR_RESP_ID.eq(self.write_error_id)
        assertions.ports(m, platform, self)
        return m
