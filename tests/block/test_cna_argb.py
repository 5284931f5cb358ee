"""ARGB mode of the feature loader against a model with the exact converter of [HW 4.3]."""

from __future__ import annotations

import random

import numpy as np
import pytest

from rkcosim.rtl.layouts import DiagnosticCode
from rkcosim.spec.regs import registers
from tests.block.cna_bench import converted, memory_bytes, random_cvt
from tests.block.test_cna_feature import Task, run_loader

ROOM = {1: 4, 2: 8, 3: 16, 4: 16}
"""Elements per pixel in CBUF, by the number of channels [HW 4.6]."""

FLOATS = (2, 3)


def element_bytes(task: Task) -> int:
    return 2 if task.precision in (1, 2, 3) else 1


def slot(task: Task) -> int:
    """CBUF bytes per pixel."""
    return ROOM[task.argb] * element_bytes(task)


def twin(task: Task) -> np.ndarray:
    """Return the bytes of all slots, row by row; unused bytes are zero."""
    channels, pitch = task.argb, task.line_stride
    size = element_bytes(task)
    kind = np.dtype(f"<u{size}")
    slots = np.zeros((task.height * pitch, ROOM[channels]), dtype=kind)
    data = memory_bytes(task.base, len(slots) * channels * size).view(kind).reshape(-1, channels)
    if task.precision in FLOATS:
        slots[:, :channels] = data
    else:
        for channel in range(channels):
            values, where = np.unique(data[:, channel], return_inverse=True)
            new = [converted(int(v), channel, task.cvt, 8 * size) for v in values]
            slots[:, channel] = np.array(new, dtype=kind)[where]
    return slots.reshape(-1).view(np.uint8)


def image_task(rng: random.Random, channels: int, precision: int = 0) -> Task:
    width = rng.choice([1, 2, 3, 5, 8, 13, 30, 64])
    pitch = width + rng.choice([0, 0, 1, 3, 16])
    slots = 24000 // ROOM[channels] // (1 if precision == 0 else 2)
    height = max(1, min(rng.randint(1, 12), slots // pitch))
    return Task(
        width=width,
        height=height,
        channels=16,
        precision=precision,
        line_stride=pitch,
        group_line_off=1,
        base=16 * rng.randrange(1 << 28),
        argb=channels,
        cvt=random_cvt(rng),
        entries=pitch * height,
        data_bank=12,
        weight_bank=0,
    )


def run_against_twin(jobs, rng, **options):
    expected = [twin(task) for task in jobs]

    def check(number, image, rows_ready):
        task = jobs[number]
        size = rows_ready * task.line_stride * slot(task)
        wrong = np.flatnonzero(image.bytes[:size] != expected[number][:size])
        assert not len(wrong), f"{task}: {len(wrong)} bytes wrong, first {wrong[0]}, {rows_ready} rows"

    results = run_loader(jobs, check, rng, **options)
    for task, want, (image, memory, diagnostics, _) in zip(jobs, expected, results, strict=True):
        atoms = -(-len(want) // 16)
        assert not image.bytes[len(want) :].any(), f"{task}: more than the stream's pixels"
        assert (image.written[:atoms] == 1).all() and image.written[atoms:].sum() == 0, f"{task}"
        count = -(-task.line_stride * task.height * task.argb * element_bytes(task) // 16)
        beats = -(-(count + task.base // 16 % 2) // 2)
        assert sum(n for _, n in memory.requests) == beats
        live = task.precision in FLOATS and not task.cvt["CVT_CON0"]["CVT_BYPASS"]
        codes = [(code, register) for code, register, _ in diagnostics]
        where = registers()["CNA"]["CVT_CON0"].offset
        assert codes == [(DiagnosticCode.RESERVED_MODE, where)] * live, f"{task}: {diagnostics}"
    return results


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("wide", [0, 1])
def test_random_images(channels, wide):
    """Random sizes, converters and types; floats are not converted."""
    rng = random.Random(channels)
    print("seed", channels)
    jobs = [image_task(rng, channels, wide and rng.choice((1, 1, 2, 3))) for _ in range(12)]
    run_against_twin(jobs, rng, latency=(2, 12), stall=rng.choice([0.0, 0.3]))


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("precision", [0, 1])
def test_streams_of_every_length(channels, precision):
    """The last pixels may be available when the stream has no further word."""
    rng = random.Random(30 + channels)
    jobs = []
    for height in range(1, 34 if precision == 0 else 18):
        task = image_task(rng, channels, precision)
        task.width = task.line_stride = 1
        task.height = task.entries = height
        jobs.append(task)
    run_against_twin(jobs, rng)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("precision", [0, 2])
def test_two_atoms_a_cycle(channels, precision):
    """Two CBUF atoms per cycle: 8, 4, 2 and 2 pixels, or half of these."""
    task = image_task(random.Random(9), channels, precision)
    task.width = task.line_stride = 64
    task.height = 24000 // slot(task) // 64
    ((*_, cycles),) = run_against_twin([task], random.Random(10))
    pixels = 64 * task.height
    assert cycles <= pixels * slot(task) // 32 + 40


def test_cubes_and_images_in_turn():
    """A loader changes from one mode to the other without any influence of the first."""
    rng = random.Random(20)
    image = image_task(rng, 3)
    cube = Task(width=3, height=5, channels=48, line_stride=12, surf_stride=3, entries=3)
    jobs = [image, cube, image, cube]
    results = run_loader(jobs, lambda *_: None, rng, stall=0.2)
    for first, second in ((0, 2), (1, 3)):
        assert (results[first][0].bytes == results[second][0].bytes).all()
    want = twin(image)
    assert (results[2][0].bytes[: len(want)] == want).all()


@pytest.mark.parametrize(
    ("changes", "code"),
    [({"width": 20}, "SIZE_MISMATCH"), ({"data_bank": 1}, "FEATURE_FOOTPRINT")],
)
def test_diagnostics(changes, code):
    task = image_task(random.Random(30), 4)
    task.line_stride = task.width = 16
    task.height = 20
    for name, value in changes.items():
        setattr(task, name, value)
    ((*_, diagnostics, _),) = run_loader([task], lambda *_: None, random.Random(31))
    assert [code for code, *_ in diagnostics] == [DiagnosticCode[code]]
