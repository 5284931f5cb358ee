"""Interrupt registers and interrupt line of one core [HW 10.2]."""

from amaranth import Module, Mux, Signal
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.layouts import RegisterPort
from rkcosim.spec.regs import registers

EVENT_BITS = 14


class Event(enum.IntEnum):
    """Bit of each event in the interrupt registers. Events in pairs belong to register groups 0 and 1."""

    CNA_FEATURE = 0
    CNA_WEIGHT = 2
    CSC = 4
    CORE = 6
    DPU = 8
    PPU = 10
    DMA_READ_ERROR = 12
    DMA_WRITE_ERROR = 13


class InterruptUnit(wiring.Component):
    """Collect events, and hold the line from an unmasked event of the last task until STATUS is 0.

    The unit serves the INTERRUPT_* offsets of the PC window; other offsets read 0 and ignore writes. An
    event in the same cycle as its clear is kept. Unmasking an event that has already happened does not
    raise the line.

    Members
    -------
    port : In(RegisterPort())   : accesses of the INTERRUPT_* registers, always ready.
    events : In(14)             : pulses, bits as `Event`.
    last_task : In(1)           : events of this cycle may raise the line (last task, or no kick).
    irq : Out(1)                : level, from a register.
    """

    port: In(RegisterPort())
    events: In(EVENT_BITS)
    last_task: In(1)
    irq: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        block = registers()["PC"]
        mask_field = block["INTERRUPT_MASK"].fields["int_mask"]
        mask = Signal(mask_field.width, init=mask_field.reset)
        raw = Signal(mask_field.width)
        clear = Signal(mask_field.width)
        status = Signal(mask_field.width)
        port = self.port
        m.d.comb += [port.ready.eq(1), status.eq(raw & mask)]

        def bits(register: str, field: str) -> slice:
            place = block[register].fields[field]
            return slice(place.lsb, place.msb + 1)

        with m.Switch(port.offset):
            with m.Case(block["INTERRUPT_MASK"].local):
                where = bits("INTERRUPT_MASK", "int_mask")
                m.d.comb += port.rdata[where].eq(mask)
                with m.If(port.write):
                    m.d.sync += mask.eq(port.wdata[where])
            with m.Case(block["INTERRUPT_CLEAR"].local):
                with m.If(port.write):
                    m.d.comb += clear.eq(port.wdata[bits("INTERRUPT_CLEAR", "int_clr")])
            with m.Case(block["INTERRUPT_STATUS"].local):
                m.d.comb += port.rdata[bits("INTERRUPT_STATUS", "int_st")].eq(status)
            with m.Case(block["INTERRUPT_RAW_STATUS"].local):
                m.d.comb += port.rdata[bits("INTERRUPT_RAW_STATUS", "int_raw_st")].eq(raw)

        m.d.sync += raw.eq((raw & ~clear) | self.events)
        risen = Signal()
        m.d.comb += risen.eq(self.last_task & (self.events & mask).any())
        # An event in this cycle is not in RAW yet, so STATUS does not show it.
        m.d.sync += self.irq.eq(Mux(risen, 1, self.irq & status.any()))
        assertions.ports(m, platform, self)
        return m
