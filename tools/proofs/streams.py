"""Proofs of FIFOs, stream buffers and mergers."""

from __future__ import annotations

from amaranth.hdl import Value
from amaranth.lib.fifo import SyncFIFO, SyncFIFOBuffered

from rkcosim.rtl.bus import DiagnosticMerge, SkidBuffer
from tools.proofs.bench import Bench, in_order, stable


def _fifo(bench: Bench, fifo: SyncFIFO | SyncFIFOBuffered) -> None:
    m = bench.m
    m.submodules.fifo = fifo
    m.d.comb += [
        fifo.w_en.eq(bench.free("w_en")),
        fifo.w_data.eq(bench.free("w_data", fifo.width)),
        fifo.r_en.eq(bench.free("r_en")),
    ]
    enters, leaves = fifo.w_en & fifo.w_rdy, fifo.r_en & fifo.r_rdy
    inside = in_order(bench, "values", enters, fifo.w_data, leaves, fifo.r_data, fifo.depth)
    bench.claim("the level is the number of values inside", fifo.level == inside)
    bench.claim("there is room for a value unless the FIFO is full", fifo.w_rdy | (inside >= fifo.depth - 1))
    stable(bench, "output", fifo.r_rdy, fifo.r_en, fifo.r_data)
    bench.reach(inside == fifo.depth)
    bench.reach(leaves & (inside == 1))


def sync_fifo(bench: Bench) -> None:
    """SyncFIFO of two values, as in the list fetcher and the decompressor."""
    _fifo(bench, SyncFIFO(width=8, depth=2))


def sync_fifo_buffered(bench: Bench) -> None:
    """SyncFIFOBuffered, as in front of and behind the DMA."""
    _fifo(bench, SyncFIFOBuffered(width=8, depth=4))


def skid_buffer(bench: Bench) -> None:
    """SkidBuffer: order, stability, and one transfer in each cycle."""
    block = bench.drive("block", SkidBuffer(32))
    given, shown = block.i, block.o
    enters, leaves = given.valid & given.ready, shown.valid & shown.ready
    inside = in_order(bench, "values", enters, given.payload, leaves, shown.payload, 2)
    stable(bench, "output", shown.valid, shown.ready, shown.payload)
    bench.claim("a value inside is offered", shown.valid == (inside != 0))
    bench.claim("there is room unless two values are inside", given.ready == (inside != 2))
    passing = bench.past(shown.valid & shown.ready, name="passing")
    bench.claim("a consumer that takes every value never lets the buffer fill", ~passing | given.ready)
    bench.reach((inside == 2) & ~shown.ready)
    bench.reach(enters & leaves)


class _ShortMerge(DiagnosticMerge):
    DEPTH = 2


def diagnostic_merge(bench: Bench) -> None:
    """DiagnosticMerge: each event leaves once, in order, the first port first."""
    block = _ShortMerge(2)
    bench.drive("block", block)
    for port in (0, 1):
        source = block.i[port]
        # The lowest bit of an event is the number of its port, three bits differ between events.
        bench.assume(Value.cast(source.payload)[4:] == 0)
        bench.assume(source.payload.code[0] == port)
        mine = block.o.valid & (block.o.payload.code[0] == port)
        name = f"port {port}"
        inside = in_order(
            bench, name, source.valid, source.payload.code[:4], mine, block.o.payload.code[:4], 2
        )
        bench.assume(~source.valid | (inside < 2))  # an event at a full buffer is lost, as documented
        if port == 0:
            bench.claim("a waiting event of the first port leaves at once", (inside == 0) | mine)
        bench.reach((inside == 2) & ~mine if port else mine & source.valid)
    bench.claim("no event appears from nowhere", ~block.o.valid | (block.o.payload.code[4:] == 0))
