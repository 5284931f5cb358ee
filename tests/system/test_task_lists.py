"""Task lists and streams from Python on the RTL: numpy's results, three cores, bounds, waveforms, events."""

from __future__ import annotations

from concurrent.futures import CancelledError
from pathlib import Path

import numpy as np
import pytest

import rkcosim
from rkcosim import Stream, TaskList, open_engine
from rkcosim.engines import ALL_ENGINES, BuildError, EngineError, JobError, JobTimeout, Submission
from rkcosim.waves import open as open_wave
from tests.makers.pool_lists import cube, max_pool, pool_list

ROOT = Path(__file__).resolve().parents[2]
POOL = ROOT / "examples" / "streams" / "pool.json"


BUILT = ("golden", "verilator")
"""Engines that `make test` has anyway; of each other one a build of the whole core would be needed."""

ENGINES = [name if name in BUILT else pytest.param(name, marks=pytest.mark.heavy) for name in ALL_ENGINES]


@pytest.mark.parametrize("name", ENGINES)
def test_max_pooling_of_numpy_on_each_engine(name):
    features = cube(3, 4, seed=3) if name == "amaranth" else cube(6, 9, seed=3)
    tasks = pool_list(features, times=2)
    try:
        result = tasks.run(name)
    except BuildError as error:
        pytest.skip(str(error))
    assert result.engine == name
    assert (result["pooled 1"] == max_pool(features)).all()
    assert (result["pooled 2"] == max_pool(max_pool(features))).all()
    assert result.compare()


@pytest.mark.heavy
def test_engines_of_the_rtl_agree_on_cycles_and_memory_is_a_view():
    found = {}
    for name in ("verilator", "fast", "changes"):
        with open_engine(name, cores=1) as engine:
            placed = engine.memory.place(np.arange(24, dtype=np.int16).reshape(4, 6))
            assert engine.memory.view(placed.address, (4, 6), np.int16)[3, 5] == 23
            result = pool_list(cube(7, 7)).run(engine)
            found[name] = (result.cycles, [(task.start, task.end) for task in result.tasks], result.status)
            assert repr(engine) == f"<engine {name}, 1 core, cycle {engine.cycle:,}>"
        assert repr(engine) == f"<engine {name}, 1 core, closed>"
    assert found["verilator"] == found["fast"] == found["changes"]


def three(engine: rkcosim.engines.AnyEngine) -> list[tuple[int | None, int | None, bytes]]:
    """Submit a list of its own to each core, collect in another order; cycles, start and bytes."""
    lists = [pool_list(cube(6 + core, 8, seed=core), times=core + 1) for core in range(3)]
    jobs = [engine.submit(tasks, core) for core, tasks in enumerate(lists)]
    assert not any(job.done() for job in jobs) and all(job.running() for job in jobs)
    results = {core: jobs[core].result() for core in (2, 0, 1)}
    for core, tasks in enumerate(lists):
        wanted = tasks.buffers["features"].array
        for number in range(core + 1):
            wanted = max_pool(wanted)
            assert (results[core][f"pooled {number + 1}"] == wanted).all()
        assert results[core].core == core and len(results[core].tasks) == core + 1
    return [
        (results[c].cycles, results[c].tasks[0].start, results[c]["pooled 1"].tobytes()) for c in range(3)
    ]


@pytest.mark.parametrize(
    "name", ["verilator", *(pytest.param(name, marks=pytest.mark.heavy) for name in ("fast", "changes"))]
)
def test_three_cores_together_deterministic_in_cycles(name):
    with open_engine(threads=1) as engine:
        first = three(engine)
        assert engine.memory.ranges == {}
    with open_engine(name) as engine:
        assert three(engine) == first
    with open_engine("golden") as engine:
        assert [data for *_, data in three(engine)] == [data for *_, data in first]
    starts = [start for _, start, _ in first]
    ends = [start + cycles for cycles, start, _ in first if start is not None and cycles is not None]
    assert max(starts) < min(ends), "the cores worked at the same time"


def test_jobs_of_one_core_wait_for_each_other():
    with open_engine(cores=1) as engine:
        jobs = [engine.submit(pool_list(cube(6, 6, seed)), max_cycles=50_000) for seed in range(3)]
        assert [job.running() for job in jobs] == [True, False, False]
        seen: list[Submission] = []
        for job in jobs:
            job.add_done_callback(seen.append)
        last = jobs[2].result()
        assert seen == jobs and all(job.done() for job in jobs)
        assert (last["pooled 1"] == max_pool(cube(6, 6, 2))).all()
        starts = [job.result().tasks[0].start for job in jobs]
        assert starts == sorted(starts)
        assert jobs[0].result() is jobs[0].result()


def test_a_timeout_of_the_host_lets_the_job_go_on():
    with open_engine(cores=1) as engine:
        job = engine.submit(pool_list(cube(6, 6)))
        before = engine.cycle
        with pytest.raises(TimeoutError, match="has not ended within 0 s"):
            job.result(timeout=0)
        assert engine.cycle == before and job.running()
        assert job.result(timeout=60).done


def test_an_error_of_one_core_leaves_the_others():
    wrong = pool_list(cube(6, 6), core=1)
    wrong[0]["PPU.DATA_CUBE_IN_WIDTH"] = 9
    with open_engine(cores=2) as engine:
        good = engine.submit(pool_list(cube(20, 20)), 0)
        bad = engine.submit(wrong)
        later = engine.submit(pool_list(cube(5, 5)), 1)
        assert (good.result()["pooled 1"] == max_pool(cube(20, 20))).all()
        error = bad.exception()
        assert isinstance(error, JobError) and not isinstance(error, JobTimeout)
        assert (error.core, error.task, error.register) == (1, 0, "PPU.DATA_CUBE_IN_WIDTH")
        assert (error.value, error.code) == (9, "SIZE_MISMATCH")
        assert [one.code for one in error.diagnostics] == ["SIZE_MISMATCH"] and "PPU" in error.state
        with pytest.raises(JobError, match=r"core 1, task 0, .*PPU\.DATA_CUBE_IN_WIDTH"):
            bad.result()
        assert later.result().compare(), "the core was reset"
        assert engine.memory.ranges == {}


def test_a_hang_ends_at_its_bound():
    wrong = pool_list(cube(6, 6))
    wrong[0]["PPU_RDMA.CUBE_IN_HEIGHT"] = 2  # too few rows
    with open_engine(cores=1, on_diagnostic="go on") as engine:
        job = engine.submit(wrong, max_cycles=30_000)
        with pytest.raises(JobTimeout, match="no interrupt within 30000 cycles") as caught:
            job.result()
        assert caught.value.task == 0 and caught.value.core == 0 and "PPU" in caught.value.state
        assert caught.value.result.tasks[0].end is None
        assert pool_list(cube(6, 6)).run(engine).compare(), "the core was reset"


def test_an_interrupted_run_does_not_go_on():
    """Ctrl-C in a run of an open engine: the core is reset and the memory is free again."""
    with open_engine(cores=1) as engine:
        run = engine.run_until_irq

        def interrupted(core_mask: int, max_cycles: int) -> int:
            run(core_mask, min(max_cycles, 100))
            raise KeyboardInterrupt

        engine.run_until_irq = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            pool_list(cube(6, 6)).run(engine)
        assert engine.memory.ranges == {}
        engine.run_until_irq = run  # type: ignore[method-assign]
        assert pool_list(cube(6, 6)).run(engine).compare()


def test_cancelling_and_closing():
    with open_engine(cores=1) as engine:
        first, second, third = (engine.submit(pool_list(cube(6, 6))) for _ in range(3))
        assert second.cancel() and second.cancelled() and second.done()
        assert first.cancel() and third.running()
        with pytest.raises(CancelledError):
            first.result()
        assert third.result().compare()
        assert not third.cancel()
        left = engine.submit(pool_list(cube(6, 6)))
    assert left.cancelled()
    with pytest.raises(CancelledError, match="core 0"):
        left.result()
    with pytest.raises(EngineError, match="closed"):
        engine.submit(pool_list(cube(6, 6)))


def test_wrong_submissions_are_refused():
    with open_engine("golden", cores=2) as engine:
        with pytest.raises(ValueError, match="the engine has 2 cores, the job is for core 2"):
            engine.submit(pool_list(cube(5, 5)), 2)
        with pytest.raises(ValueError, match="max_cycles must be at least 1"):
            engine.submit(pool_list(cube(5, 5)), max_cycles=0)
        with pytest.raises(TypeError, match="takes a Stream or a TaskList, not int"):
            engine.submit(3)  # type: ignore[arg-type]


def test_one_stream_on_two_cores_needs_other_memory():
    stream = Stream.load(POOL)
    with open_engine(cores=2) as engine:
        first, second = engine.submit(stream, 0), engine.submit(stream, 1)
        with pytest.raises(EngineError, match="is used by a run on core 0; a TaskList finds another place"):
            second.result()
        assert first.result().compare()


def test_a_run_with_a_waveform_and_events(tmp_path):
    tasks = TaskList.load(POOL)
    result = tasks.run(trace=tmp_path / "pool.vcd", events=True)
    assert result.compare()
    [task] = open_wave(tmp_path / "pool.vcd").tasks()
    assert (task.start, task.end) == (result.tasks[0].start, result.tasks[0].end)
    [write] = result.writes("PPU_RDMA.CUBE_IN_WIDTH")
    assert write.value == 15 and write.cycle < task.start
    lines = result.dump().splitlines()
    assert f"# ---- cycle {task.start}: task 0 starts" in lines
    assert f"{write.cycle:>11}  PPU_RDMA.CUBE_IN_WIDTH CUBE_IN_WIDTH=15" in lines


def test_events_of_the_second_run_are_its_own():
    with open_engine(cores=1) as engine:
        first = pool_list(cube(6, 6)).run(engine, events=True)
        second = pool_list(cube(6, 6)).run(engine, events=True)
        assert first.events is not None and second.events is not None
        [one], [other] = (run.writes("PPU_RDMA.CUBE_IN_WIDTH") for run in (first, second))
        assert one.cycle < first.tasks[0].end < other.cycle < second.tasks[0].end
        assert f"cycle {second.tasks[0].start}: task 0 starts" in second.dump()
