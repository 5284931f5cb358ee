"""Three cores at once with the same task on each, and accesses to cores that are not selected."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from rkcosim.driver import Driver, DriverError, DriverTimeout, Job, interrupt_bits
from rkcosim.engines import DramConfig
from rkcosim.spec.regs import registers
from tests import seeds
from tests.makers.jobs import (
    draw_at,
    driver_for,
    engine_or_skip,
    filled,
    first_difference,
    golden_image,
    records_of,
    records_of_builders,
)
from tests.makers.small_tasks import add_task, conv_task, pool_task

SEED = seeds.seed(__name__, 24)
MAX_CYCLES = 1_000_000


@pytest.fixture
def engine() -> Iterator:
    device = engine_or_skip()
    yield device
    device.close()


def overlap(engine) -> int:
    """Return the cycles in which all three cores had a running task."""
    spans = []
    for core in range(3):
        records = [r for r in engine.task_log() if r.core == core]
        assert records and all(r.end is not None for r in records)
        spans.append((records[0].start, records[-1].end))
    return min(end for _, end in spans) - max(start for start, _ in spans)


@pytest.mark.parametrize("seed", [1, 2, 3, pytest.param(SEED, id="fresh")])
def test_three_cores_at_once_match_the_golden_model(seed):
    print(f"seed {seed}")
    groups = ["row tiles", "data reuse", "weight reuse"] if seed % 2 else ["chains"] * 3
    cases = [draw_at(group, seed, index=core, area=core) for core, group in enumerate(groups)]
    # Little bandwidth and jitter, so that the cores compete for memory.
    dram = DramConfig(peak_bytes_per_cycle=12, jitter=40, seed=seed & 0xFFFF)
    with engine_or_skip(dram=dram) as engine:
        driver = driver_for(engine, cases)
        records, ranges = [], {}
        for core, case in enumerate(cases):
            ranges[core] = (len(records), case.tasks)
            records += records_of(case)
        job = Job(records, core_mask=7, ranges=ranges, max_cycles=MAX_CYCLES)
        expected = golden_image(engine, job)
        before = [data for case in cases for _, data in case.regions]
        result = driver.submit(job)
        assert first_difference(engine, expected) is None
        after = [engine.memory.view(address, data.size) for case in cases for address, data in case.regions]
        assert all((b != a).any() for b, a in zip(before[::2], after[::2], strict=True))
        assert sorted(result.cores) == [0, 1, 2]
        assert [result.cores[core].tasks for core in range(3)] == [case.tasks for case in cases]
        assert len(engine.task_log()) == len(records)
        if seed % 2:
            assert overlap(engine) > 0


def test_a_task_gives_the_same_bytes_and_cycles_on_every_core():
    case = draw_at("row tiles", 11)
    # With more bandwidth than needed: the memory's turn depends on earlier runs.
    with engine_or_skip(dram=DramConfig(peak_bytes_per_cycle=256)) as engine:
        driver = driver_for(engine, [case])
        records = records_of(case)
        expected = golden_image(engine, Job(records, max_cycles=MAX_CYCLES))
        images, cycles = [], []
        engine.run(1000)  # away from the reset, after which the first access takes longer
        for core in range(3):
            for address, data in case.regions:
                engine.memory.write(address, data)
            result = driver.submit(Job(records, core_mask=1 << core, max_cycles=MAX_CYCLES))
            assert first_difference(engine, expected) is None
            images.append([engine.memory.read(address, data.size) for address, data in case.regions])
            cycles.append(result.cores[core].cycles)
        assert images[0] == images[1] == images[2]
        assert cycles[0] == cycles[1] == cycles[2]
        assert {record.core for record in engine.task_log()} == {0, 1, 2}


def split_job(driver: Driver) -> tuple[Job, list[np.ndarray], np.ndarray]:
    """A convolution of 24 rows on three cores, 8 rows each, then an addition and a pool on core 0."""
    rows, width = 24, 10
    source, weights = filled(driver, rows * width * 32, "features", 1), filled(driver, 1024, "weights", 2)
    target = driver.alloc(3 * 8 * width * 32, "output")
    part = 8 * width * 32
    tasks = []
    for core in range(3):
        name = f"rows {8 * core}"
        at = core * part
        tasks.append([conv_task(source.iova + at, weights.iova, target.iova + at, 8, width, name)])
    total, pooled = driver.alloc(part, "sum"), driver.alloc(7 * (width - 1) * 16, "pooled")
    tasks[0].append(add_task(target.iova, source.iova, total.iova, 8, width))
    tasks[0].append(pool_task(total.iova, pooled.iova, 8, width))
    ranges, records = {}, []
    for core in range(3):
        ranges[core] = (len(records), len(tasks[core]))
        records += records_of_builders(driver, tasks[core])
    image = source.view().view(np.int8).astype(np.int64).reshape(3, 2, 8, width, 16)
    matrix = weights.view().view(np.int8).astype(np.int64).reshape(32, 32)
    job = Job(records, core_mask=7, ranges=ranges, max_cycles=MAX_CYCLES)
    convolved = np.einsum("psyxc,ksc->pkyx", image, matrix.reshape(32, 2, 16))
    return job, [target.view(), total.view(), pooled.view()], convolved


def test_job_over_three_cores(engine):
    with Driver(engine) as driver:
        job, (target, total, pooled), convolved = split_job(driver)
        expected = golden_image(engine, job)
        result = driver.submit(job)
        assert first_difference(engine, expected) is None
        assert [result.cores[core].tasks for core in range(3)] == [3, 1, 1]
        assert result.cores[0].int_status & interrupt_bits("PPU_0", "PPU_1")
        assert result.cores[1].int_status & interrupt_bits("DPU_0", "DPU_1")
        # And by numpy: parts [3, kernel, row, column], two surfaces of 16 channels.
        rounded = np.clip(np.round(convolved / 512), -128, 127).astype(np.int8)
        surfaces = rounded.reshape(3, 2, 16, 8, 10).transpose(0, 1, 3, 4, 2)
        assert np.array_equal(target.view(np.int8), surfaces.ravel())
        assert total.any() and pooled.any()


@pytest.mark.parametrize("block", ["CNA", "CORE"])
@pytest.mark.parametrize("core", [0, 2])
def test_pointer_of_another_core_never_completes(core, block):
    with engine_or_skip(on_diagnostic="go on") as engine, Driver(engine) as driver:
        source, weights, target = (filled(driver, 4096, n, i) for i, n in enumerate(("in", "weights", "out")))
        task = conv_task(source.iova, weights.iova, target.iova, 4, 4, "lost")
        pointer = registers()[block]["S_POINTER"]
        other = 1 if core == 0 else 0
        flags = {"POINTER_PP_MODE": 1, "EXECUTER_PP_EN": 1, "POINTER_PP_EN": 1}
        task.set(block, "S_POINTER", CORE_INDEX=other, **flags)  # after the driver's own write
        before = target.read()
        job = Job(records_of_builders(driver, [task]), core_mask=1 << core, max_cycles=400_000)
        with pytest.raises(DriverTimeout) as caught:
            driver.submit(job)
        text = str(caught.value)
        assert f"core {core}: task 0 (lost) did not end" in text
        assert "within 400000 cycles" in text
        found = [d for d in engine.diagnostics() if d.code == "WRONG_CORE"]
        assert [(d.core, d.block) for d in found] == [(core, block)]
        assert found[0].register == pointer.path and str(found[0]) in text  # so the message says why
        assert target.read() == before and engine.irq == 0
        # The reset has freed the core: the same task with the right pointer ends.
        good = conv_task(source.iova, weights.iova, target.iova, 4, 4, "found")
        job = Job(records_of_builders(driver, [good]), core_mask=1 << core, max_cycles=400_000)
        expected = golden_image(engine, job)
        driver.submit(job)
        assert first_difference(engine, expected) is None and target.read() != before


def test_core_masks_that_no_driver_starts(engine):
    with Driver(engine) as driver:
        job, _, _ = split_job(driver)
        with pytest.raises(DriverError, match="core mask 0x6"):
            driver.submit(Job(job.tasks, core_mask=6, ranges=job.ranges))
        assert not engine.task_log()
