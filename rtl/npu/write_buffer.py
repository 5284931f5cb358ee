"""Holds a writer's bursts back until all of their beats are available."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.layouts import WriteBeat, WritePort
from rkcosim.rtl.npu.atom_writer import BURST_BEATS
from rkcosim.spec.regs.counters import LEVEL_BITS


class WriteBuffer(wiring.Component):
    """Port of a writer on its way to the DMA: passed through directly, or held back burst by burst.

    The bursts of both writers share one stream of beats, in the order of their requests. If one
    writer's data depend on the other writer (the DPU writes to memory and feeds the PPU), a request whose
    beats are not complete could wait forever; with `whole`, a request leaves only when its last beat is here.

    Members
    -------
    client : port of the writer.
    port : port of the DMA.
    whole : hold bursts back; changes take effect while nothing is buffered or outstanding.
    beats : number of beats in the buffer.
    """

    client: In(WritePort())
    port: Out(WritePort())
    whole: In(1)
    beats: Out(LEVEL_BITS)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        client, port = self.client, self.port
        m.submodules.beats = beats = SyncFIFOBuffered(width=WriteBeat.as_shape().size, depth=BURST_BEATS)
        m.d.comb += [client.done.eq(port.done), self.beats.eq(beats.level)]
        entered = client.data.valid & client.data.ready & client.data.payload.last
        asked = port.req.valid & port.req.ready
        left = port.data.valid & port.data.ready & port.data.payload.last

        # Requested bursts whose last beat has not left, and buffered bursts that are not requested yet.
        owed = Signal(6)
        with m.If(asked & ~left):
            m.d.sync += owed.eq(owed + 1)
        with m.Elif(~asked & left):
            m.d.sync += owed.eq(owed - 1)
        complete = Signal(range(BURST_BEATS + 2))
        gathering = Signal()
        with m.If(~client.req.valid & ~client.data.valid & (owed == 0) & (beats.level == 0)):
            m.d.sync += gathering.eq(self.whole)

        m.d.comb += [
            port.req.payload.eq(client.req.payload),
            port.req.valid.eq(client.req.valid & (~gathering | (complete != 0))),
            client.req.ready.eq(port.req.ready & (~gathering | (complete != 0))),
        ]
        with m.If(gathering):
            with m.If(entered & ~asked):
                m.d.sync += complete.eq(complete + 1)
            with m.Elif(~entered & asked):
                m.d.sync += complete.eq(complete - 1)
            m.d.comb += [
                beats.w_data.eq(client.data.payload),
                beats.w_en.eq(client.data.valid),
                client.data.ready.eq(beats.w_rdy),
                port.data.payload.eq(WriteBeat(beats.r_data)),
                port.data.valid.eq(beats.r_rdy),
                beats.r_en.eq(port.data.ready),
            ]
        with m.Else():
            m.d.comb += [
                port.data.payload.eq(client.data.payload),
                port.data.valid.eq(client.data.valid),
                client.data.ready.eq(port.data.ready),
            ]
        assertions.bounded(m, platform, owed, "WriteBuffer.owed", up=asked, down=left)
        up, down = entered & gathering, asked & gathering
        assertions.bounded(m, platform, complete, "WriteBuffer.complete", up=up, down=down)
        assertions.ports(m, platform, self)
        return m
