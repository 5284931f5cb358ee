"""DDMA: connects the memory clients of one core to one AXI4 master ([HW 2.8], [HW 11])."""

from collections.abc import Iterable

from amaranth import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.bus import Axi4, Burst, DiagnosticMerge, SkidBuffer
from rkcosim.rtl.counters import activity_layout, drive_activity, levels_layout
from rkcosim.rtl.layouts import (
    AXI_BITS,
    DiagnosticCode,
    DiagnosticPort,
    ReadClient,
    ReadPort,
    RegisterPort,
    WriteClient,
    WritePort,
)
from rkcosim.rtl.npu.dma_registers import DmaRegisters
from rkcosim.spec.config import AXI_BYTES
from rkcosim.spec.regs import registers

BEAT_SHIFT = AXI_BYTES.bit_length() - 1
PAGE_BEATS = 4096 // AXI_BYTES
"""Beats of a 4 KiB page; a burst never crosses a page boundary [HW 11]."""
MAX_OUTSTANDING = 256
"""Number of outstanding bursts that can be tracked; CFG_OUTSTANDING allows at most 255."""

BURST = data.StructLayout({"id": 3, "addr": 32, "beats_m1": 4})
W_BEAT = data.StructLayout({"data": AXI_BITS, "strb": AXI_BITS // 8, "last": 1})


class BurstSplitter(wiring.Component):
    """Select a client, add the base, and split at 4 KiB: one AXI burst per cycle.

    Parameters
    ----------
    ports : int
        Number of clients.
    unbased : int or None
        The client to whose addresses the base is not added.

    Members
    -------
    valid : In(ports), addr : In(32).array(ports), beats_m1 : In(4).array(ports)
    ready : Out(ports)
    base : In(32)
    allow : In(1)                  : a burst may be issued in this cycle.
    o : Out(BURST)                 : the burst; with `more`, another burst of the same request follows.
    o_valid, more : Out(1)
    pending : Out(1)               : a request waits or has only been issued in part.
    """

    def __init__(self, ports: int, unbased: int | None = None) -> None:
        super().__init__(
            {
                "valid": In(ports),
                "addr": In(32).array(ports),
                "beats_m1": In(4).array(ports),
                "ready": Out(ports),
                "base": In(32),
                "allow": In(1),
                "o": Out(BURST),
                "o_valid": Out(1),
                "more": Out(1),
                "pending": Out(1),
            }
        )
        self._ports = ports
        self._unbased = unbased

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Stage 1: select a client.  The one after the client served last has the highest priority.
        last = Signal(range(self._ports))
        later = Signal(self._ports)
        chosen = Signal(range(self._ports))
        addr = Signal(32)
        beats_m1 = Signal(4)
        with m.Switch(last):
            for n in range(self._ports):
                with m.Case(n):
                    m.d.comb += later.eq(self.valid & (-1 << (n + 1)))
        for source in (self.valid, later):  # the clients after the last one, if any, take precedence
            for n in reversed(range(self._ports)):
                with m.If(source[n]):
                    m.d.comb += chosen.eq(n)
        with m.Switch(chosen):
            for n in range(self._ports):
                with m.Case(n):
                    m.d.comb += [addr.eq(self.addr[n]), beats_m1.eq(self.beats_m1[n])]

        held = Signal()
        burst = Signal(BURST, reset_less=True)
        free = Signal()
        m.d.comb += [free.eq(~held | (self.allow & ~self.more)), self.pending.eq(held | self.valid.any())]
        with m.If(free):
            m.d.sync += held.eq(self.valid.any())
            with m.If(self.valid.any()):
                m.d.comb += self.ready.eq(1 << chosen)
                base = self.base
                if self._unbased is not None:
                    base = Mux(chosen == self._unbased, 0, self.base)
                total = Signal(32)
                m.d.comb += total.eq(addr + base)
                m.d.sync += [
                    last.eq(chosen),
                    burst.id.eq(chosen),
                    burst.addr.eq(Cat(Const(0, BEAT_SHIFT), total[BEAT_SHIFT:])),
                    burst.beats_m1.eq(beats_m1),
                ]

        # Stage 2: a request that crosses a page boundary is issued as two bursts.
        in_page = burst.addr[BEAT_SHIFT:12]
        final_beat = Signal(range(PAGE_BEATS + 16))
        m.d.comb += [
            final_beat.eq(in_page + burst.beats_m1),
            self.more.eq(final_beat >= PAGE_BEATS),
            self.o_valid.eq(held),
            self.o.eq(burst),
        ]
        with m.If(self.more):
            m.d.comb += self.o.beats_m1.eq(PAGE_BEATS - 1 - in_page)
            with m.If(held & self.allow):
                m.d.sync += [
                    burst.addr.eq(Cat(Const(0, 12), (burst.addr[12:] + 1)[:20])),
                    burst.beats_m1.eq(final_beat[:4]),
                ]
        assertions.ports(m, platform, self)
        return m


class SplitTracker(wiring.Component):
    """Remember, per client and in order, which bursts are not the last one of their request.

    Members
    -------
    push, push_id, push_more : In   : a burst has been issued.
    pop, pop_id : In                : its response ends; there are never more pops than pushes.
    more : Out(1)                   : from the cycle after `pop` on: another burst of the request follows.
    """

    def __init__(self, clients: int) -> None:
        super().__init__(
            {
                "push": In(1),
                "push_id": In(range(clients)),
                "push_more": In(1),
                "pop": In(1),
                "pop_id": In(range(clients)),
                "more": Out(1),
            }
        )
        self._clients = clients

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.flags = flags = Memory(shape=1, depth=self._clients * MAX_OUTSTANDING, init=[])
        write, read = flags.write_port(), flags.read_port()
        heads = Array(Signal(range(MAX_OUTSTANDING), name=f"head_{n}") for n in range(self._clients))
        tails = Array(Signal(range(MAX_OUTSTANDING), name=f"tail_{n}") for n in range(self._clients))
        m.d.comb += [
            write.en.eq(self.push),
            write.addr.eq(Cat(heads[self.push_id], self.push_id)),
            write.data.eq(self.push_more),
            read.en.eq(self.pop),
            read.addr.eq(Cat(tails[self.pop_id], self.pop_id)),
            self.more.eq(read.data),
        ]
        with m.If(self.push):
            m.d.sync += heads[self.push_id].eq(heads[self.push_id] + 1)
        with m.If(self.pop):
            m.d.sync += tails[self.pop_id].eq(tails[self.pop_id] + 1)
        return m


_ADDRESS_MEMBERS = ("valid", "ready", "id", "addr", "len", "size", "burst")


class Ddma(wiring.Component):
    """Connect eight readers and two writers to one AXI4 master.

    Clients are served in turn. `dma_base` is added to every address but the PC's (modulo 2^32). Requests
    that cross 4 KiB become two bursts, yet `last` and `done` come once per request. CFG_OUTSTANDING
    limits the number of outstanding bursts (a limit of 0 allows one at a time). Responses
    with an error are still passed to the client.

    Members
    -------
    reads : In(ReadPort()).array(8)      : indexed by ReadClient, which is also the AXI id.
    writes : In(WritePort()).array(2)    : indexed by WriteClient, which is also the AXI id.
    dma_base : In(32)                    : TASK_DMA_BASE; a multiple of 32.
    axi : Out(Axi4())                    : all outputs are registers.
    port : In(RegisterPort())            : registers of the DDMA window.
    sdma_port : In(RegisterPort())       : registers of the SDMA window, without effect.
    read_error : Out(1)                  : pulse, once per burst with an erroneous beat.
    write_error : Out(1)                 : pulse, once per burst with an erroneous response.
    idle : Out(1)                        : no request and no outstanding burst.
    writes_pending : Out(1)              : a write is requested or its response is outstanding.
    activity, levels : Out(layout)       : for the counters (spec/regs/counters.rdl).
    diag : Out(DiagnosticPort())         : READ_ERROR, WRITE_ERROR (value: the AXI id), UNKNOWN_WRITE.
    """

    reads: In(ReadPort()).array(len(ReadClient))
    writes: In(WritePort()).array(len(WriteClient))
    dma_base: In(32)
    axi: Out(Axi4())
    port: In(RegisterPort())
    sdma_port: In(RegisterPort())
    read_error: Out(1)
    write_error: Out(1)
    idle: Out(1)
    writes_pending: Out(1)
    activity: Out(activity_layout("DDMA"))
    levels: Out(levels_layout("READ_BURSTS", "WRITE_BURSTS", "WRITE_QUEUE"))
    diag: Out(DiagnosticPort())

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.registers = regs = DmaRegisters("DDMA")
        m.submodules.sdma = sdma = DmaRegisters("SDMA")
        wiring.connect(m, wiring.flipped(self.port), regs.port)
        wiring.connect(m, wiring.flipped(self.sdma_port), sdma.port)
        m.submodules.diagnostics = diagnostics = DiagnosticMerge(4)
        wiring.connect(m, wiring.flipped(self.diag), diagnostics.o)
        wiring.connect(m, regs.diag, diagnostics.i[2])
        wiring.connect(m, sdma.diag, diagnostics.i[3])
        read_diag, write_diag = diagnostics.i[0], diagnostics.i[1]

        reads_idle, reading = self._elaborate_reads(m, regs, platform)
        writes_idle, writing = self._elaborate_writes(m, regs, platform)
        axi = self.axi
        passes = [getattr(axi, f"{c}valid") & getattr(axi, f"{c}ready") for c in ("ar", "r", "aw", "w", "b")]
        drive_activity(
            m,
            platform,
            "Ddma",
            self.activity,
            self.idle,
            BUSY=Cat(*passes).any(),
            ADDRESS=(axi.arvalid & ~axi.arready) | (axi.awvalid & ~axi.awready),
            DATA=axi.wvalid & ~axi.wready,
            MEMORY=~reads_idle | ~writes_idle,
        )
        m.d.comb += [self.levels.READ_BURSTS.eq(reading), self.levels.WRITE_BURSTS.eq(writing)]
        id_error = registers()["DDMA"]["CFG_ID_ERROR"].offset
        m.d.comb += [
            self.idle.eq(reads_idle & writes_idle),
            self.writes_pending.eq(~writes_idle),
            regs.idle.eq(self.idle),
            sdma.idle.eq(1),
            regs.read_error.eq(self.read_error),
            regs.write_error.eq(self.write_error),
            read_diag.valid.eq(self.read_error),
            read_diag.payload.code.eq(DiagnosticCode.READ_ERROR),
            read_diag.payload.register.eq(id_error),
            read_diag.payload.value.eq(regs.read_error_id),
            write_diag.valid.eq(self.write_error),
            write_diag.payload.code.eq(DiagnosticCode.WRITE_ERROR),
            write_diag.payload.register.eq(id_error),
            write_diag.payload.value.eq(regs.write_error_id),
        ]
        assertions.ports(m, platform, self)
        return m

    def _addresses(
        self,
        m: Module,
        channel: str,
        clients: Iterable,
        split: BurstSplitter,
        skid: SkidBuffer,
        order: SplitTracker,
        room: Signal,
    ) -> Signal:
        """Issue the clients' requests on address channel "ar" or "aw" while there is `room`.

        Returns the strobe of an issued burst.
        """
        axi = {name: getattr(self.axi, f"{channel}{name}") for name in _ADDRESS_MEMBERS}
        issue = Signal()
        for n, client in enumerate(clients):
            m.d.comb += [
                split.valid[n].eq(client.req.valid),
                split.addr[n].eq(client.req.payload.addr),
                split.beats_m1[n].eq(client.req.payload.beats_m1),
                client.req.ready.eq(split.ready[n]),
            ]
        m.d.comb += [
            split.base.eq(self.dma_base),
            split.allow.eq(skid.i.ready & room),
            issue.eq(split.o_valid & split.allow),
            skid.i.valid.eq(split.o_valid & room),
            skid.i.payload.eq(split.o),
            order.push.eq(issue),
            order.push_id.eq(split.o.id),
            order.push_more.eq(split.more),
            axi["valid"].eq(skid.o.valid),
            axi["id"].eq(skid.o.payload.id),
            axi["addr"].eq(skid.o.payload.addr),
            axi["len"].eq(skid.o.payload.beats_m1),
            axi["size"].eq(BEAT_SHIFT),
            axi["burst"].eq(Burst.INCR),
            skid.o.ready.eq(axi["ready"]),
        ]
        return issue

    def _elaborate_reads(self, m: Module, regs: DmaRegisters, platform: object) -> tuple[Signal, Signal]:
        """Connect the readers; returns whether nothing is to do, and the number of outstanding bursts."""
        axi = self.axi
        m.submodules.read_splitter = split = BurstSplitter(len(ReadClient), unbased=ReadClient.PC)
        m.submodules.ar = ar = SkidBuffer(BURST)
        m.submodules.read_order = order = SplitTracker(len(ReadClient))
        under_way = Signal(range(MAX_OUTSTANDING))
        finish, room = Signal(), Signal()
        issue = self._addresses(m, "ar", self.reads, split, ar, order, room)
        m.d.comb += [
            room.eq((under_way < regs.read_limit) | (under_way == 0)),
            finish.eq(axi.rvalid & axi.rready & axi.rlast),
        ]
        m.d.sync += [under_way.eq(under_way + issue - finish), axi.rready.eq(1)]
        assertions.bounded(m, platform, under_way, "Ddma.reads", up=issue, down=finish, given=True)

        # Responses: one register, then directly to the client; the split flag arrives in the same cycle.
        client_id = axi.rid[:3]
        valid, last, error = Signal(), Signal(), Signal()
        rid = Signal(3, reset_less=True)
        payload = Signal(AXI_BITS, reset_less=True)
        bad = Signal(len(ReadClient))
        m.d.comb += [order.pop.eq(finish), order.pop_id.eq(client_id)]
        m.d.sync += valid.eq(axi.rvalid & axi.rready)
        with m.If(axi.rvalid):
            m.d.sync += [
                payload.eq(axi.rdata),
                rid.eq(client_id),
                last.eq(axi.rlast),
                error.eq(axi.rresp[1]),
            ]
        for client in self.reads:
            m.d.comb += [
                client.rsp.payload.data.eq(payload),
                client.rsp.payload.last.eq(last & ~order.more),
            ]
        with m.If(valid):
            with m.Switch(rid):
                for n, client in enumerate(self.reads):
                    with m.Case(n):
                        m.d.comb += [client.rsp.valid.eq(1), self.read_error.eq(error & ~bad[n])]
                        m.d.sync += bad[n].eq((bad[n] | error) & ~last)
        m.d.comb += regs.read_error_id.eq(rid)

        idle = Signal(name="reads_idle")
        m.d.comb += idle.eq(~split.pending & (under_way == 0) & ~valid)
        return idle, under_way

    def _elaborate_writes(self, m: Module, regs: DmaRegisters, platform: object) -> tuple[Signal, Signal]:
        """Connect the writers; returns the same as `_elaborate_reads`."""
        axi = self.axi
        m.submodules.write_splitter = split = BurstSplitter(len(WriteClient))
        m.submodules.aw = aw = SkidBuffer(BURST)
        m.submodules.w = w = SkidBuffer(W_BEAT)
        m.submodules.write_order = order = SplitTracker(len(WriteClient))
        # Bursts whose data have not been sent yet, in the order of their addresses.
        todo_layout = data.StructLayout({"id": 1, "beats_m1": 4})
        m.submodules.todo = todo = SyncFIFOBuffered(width=todo_layout.size, depth=16)
        under_way = Signal(range(MAX_OUTSTANDING))
        finish, room = Signal(), Signal()
        issue = self._addresses(m, "aw", self.writes, split, aw, order, room)
        m.d.comb += [
            room.eq(((under_way < regs.write_limit) | (under_way == 0)) & todo.w_rdy),
            todo.w_en.eq(issue),
            todo.w_data.eq(Cat(split.o.id[0], split.o.beats_m1)),
            finish.eq(axi.bvalid & axi.bready),
        ]
        m.d.sync += [under_way.eq(under_way + issue - finish), axi.bready.eq(1)]
        assertions.bounded(m, platform, under_way, "Ddma.writes", up=issue, down=finish, given=True)
        assertions.has_room(m, platform, todo, "Ddma.todo")
        assertions.has_value(m, platform, todo, "Ddma.todo")

        # Data follow their address: the first beat of a burst is sent after its AW has been accepted.
        taken = Signal(range(32))
        sent, burst_end = Signal(), Signal()
        beat = Signal(4)
        now = data.View(todo_layout, todo.r_data)
        go = Signal()
        m.d.comb += [
            go.eq(todo.r_rdy & (taken != 0)),
            w.i.payload.last.eq(beat == now.beats_m1),
            sent.eq(w.i.valid & w.i.ready),
            burst_end.eq(sent & w.i.payload.last),
            todo.r_en.eq(burst_end),
        ]
        with m.If(go):
            with m.Switch(now.id):
                for n, client in enumerate(self.writes):
                    with m.Case(n):
                        m.d.comb += [
                            w.i.valid.eq(client.data.valid),
                            w.i.payload.data.eq(client.data.payload.data),
                            w.i.payload.strb.eq(client.data.payload.strb),
                            client.data.ready.eq(w.i.ready),
                        ]
        addressed = axi.awvalid & axi.awready
        m.d.sync += taken.eq(taken + addressed - burst_end)
        assertions.bounded(m, platform, taken, "Ddma.addressed", up=addressed, down=burst_end)
        with m.If(sent):
            m.d.sync += beat.eq(Mux(w.i.payload.last, 0, beat + 1))
        m.d.comb += [
            axi.wvalid.eq(w.o.valid),
            axi.wdata.eq(w.o.payload.data),
            axi.wstrb.eq(w.o.payload.strb),
            axi.wlast.eq(w.o.payload.last),
            w.o.ready.eq(axi.wready),
        ]

        valid, error = Signal(), Signal()
        bid = Signal(1, reset_less=True)
        m.d.comb += [order.pop.eq(finish), order.pop_id.eq(axi.bid[0])]
        m.d.sync += [valid.eq(finish), bid.eq(axi.bid[0]), error.eq(axi.bresp[1])]
        with m.If(valid):
            m.d.comb += self.write_error.eq(error)
            with m.Switch(bid):
                for n, client in enumerate(self.writes):
                    with m.Case(n):
                        m.d.comb += client.done.eq(~order.more)
        m.d.comb += regs.write_error_id.eq(bid)

        idle = Signal(name="writes_idle")
        m.d.comb += idle.eq(~split.pending & (under_way == 0) & ~valid)
        m.d.comb += self.levels.WRITE_QUEUE.eq(todo.level)
        return idle, under_way
