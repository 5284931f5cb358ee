"""Feature loader against a numpy model that places every atom by the rules of docs/reference."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest

from rkcosim.rtl.layouts import DiagnosticCode
from rkcosim.rtl.npu.cna_feature import GROUP_ROWS, CubeWalk, FeatureLoader
from rkcosim.spec.config import RK3588, SMALL, NpuConfig
from rkcosim.spec.regs import registers
from tests.block.cna_bench import Image, Memory, configure, converted, memory_bytes, random_cvt
from tests.extent import extent
from tests.simulation import shared, simulation

ATOM_CHANNELS = {0: 16, 1: 8, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 4}
"""Channels per atom by precision code; the reserved codes count as int8 [HW 3]."""

TYPES = (0, 0, 1, 2, 3, 6, 7)


@dataclass
class Task:
    """Register values of a feature load, as far as the loader uses them."""

    width: int = 4
    height: int = 4
    channels: int = 16
    line_stride: int = 16
    surf_stride: int = 0
    group_line_off: int = 0
    base: int = 0x1000
    entries: int = 1
    burst_m1: int = 15
    reuse: int = 0
    argb: int = 0
    cvt: dict | None = None
    data_bank: int = 6
    weight_bank: int = 6
    precision: int = 0

    def registers(self) -> dict[str, dict[str, int]]:
        """Field values by register."""
        values = {
            "CONV_CON1": {
                "IN_PRECISION": self.precision,
                "PROC_PRECISION": self.precision,
                "GROUP_LINE_OFF": self.group_line_off,
                "ARGB_IN": 7 + self.argb if self.argb else 0,
                "NONALIGN_DMA": bool(self.argb),
            },
            "DATA_SIZE0": {"DATAIN_WIDTH": self.width, "DATAIN_HEIGHT": self.height},
            "DATA_SIZE1": {"DATAIN_CHANNEL": self.channels},
            "CBUF_CON0": {
                "DATA_BANK": self.data_bank,
                "WEIGHT_BANK": self.weight_bank,
                "DATA_REUSE": self.reuse,
            },
            "CBUF_CON1": {"DATA_ENTRIES": self.entries},
            "CVT_CON0": {"CVT_BYPASS": 1},
            "FEATURE_DATA_ADDR": {"FEATURE_BASE_ADDR": self.base},
            "DMA_CON0": {"DATA_BURST_LEN": self.burst_m1},
            "DMA_CON1": {"LINE_STRIDE": self.line_stride},
            "DMA_CON2": {"SURF_STRIDE": self.surf_stride},
            "FC_DATA_SIZE0": {"DMA_WIDTH": self.width, "DMA_HEIGHT": self.height},
            "FC_DATA_SIZE1": {"DMA_CHANNEL": self.channels},
        }
        for name, fields in (self.cvt or {}).items():
            values[name] = fields
        return values

    @property
    def surfaces(self) -> int:
        """Atoms per pixel."""
        return -(-self.channels // ATOM_CHANNELS[self.precision])

    @property
    def row_used(self) -> int:
        """Entries that a row uses."""
        full, rest = divmod(self.surfaces, 4)
        if rest == 3:
            full, rest = full + 1, 0
        return full * self.width + {0: 0, 1: -(-self.width // 4), 2: -(-self.width // 2)}[rest]


def twin(task: Task, cfg: NpuConfig) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Return expected CBUF bytes, the atoms that are written, and the atoms of each row."""
    if task.group_line_off:
        line = task.line_stride
        surface = task.width + task.surf_stride
    else:
        line = task.line_stride // 4
        surface = 4 * task.width + task.surf_stride
    full, rest = divmod(task.surfaces, 4)
    if rest == 3:
        full, rest = full + 1, 0
    image = np.zeros(cfg.cbuf_entries * 64, dtype=np.uint8)
    written = np.zeros(cfg.cbuf_entries * 4, dtype=int)
    rows = []
    for y in range(task.height):
        atoms = []
        for c1 in range(task.surfaces):
            for x in range(task.width):
                slab, j = divmod(c1, 4)
                entry = y * task.entries + slab * task.width
                if slab < full:
                    entry, column = entry + x, j
                elif rest == 1:
                    entry, column = entry + x // 4, x % 4
                else:
                    entry, column = entry + x // 2, 2 * (x % 2) + j
                if entry >= (cfg.cbuf_banks - task.weight_bank) * cfg.bank_entries:
                    continue  # it is not stored
                atom = entry * 4 + column
                addr = task.base + 16 * (c1 * surface + y * line + x)
                raw = memory_bytes(addr % (1 << 32), 16)
                if task.cvt:
                    raw = [converted(int(byte), c, task.cvt, 8) for c, byte in enumerate(raw)]
                image[16 * atom : 16 * atom + 16] = raw
                written[atom] += 1
                atoms.append(atom)
        rows.append(np.array(atoms, int))
    return image, written, rows


def run_loader(jobs: list[Task], check, rng: random.Random, *, latency=(3, 3), stall=0.0, cfg=SMALL):
    """Run the jobs one after the other on one loader; returns a result for each.

    `check(number, image, rows_ready)` is called in every cycle in which `rows_ready` has grown.
    """
    dut = shared(FeatureLoader, cfg)
    results = []

    async def bench(ctx):
        for number, task in enumerate(jobs):
            memory, image = Memory(rng, latency, stall), Image(cfg)
            diagnostics = []
            configure(ctx, dut.cfg, task.registers())
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            cycles, rows, asked = 1, 0, None
            offered, fell, waits = 0, 0, False
            while True:
                memory.drive(ctx, dut.read, dut.beats, cfg.read_fifo_beats)
                ready = rng.random() >= stall
                ctx.set(dut.fill.ready, ready)
                sample = await ctx.tick().sample(
                    dut.read.req.valid,
                    dut.read.req.ready,
                    dut.read.req.payload,
                    dut.fill.valid,
                    dut.fill.payload,
                    dut.rows_ready,
                    dut.asking,
                    dut.activity.IDLE,
                    dut.done,
                    dut.diag.valid,
                    dut.diag.payload,
                )
                *_, valid, fill, now_ready, asking, idle, done, d_valid, d_payload = sample
                assert asked is None or not asking, "the level is raised once"
                if sample[2] and not waits:
                    offered = cycles
                waits = sample[2] and not sample[3]
                if not asking and asked is None:
                    asked = len(memory.requests) + sample[2]  # the last one may still be in progress
                    fell = cycles
                if now_ready != rows:
                    assert now_ready > rows
                    check(number, image, now_ready)
                    rows = now_ready
                memory.see(*sample[2:5])
                image.see(valid, ready, fill)
                if d_valid:
                    diagnostics.append((d_payload.code, d_payload.register, d_payload.value))
                cycles += 1
                if done:
                    assert not idle, "it ends in the last cycle in which it is at work"
                    break
                assert cycles < 8_000, f"{task} does not end"
            assert not memory.waiting and asked == len(memory.requests) and not ctx.get(dut.beats)
            assert not asked or fell == offered, "the level ends as the last request is offered"
            assert not ctx.get(dut.done), "the end is a pulse"
            assert rows == task.height
            results.append((image, memory, diagnostics, cycles))

    simulation(dut).run(bench)
    return results


def random_task(rng: random.Random) -> Task:
    """A cube, a slice of one, or a row-major matrix that fits the small CBUF."""
    kind = rng.choice(["cube", "cube", "slice", "pitch", "matrix", "wide_matrix"])
    task = Task(base=rng.randrange(1 << 28) * 16, burst_m1=rng.choice([15, 15, 15, 7, 3, 0, 5]))
    if rng.random() < 0.1:
        task.base = (1 << 32) - 16 * rng.randrange(1, 60)
    task.precision = rng.choice(TYPES)
    atom = ATOM_CHANNELS[task.precision]
    task.channels = rng.choice([rng.randint(1, 9 * atom), atom * rng.randint(1, 9)])
    task.width = rng.choice([1, 2, 3, 4, 5, 7, 8, 13, 16])
    task.height = rng.choice([1, 2, 3, 4, 5, 6, 7, 8])
    if kind == "matrix":
        task.width, task.group_line_off = 1, 1
        task.height = rng.randint(1, 12)
        task.line_stride = task.surfaces + rng.choice([0, 0, 1, 5])
        task.surf_stride = 0
    elif kind == "wide_matrix":
        # surfaces that follow each other as in a matrix, but several pixels wide
        task.group_line_off = 1
        task.line_stride = task.surfaces * task.width + rng.choice([0, 0, 3])
    elif kind == "pitch":
        task.group_line_off = 1
        task.line_stride = task.width + rng.choice([0, 1, 2, 9])
        task.surf_stride = task.line_stride * (task.height - 1) + rng.choice([0, 0, 3])
    else:
        whole = task.height + (rng.randint(1, 9) if kind == "slice" else 0)
        line = task.width + (rng.randint(0, 3) if kind == "slice" else 0)
        task.line_stride = 4 * line
        task.surf_stride = line * whole - 4 * task.width
    task.entries = task.row_used + rng.choice([0, 0, 0, 1, 3])
    while task.height * task.entries > SMALL.cbuf_entries:
        task.height -= 1
        if not task.height:
            return random_task(rng)
    if rng.random() < 0.1:
        task.entries += SMALL.cbuf_entries * rng.randint(1, 3)  # only one row is stored
    task.weight_bank = rng.choice([1, 1, 1, 6, 10, 11, 12, 15])
    if task.precision == 0 and rng.random() < 0.5:
        task.cvt = random_cvt(rng)
    return task


def run_against_twin(jobs, rng, **options):
    """Every row that counts as ready must be correct, and at the end nothing else may have been written."""
    expected = [twin(task, SMALL) for task in jobs]

    def check(number, image, rows_ready):
        want, _, rows = expected[number]
        atoms = np.concatenate(rows[:rows_ready])
        got = image.bytes.reshape(-1, 16)[atoms]
        assert (got == want.reshape(-1, 16)[atoms]).all(), f"{jobs[number]}: rows below {rows_ready}"

    results = run_loader(jobs, check, rng, **options)
    for task, (want, written, _), (image, *_) in zip(jobs, expected, results, strict=True):
        assert (image.written == written).all(), f"{task}: writes"
        assert (image.bytes == want).all(), f"{task}: bytes"
    return results


@pytest.mark.parametrize("seed", range(4))
def test_random_cubes(seed):
    rng = random.Random(seed)
    print("seed", seed)
    jobs = [random_task(rng) for _ in range(extent(12, 30))]
    latency = rng.choice([(1, 1), (2, 20), (30, 60)])
    run_against_twin(jobs, rng, latency=latency, stall=rng.choice([0.0, 0.2, 0.5]))


NAMED = [
    Task(width=1, height=1, channels=512, line_stride=4, surf_stride=-3, entries=8),
    Task(width=3, height=3, channels=48, line_stride=12, surf_stride=-3, entries=3),
    Task(width=7, height=7, channels=112, line_stride=28, surf_stride=21, entries=14),
    Task(width=1, height=4, channels=64, line_stride=4, surf_stride=0, group_line_off=1, entries=1),
    Task(width=4, height=1, channels=64, line_stride=4, surf_stride=0, group_line_off=1, entries=4),
    Task(width=1, height=6, channels=32, line_stride=4, surf_stride=2, entries=1),
    Task(width=501, height=2, channels=16, line_stride=2004, surf_stride=-1002, entries=126),
]


def test_named_cubes():
    """Maps of 1x1 and 3x3 with negative SURF_STRIDE, both matrix forms, H = 1 [HW 4.1]."""
    run_against_twin(NAMED, random.Random(1), latency=(5, 25), stall=0.1)


def test_two_atoms_a_cycle():
    """Even widths and row-major matrices are loaded at 32 bytes per cycle, merged rows in whole bursts."""
    for task, atoms in (
        (Task(width=16, height=8, channels=64, line_stride=64, surf_stride=64, entries=16), 512),
        (Task(width=1, height=8, channels=1024, line_stride=64, group_line_off=1, entries=16), 512),
        (Task(width=14, height=8, channels=32, line_stride=64, surf_stride=72, entries=7), 224),
    ):
        ((_, memory, diagnostics, cycles),) = run_against_twin([task], random.Random(2))
        print(task, cycles, memory.requests)
        assert cycles <= atoms // 2 + 25
        assert not diagnostics
        assert max(beats for _, beats in memory.requests) == 16 or task.width == 14


def test_odd_width_rate():
    """Rows of 7 pixels need one cycle more than half their atoms for every two rows."""
    task = Task(width=7, height=8, channels=64, line_stride=28, surf_stride=28, entries=7)
    ((*_, cycles),) = run_against_twin([task], random.Random(2))
    assert cycles <= 8 * 7 * 4 * 8 // 14 + 30


def test_sizes_at_their_limit():
    """The largest number of atoms per pixel, and the deepest row-major matrix."""
    for channels, precision in extent([(65535, 0)], [(65535, 7), (65535, 0)]):
        atom = ATOM_CHANNELS[precision]
        task = Task(width=1, height=1, channels=channels, precision=precision, group_line_off=1)
        task.line_stride = task.entries = -(-channels // atom)
        task.entries = -(-task.surfaces // 4)
        task.data_bank, task.weight_bank = 9, 3
        ((image, _, diagnostics, _),) = run_loader([task], lambda *_: None, random.Random(2), cfg=RK3588)
        want = memory_bytes(task.base, 16 * task.surfaces)
        assert (image.bytes[: len(want)] == want).all() and not diagnostics


def test_type_is_named_but_not_known():
    """The reserved codes are reported and load like int8."""
    task = Task(width=3, height=3, channels=40, precision=5, line_stride=12, surf_stride=-3, entries=3)
    ((*_, diagnostics, _),) = run_against_twin([task], random.Random(3))
    assert [code for code, *_ in diagnostics] == [DiagnosticCode.RESERVED_MODE]


def test_reuse_fetches_nothing():
    task = Task(reuse=1, height=9, entries=1, width=2)
    seen = []
    ((image, memory, _, cycles),) = run_loader([task], lambda n, i, r: seen.append(r), random.Random(3))
    assert (seen, memory.requests, image.atoms) == ([9], [], 0)
    assert cycles < 40


GOOD = Task(width=4, height=4, channels=64, line_stride=16, surf_stride=0, entries=4)


@pytest.mark.parametrize(
    ("register", "changes", "code"),
    [
        ("CBUF_CON0", {"WEIGHT_BANK": 7}, "BANK_SUM"),
        ("CBUF_CON0", {"FC_DATA_BANK": 1, "WEIGHT_BANK": 5}, "RESERVED_MODE"),
        ("CBUF_CON0", {"DATA_BANK": 0}, "FEATURE_FOOTPRINT"),
        ("CBUF_CON1", {"DATA_ENTRIES": 3}, "FEATURE_FOOTPRINT"),
        ("FEATURE_DATA_ADDR", {"FEATURE_BASE_ADDR": 0x1008}, "UNALIGNED_ADDRESS"),
        ("DMA_CON1", {"LINE_STRIDE": 18}, "SIZE_MISMATCH"),
        ("FC_DATA_SIZE0", {"DMA_WIDTH": 5}, "SIZE_MISMATCH"),
        ("FC_DATA_SIZE1", {"DMA_CHANNEL": 32}, "SIZE_MISMATCH"),
        ("CONV_CON1", {"CONV_MODE": 1}, "RESERVED_MODE"),
        ("CONV_CON1", {"ARGB_IN": 3}, "RESERVED_MODE"),
        ("CONV_CON1", {"ARGB_IN": 12, "NONALIGN_DMA": 1}, "RESERVED_MODE"),
        ("CONV_CON1", {"NONALIGN_DMA": 1}, "RESERVED_MODE"),
        ("CONV_CON1", {"PROC_PRECISION": 2}, "RESERVED_MODE"),
        ("CONV_CON1", {"IN_PRECISION": 4, "PROC_PRECISION": 4}, "RESERVED_MODE"),
        ("CONV_CON1", {"IN_PRECISION": 5, "PROC_PRECISION": 5}, "RESERVED_MODE"),
        ("CONV_CON1", {"IN_PRECISION": 6, "PROC_PRECISION": 6, "CONV_MODE": 3}, "RESERVED_MODE"),
        (
            "CONV_CON1",
            {"IN_PRECISION": 7, "PROC_PRECISION": 7, "ARGB_IN": 8, "NONALIGN_DMA": 1},
            "RESERVED_MODE",
        ),
        ("FC_CON0", {"FC_SKIP_EN": 1}, "RESERVED_MODE"),
    ],
)
def test_diagnostics(register, changes, code):
    """Each suspicious setting is reported once, with its register and value, and the task ends."""
    values = GOOD.registers()
    values[register] = {**values.get(register, {}), **changes}

    class Changed(Task):
        def registers(self):
            return values

    task = Changed(**vars(GOOD))
    if changes.get("IN_PRECISION") in (6, 7):
        values["CBUF_CON1"] = {"DATA_ENTRIES": 16}
    ((*_, diagnostics, _),) = run_loader([task], lambda *_: None, random.Random(4))
    described = registers()["CNA"][register]
    assert diagnostics == [(DiagnosticCode[code], described.offset, described.encode(**values[register]))]


@pytest.mark.parametrize("channels", [64, 48, 32, 16, 80, 96, 112])
def test_footprint_is_exact(channels):
    """The last row counts with the entries it uses: full slabs, rests, and three atoms as a slab."""
    for width in (9, 8):
        task = Task(width=width, channels=channels, line_stride=4 * width, surf_stride=0)
        task.entries = task.row_used
        task.height = -(-SMALL.bank_entries // task.row_used) + 1  # the first height that is too large
        task.data_bank, task.weight_bank = 1, 1
        above = (task.height - 1) * task.entries + task.row_used > SMALL.bank_entries
        while above:
            ((*_, diagnostics, _),) = run_loader([task], lambda *_: None, random.Random(6))
            assert [code for code, *_ in diagnostics] == [DiagnosticCode.FEATURE_FOOTPRINT]
            task.height -= 1
            above = task.height * task.entries > SMALL.bank_entries
        if task.height:
            ((*_, diagnostics, _),) = run_loader([task], lambda *_: None, random.Random(6))
            assert not diagnostics


def test_rows_behind_the_last_window_do_not_count():
    """Of 17 rows with a stride of 2 one may be of no window: 16 that fit are enough, 15 are not."""
    rows = SMALL.bank_entries // 4
    for height, codes in ((rows + 1, []), (rows + 2, [DiagnosticCode.FEATURE_FOOTPRINT])):
        task = Task(
            width=4, height=height, channels=64, line_stride=16, entries=4, data_bank=1, weight_bank=1
        )
        task.cvt = {"CONV_CON3": {"CONV_Y_STRIDE": 2}}
        ((*_, diagnostics, _),) = run_loader([task], lambda *_: None, random.Random(6))
        assert [code for code, *_ in diagnostics] == codes


def test_other_types_are_not_converted():
    """CVT_BYPASS 0 outside of ARGB mode is reported for int16, whose atoms are stored as they are."""
    task = Task(width=2, height=2, channels=16, line_stride=8, entries=4, precision=1)
    expected = twin(task, SMALL)[0]
    task.cvt = {"CVT_CON0": {"CVT_BYPASS": 0}, "CVT_CON5": {"PER_CHANNEL_CVT_EN": 0xFFFF}}
    ((image, _, diagnostics, _),) = run_loader([task], lambda *_: None, random.Random(5))
    where = registers()["CNA"]["CVT_CON0"].offset
    assert [(code, register) for code, register, _ in diagnostics] == [(DiagnosticCode.RESERVED_MODE, where)]
    assert (image.bytes == expected).all()


def test_empty_size_ends():
    task = Task(width=0, height=2, entries=1)
    ((_, memory, diagnostics, _),) = run_loader([task], lambda *_: None, random.Random(5))
    assert memory.requests == []
    assert [code for code, *_ in diagnostics] == [DiagnosticCode.EMPTY_SIZE]


def test_the_order_of_rows_in_each_cycle():
    """Groups of rows, surfaces and rows, with pauses; each row says whether it is the last one."""
    rng, dut = random.Random(3), CubeWalk()
    jobs = []
    for _ in range(30):
        grouped, surfaces, rows = rng.randrange(2), rng.randrange(1, 4), rng.randrange(1, 11)
        size = GROUP_ROWS if grouped else 1
        groups = [range(first, min(first + size, rows)) for first in range(0, rows, size)]
        places = [
            (row - here[0], surface, row == here[-1], surface == surfaces - 1, row == rows - 1)
            for here in groups
            for surface in range(surfaces)
            for row in here
        ]
        jobs.append((grouped, surfaces, rows, places))

    async def bench(ctx):
        for grouped, surfaces, rows, places in jobs:
            for port, value in ((dut.grouped, grouped), (dut.surfaces, surfaces), (dut.rows, rows)):
                ctx.set(port, value)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            for row, surface, last_row, last_surface, last in places:
                for step in (*([0] * rng.choice([0, 0, 2])), 1):
                    ctx.set(dut.step, step)
                    _, _, *seen = await ctx.tick().sample(
                        dut.row, dut.surface, dut.last_row, dut.last_surface, dut.last_group
                    )
                    assert seen == [row, surface, last_row, last_surface, last]
            ctx.set(dut.step, 0)

    simulation(dut).run(bench)
