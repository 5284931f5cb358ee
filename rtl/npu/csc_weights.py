"""Weight walk of the sequence controller: tiles from the ring in CBUF to the cell's shadow registers."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl.npu.cna_types import at_most
from rkcosim.rtl.npu.csc_task import TASK
from rkcosim.rtl.regfile import config_signature

BLOCK_ATOMS = 4
"""Atoms of one tap of a whole depthwise block [HW 3.6]."""


class Chunk(data.Struct):
    """64 bytes of a tile that are read from the ring.

    Members
    -------
    place, next : atom in the ring at which they start; place after their entry.
    index : number of the chunk in the tile.
    stride : distance of kernels as `CellIn.w_stride`.
    """

    valid: 1
    place: 16
    next: 16
    index: 4
    stride: 2


class Release(wiring.Component):
    """Release of the used part of the stream, one cycle late, after the last chunk has been read.

    Members
    -------
    start : In(1)      : pulse, nothing has been used.
    advance : In(1)    : atoms up to `used` are not needed after this cycle.
    used : In(29)
    released : Out(32) : number of bytes that are released.
    """

    start: In(1)
    advance: In(1)
    used: In(29)
    released: Out(32)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        used = Signal(29)
        m.d.sync += self.released.eq(Cat(Const(0, 4), used))
        with m.If(self.start):
            m.d.sync += [used.eq(0), self.released.eq(0)]
        with m.If(self.advance):
            m.d.sync += used.eq(self.used)
        return m


class WeightWalk(wiring.Component):
    """Issue the chunks of tile after tile, each tile after the previous one has been swapped in.

    Members
    -------
    cfg : In(config_signature("CNA"))
    task : In(TASK)
    start, go : In(1)    : pulses: the task begins; its constants are valid.
    three_atoms : In(1)  : the option d1_three_atoms_int8.
    loaded : In(32)      : bytes of the weight stream that are in the ring.
    released : Out(32)   : bytes of it that will not be read again.
    swap : In(1)         : a slot is issued in this cycle that makes the tile active.
    tile_here : Out(1)   : all chunks of a tile have been issued, and no slot has made it active yet.
    chunk : Out(Chunk)   : the chunk issued in this cycle.
    """

    cfg: In(config_signature("CNA"))
    task: In(TASK)
    start: In(1)
    three_atoms: In(1)
    go: In(1)
    loaded: In(32)
    released: Out(32)
    swap: In(1)
    tile_here: Out(1)
    chunk: Out(Chunk)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        task, kernel = self.task, self.cfg.WEIGHT_SIZE2
        taps = Signal(10, reset_less=True)
        running, reading = Signal(), Signal()
        # Place of a tile: `place` in the ring and `begin` in the stream, both in atoms.
        place, begin = Signal(16, reset_less=True), Signal(29, reset_less=True)
        group_place, group_begin = Signal(16, reset_less=True), Signal(29, reset_less=True)
        chunk_place = Signal(16, reset_less=True)
        chunk_index = Signal(4, reset_less=True)
        tap, channel_group = Signal(10, reset_less=True), Signal(13, reset_less=True)
        stripe, group = Signal(18, reset_less=True), Signal(11, reset_less=True)
        kernels_left, atoms_left = Signal(14, reset_less=True), Signal(15, reset_less=True)
        # Two blocks per tile: distance of the second one from the first.  It starts as a whole block, and
        # decreases from tap to tap if the second block is not a whole one.
        apart, whole_block = Signal(12, reset_less=True), Signal(12, reset_less=True)

        full = self.tile_here

        # 1. Sizes of the tile.
        tile_kernels, tile_atoms, row_log2 = Signal(7), Signal(7), Signal(2)
        both = Signal()
        second_atoms = Signal(3)  # of the second block; if there is one, the first block has four
        rest_log2 = Signal(2)
        m.d.comb += [
            tile_kernels.eq(at_most(kernels_left, task.group_kernels)),
            # One, two or four atoms of each kernel (three count as four), at most as many as the type has.
            rest_log2.eq(Mux(atoms_left > 2, 2, atoms_left > 1)),
            row_log2.eq(at_most(rest_log2, task.tile_atoms)),
            both.eq(task.two_blocks & (atoms_left > BLOCK_ATOMS)),
            second_atoms.eq(Mux(atoms_left > BLOCK_ATOMS + 2, 4, Mux(atoms_left > BLOCK_ATOMS + 1, 2, 1))),
        ]
        after, needed, chunks = Signal(29), Signal(29), Signal(5)
        ring = Cat(Const(0, 2), task.ring_entries)
        with m.If(task.depthwise):
            three = self.three_atoms & ~task.two_blocks & (atoms_left == 3)
            m.d.comb += [tile_atoms.eq(Mux(three, 3, Const(1, 3) << rest_log2)), chunks.eq(Mux(both, 2, 1))]
        with m.Else():
            m.d.comb += [tile_atoms.eq(tile_kernels << row_log2), chunks.eq((tile_atoms + 3) >> 2)]
        second_end = apart + second_atoms
        m.d.comb += [after.eq(begin + tile_atoms), needed.eq(Mux(both, begin + second_end, after))]

        def wrapped(position: Value) -> Value:
            return Mux(position >= ring, position - ring, position)

        # 2. One chunk per cycle, once the whole tile is loaded and its shadow registers are free.
        first, issue, last = Signal(), Signal(), Signal()
        chunk = self.chunk
        m.d.comb += [
            first.eq(running & ~reading & (~full | self.swap) & (self.loaded[4:] >= needed)),
            issue.eq(first | reading),
            chunk.valid.eq(issue),
            chunk.index.eq(Mux(reading, chunk_index, 0)),
            chunk.place.eq(Mux(reading, chunk_place, place)),
            chunk.next.eq(wrapped(chunk.place + 4)),
            chunk.stride.eq(Mux(task.depthwise, 2, row_log2)),
            last.eq(chunk.index == chunks - 1),
        ]
        with m.If(self.swap):
            m.d.sync += full.eq(0)
        with m.If(issue):
            m.d.sync += [
                reading.eq(~last),
                chunk_index.eq(chunk.index + 1),
                chunk_place.eq(Mux(both, wrapped(chunk.place + apart), chunk.next)),
            ]

        m.submodules.release = release = Release()
        m.d.comb += [
            release.start.eq(self.start),
            release.used.eq(after),
            self.released.eq(release.released),
        ]

        # 3. Next tile: tap, channel group, stripe (which restarts the group), group.
        tile_place = wrapped(place + tile_atoms)
        group_end, group_end_place = Signal(29), Signal(16)
        last_group = group == task.groups - 1
        m.d.comb += [
            group_end.eq(needed),
            group_end_place.eq(Mux(both, wrapped(place + second_end), tile_place)),
        ]
        with m.If(issue & last):
            m.d.sync += [full.eq(1), place.eq(tile_place), begin.eq(after), tap.eq(tap + 1)]
            m.d.sync += apart.eq(apart - BLOCK_ATOMS + second_atoms)
            with m.If(stripe == task.stripes - 1):
                m.d.comb += release.advance.eq(1)
            with m.If(tap == taps - 1):
                m.d.sync += [tap.eq(0), channel_group.eq(channel_group + 1), apart.eq(whole_block)]
                with m.If(~task.depthwise):
                    m.d.sync += atoms_left.eq(atoms_left - (Const(1, 3) << task.tile_atoms))
                with m.If(channel_group == task.channel_groups - 1):
                    m.d.sync += [channel_group.eq(0), stripe.eq(stripe + 1)]
                    with m.If(~task.depthwise):
                        m.d.sync += atoms_left.eq(task.atoms)
                    with m.If(stripe != task.stripes - 1):
                        m.d.sync += [place.eq(group_place), begin.eq(group_begin)]
                    with m.Else():
                        m.d.comb += release.used.eq(group_end)
                        m.d.sync += [
                            stripe.eq(0),
                            group.eq(group + 1),
                            kernels_left.eq(kernels_left - task.group_kernels),
                            Cat(place, group_place).eq(group_end_place.replicate(2)),
                            Cat(begin, group_begin).eq(group_end.replicate(2)),
                            running.eq(~last_group),
                        ]
                        with m.If(task.depthwise):
                            m.d.sync += atoms_left.eq(atoms_left - (BLOCK_ATOMS << task.two_blocks))
        with m.If(self.go):
            m.d.sync += [
                running.eq(1),
                reading.eq(0),
                full.eq(0),
                taps.eq(kernel.WEIGHT_WIDTH * kernel.WEIGHT_HEIGHT),
                Cat(place, begin, group_place, group_begin).eq(0),
                Cat(tap, channel_group, stripe, group).eq(0),
                Cat(apart, whole_block).eq(
                    ((kernel.WEIGHT_WIDTH * kernel.WEIGHT_HEIGHT) << 2)[:12].replicate(2)
                ),
                kernels_left.eq(kernel.WEIGHT_KERNELS),
                atoms_left.eq(task.atoms),
            ]
        return m
