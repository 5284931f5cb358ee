"""Weight loader: fetches the weight stream of a task into its CBUF ring ([HW 4.7], [HW 4.13])."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.counters import drive_activity
from rkcosim.rtl.layouts import DiagnosticCode, DiagnosticPort
from rkcosim.rtl.npu.checks import SPACING, Check, add_checker
from rkcosim.rtl.npu.cna_decompress import Decompressor
from rkcosim.rtl.npu.cna_fetch import ATOM_ADDRESS_BITS, BurstReader, loader_members
from rkcosim.rtl.npu.cna_types import DEPTHWISE, TypeOf, at_most
from rkcosim.spec.config import NpuConfig
from rkcosim.spec.regs.counters import LEVEL_BITS
from rkcosim.spec.weight_code import CONTROL


class WeightLoader(wiring.Component):
    """Fetch WEIGHT_BYTES in order into the ring of WEIGHT_BANK banks at the end of CBUF.

    A place of the ring is overwritten only after the sequence controller has released its contents:
    `loaded - released` never exceeds the size of the ring. Two atoms are written per cycle, or one atom of
    compressed weights, which are decompressed before they are written.

    Members
    -------
    cfg, start, done, read, fill, diag, activity, beats : see `loader_members`; `done`: all weights
        are in CBUF.
    loaded : Out(32)   : bytes of the stream that have been loaded, a multiple of 16; all of them
        from the start with WEIGHT_REUSE.  Zero from the cycle after `start` on.
    released : In(32)  : bytes of the stream that are no longer needed; zero after `start`.
    give_way : In(1)   : feature rows are still being requested: only the weights of the first kernel group
        are fetched, since those of the next group are not needed before the last rows are in CBUF.
    held : Out(16)     : atoms in the ring that are still needed.
    three_atoms : In(1) : the option d1_three_atoms_int8.
    code_diag : Out(DiagnosticPort()) : diagnostics about compressed weights.
    """

    def __init__(self, cfg: NpuConfig) -> None:
        self._cfg = cfg
        super().__init__(
            loader_members("CNA_WEIGHT")
            | {"loaded": Out(32), "released": In(32), "give_way": In(1), "held": Out(LEVEL_BITS)}
            | {"three_atoms": In(1), "code_diag": Out(DiagnosticPort())}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cfg = self.cfg
        total = cfg.WEIGHT_SIZE0.WEIGHT_BYTES
        m.submodules.reader = reader = BurstReader(self._cfg)
        wiring.connect(m, reader.read, wiring.flipped(self.read))
        m.submodules.decompressor = packed = Decompressor()
        wiring.connect(m, wiring.flipped(cfg), packed.cfg)
        wiring.connect(m, packed.diag, wiring.flipped(self.code_diag))
        is_packed = Signal()  # the task fetches compressed weights
        m.d.comb += is_packed.eq(self._decompress() & ~cfg.CBUF_CON0.WEIGHT_REUSE)

        # 1. Start: the first kernel group is one run, the rest of the stream another; the reader joins them
        # if the second is offered in time.
        starting = Signal()  # the cycle after `start`
        counted = Signal(2)
        loading = Signal()
        asking, asking_rest = Signal(), Signal()
        first_atoms = Signal(ATOM_ADDRESS_BITS + 1, reset_less=True)
        needed = Signal(46, reset_less=True)  # bytes that the sequence controller needs
        group = Signal(32, reset_less=True)  # bytes of one kernel group
        part = Signal(32, reset_less=True)  # minimum of bytes that must be in the ring at the same time
        self._count_needed(m, starting, needed, group, part)
        m.d.sync += counted.eq(Cat(starting, counted[0]))
        atoms = Signal(ATOM_ADDRESS_BITS + 1, reset_less=True)
        ring_start = Signal(13, reset_less=True)
        ring_atoms = Signal(range(4 * self._cfg.cbuf_entries * 2), reset_less=True)
        present = Signal(ATOM_ADDRESS_BITS + 1)  # atoms written and taken
        written = Signal(ATOM_ADDRESS_BITS + 1)  # atoms handed to the fill register
        entry = Signal(13, reset_less=True)
        column = Signal(2, reset_less=True)
        half = Signal()
        banks = cfg.CBUF_CON0.WEIGHT_BANK
        first_entry = Signal(13)
        m.d.comb += first_entry.eq((self._cfg.cbuf_banks - banks) * self._cfg.bank_entries)
        with m.If(self.start):
            m.d.sync += [starting.eq(1), present.eq(0)]
        with m.If(starting):
            m.d.sync += [
                starting.eq(0),
                loading.eq(1),
                atoms.eq((total + 15) >> 4),
                ring_start.eq(first_entry),
                ring_atoms.eq(banks * (4 * self._cfg.bank_entries)),
                entry.eq(first_entry),
                column.eq(0),
                half.eq(0),
                written.eq(0),
            ]
            with m.If(cfg.CBUF_CON0.WEIGHT_REUSE):
                m.d.sync += [present.eq((total + 15) >> 4), written.eq((total + 15) >> 4)]
        with m.If(counted[1]):
            fetch = ~cfg.CBUF_CON0.WEIGHT_REUSE & ~is_packed & (atoms != 0)
            some = (group[4:] != 0) & (group[4:] < atoms)
            m.d.sync += [
                asking.eq(fetch),
                asking_rest.eq(fetch & some),
                first_atoms.eq(Mux(some, group[4:], atoms)),
            ]
        base = cfg.DCOMP_ADDR0.DECOMPRESS_ADDR0
        m.d.comb += [
            reader.burst_m1.eq(cfg.DMA_CON0.WEIGHT_BURST_LEN),
            reader.run.valid.eq(asking | (asking_rest & ~self.give_way)),
            reader.run.payload.addr.eq(Mux(asking, base, base + first_atoms)),
            reader.run.payload.atoms.eq(Mux(asking, first_atoms, atoms - first_atoms)),
            packed.start.eq(starting & is_packed),
            packed.run.ready.eq(reader.run.ready & is_packed),
            packed.fetched.payload.eq(reader.beat.payload),
            packed.fetched.valid.eq(reader.beat.valid & is_packed),
        ]
        with m.If(is_packed):
            m.d.comb += [
                reader.run.valid.eq(packed.run.valid),
                reader.run.payload.eq(packed.run.payload),
            ]
        with m.If(reader.run.valid & reader.run.ready):
            m.d.sync += asking.eq(0)
            with m.If(~asking):
                m.d.sync += asking_rest.eq(0)

        # 2. Store atoms, as many as the ring has room for.
        fill = self.fill
        beat = reader.beat.payload
        beat_valid, beat_ready = Signal(), Signal()
        m.d.comb += [
            beat_valid.eq(Mux(is_packed, packed.atoms.valid, reader.beat.valid)),
            reader.beat.ready.eq(Mux(is_packed, packed.fetched.ready, beat_ready)),
            packed.atoms.ready.eq(beat_ready & is_packed),
        ]
        free = Signal()
        low = Signal()
        both = Signal()
        pair = Signal()
        single = Signal()
        placed = Signal()
        ring_end = Signal()
        room = Signal(ATOM_ADDRESS_BITS + 2)
        entry_next = Signal(13)
        m.d.comb += [
            free.eq(~fill.valid | fill.ready),
            room.eq(ring_atoms + self.released[4:] - written),
            low.eq(is_packed | (beat.low & ~half)),
            both.eq(low & beat.high & ~is_packed),
            ring_end.eq(entry + 1 == self._cfg.cbuf_entries),
            # A fill must be contiguous, so the pair that would cross the end of the ring is split.
            pair.eq(both & (room[1:] != 0) & ~(ring_end & (column == 3))),
            single.eq(both & ~pair),
            placed.eq(free & beat_valid & (room != 0)),
            beat_ready.eq(free & (room != 0) & ~single),
            entry_next.eq(Mux(ring_end, ring_start, entry + 1)),
        ]
        fill_atoms = Signal(2, reset_less=True)
        with m.If(free):
            m.d.sync += fill.valid.eq(placed)
        with m.If(placed):
            m.d.sync += [
                half.eq(single),
                written.eq(written + Mux(pair, 2, 1)),
                fill_atoms.eq(Mux(pair, 2, 1)),
                fill.payload.entry.eq(entry),
                fill.payload.column.eq(column),
                fill.payload.two.eq(pair),
                fill.payload.entry2.eq(Mux(column == 3, entry_next, entry)),
                fill.payload.column2.eq(column + 1),
                column.eq(column + Mux(pair, 2, 1)),
            ]
            with m.If((column == 3) | (pair & (column == 2))):
                m.d.sync += entry.eq(entry_next)
            with m.If(is_packed):
                m.d.sync += fill.payload.data.eq(packed.atoms.payload)
            with m.Elif(low):
                m.d.sync += fill.payload.data.eq(beat.data)
            with m.Else():
                m.d.sync += fill.payload.data.eq(beat.data[128:])
        with m.If(fill.valid & fill.ready):
            m.d.sync += present.eq(present + fill_atoms)
        # 2^32 bytes (WEIGHT_REUSE with the greatest WEIGHT_BYTES) are one atom more than `loaded` can hold.
        m.d.comb += self.loaded.eq(Cat(Const(0, 4), Mux(present[-1], ~Const(0, ATOM_ADDRESS_BITS), present)))

        # 3. Checks and the end.
        checks = self._checks(needed, group, part, ring_atoms)
        check = add_checker(m, "CNA", cfg, counted[1], self.diag, checks, spacing=SPACING)
        fetched = reader.idle & ~asking & ~asking_rest & ~packed.active
        m.d.comb += [
            self.done.eq(loading & (present == atoms) & fetched & ~check.busy & (counted == 0)),
            self.held.eq(written - self.released[4:]),
            self.beats.eq(reader.beats),
        ]
        drive_activity(
            m,
            platform,
            "WeightLoader",
            self.activity,
            ~starting & ~loading,
            CBUF=fill.valid & ~fill.ready,
            RING=beat_valid & (room == 0),
            BUSY=starting | fill.valid | beat_valid | counted.any() | (loading & (present == atoms)),
            TURN=loading & asking_rest & ~asking & self.give_way & reader.idle,
            MEMORY=loading,
        )
        with m.If(self.done):
            m.d.sync += loading.eq(0)
        assertions.ports(m, platform, self)
        return m

    def _count_needed(self, m: Module, starting: Signal, needed: Signal, group: Signal, part: Signal) -> None:
        """Weight bytes of the task, of its first group and of a depthwise block [HW 3.6]."""
        cfg = self.cfg
        size = cfg.WEIGHT_SIZE2
        channels = cfg.DATA_SIZE1.DATAIN_CHANNEL
        depthwise = cfg.CONV_CON1.CONV_MODE == DEPTHWISE
        of = TypeOf(cfg.CONV_CON1.IN_PRECISION)
        atoms = Signal(15)  # of one tap of a kernel; three of four are stored as four
        m.d.comb += atoms.eq(of.atoms(channels))
        padded = (of.tile_log2 == 2) | (depthwise & ~self.three_atoms)
        with m.If(padded & (of.atoms(channels)[:2] == 3)):
            m.d.comb += atoms.eq(of.atoms(channels) + 1)
        kernels = Signal(14, reset_less=True)
        kernel_bytes = Signal(31, reset_less=True)
        group_kernels = Signal(7, reset_less=True)
        group_atoms = Signal(4, reset_less=True)  # of a tap of a depthwise group; two blocks: more than 4
        area = Signal(10, reset_less=True)
        # `kernels * kernel_bytes`, four bits of `kernels` per cycle: `needed` is only checked later.
        bits_left, shifted = Signal(14), Signal(46, reset_less=True)
        second = Signal()
        m.d.sync += second.eq(starting)
        with m.If(self.start):
            m.d.sync += area.eq(size.WEIGHT_WIDTH * size.WEIGHT_HEIGHT)
        with m.If(starting):
            # Depthwise: all blocks count as one kernel; a tap of a group has at most 64 bytes, or 128 for 16
            # bits.
            m.d.sync += [
                kernels.eq(Mux(depthwise, 1, size.WEIGHT_KERNELS)),
                kernel_bytes.eq(area * Cat(Const(0, 4), atoms)),
                group_kernels.eq(of.group_kernels),
                group_atoms.eq(at_most(atoms, Mux(of.half_word, 8, 4))),
            ]
        with m.If(second):
            fewer = kernels < group_kernels
            m.d.sync += [
                Cat(needed, bits_left, shifted).eq(Cat(Const(0, 46), kernels, kernel_bytes)),
                group.eq(Mux(fewer, kernels[:6], group_kernels) * kernel_bytes),
                part.eq(0),
            ]
            with m.If(depthwise):
                m.d.sync += group.eq(area * Cat(Const(0, 4), group_atoms))
                with m.If(group_atoms > 4):  # the two blocks of a tile are one whole block apart in the ring
                    m.d.sync += part.eq(Cat(Const(0, 6), area + 1))
        with m.Elif(bits_left != 0):
            m.d.sync += [
                needed.eq(needed + bits_left[:4] * shifted),
                bits_left.eq(bits_left >> 4),
                shifted.eq(shifted << 4),
            ]

    def _checks(self, needed: Signal, group: Signal, part: Signal, ring_atoms: ValueLike) -> list[Check]:
        cfg = self.cfg
        banks = cfg.CBUF_CON0
        total = cfg.WEIGHT_SIZE0.WEIGHT_BYTES
        ring_bytes = Cat(Const(0, 4), ring_atoms)
        other_control = self._decompress() & (cfg.DCOMP_CTRL.DECOMP_CONTROL != CONTROL)
        many_stripes = cfg.DATA_SIZE3.DATAOUT_ATOMICS > self._cfg.stripe_pixels
        C = DiagnosticCode
        return [
            Check("WEIGHT_SIZE0", total == 0, C.EMPTY_SIZE),
            Check("CBUF_CON0", banks.WEIGHT_BANK == 0, C.WEIGHT_FOOTPRINT),
            Check("CBUF_CON0", banks.WEIGHT_REUSE & (total > ring_bytes), C.REUSE_FOOTPRINT),
            Check(
                "WEIGHT_SIZE2",
                (many_stripes & (group > ring_bytes)) | (part > ring_bytes),
                C.WEIGHT_FOOTPRINT,
            ),
            # With fewer bytes than the loops need, the sequence controller would wait forever.
            Check("WEIGHT_SIZE0", needed > total, C.SIZE_MISMATCH),
            Check("DCOMP_CTRL", other_control & ~banks.WEIGHT_REUSE),
        ]

    def _decompress(self) -> Value:
        """Return whether the registers request decompression."""
        control = self.cfg.DCOMP_CTRL
        return (control.DECOMP_CONTROL != 0) & ~control.WT_DEC_BYPASS
