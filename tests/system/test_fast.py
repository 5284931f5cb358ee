"""The engines that follow changes: "fast", which has the golden model's bytes, and "changes"."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rkcosim.engines import DramConfig
from rkcosim.engines.engine import open_engine
from rkcosim.engines.protocol import EngineError, WaveformError
from rkcosim.golden.task import GoldenError
from rkcosim.measure.models.run import run_model
from rkcosim.measure.perf.workloads import MEMORY
from rkcosim.verify.conformance.campaign import draw_case
from rkcosim.verify.conformance.case import Case
from rkcosim.verify.conformance.choices import Refused
from rkcosim.verify.conformance.groups import GROUPS
from rkcosim.verify.conformance.runner import Runner
from tests import seeds
from tests.system.test_cli_documents import rkcosim

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"


def both(name: str, **options) -> list:
    return [open_engine(one, on_diagnostic="go on", **options) for one in ("verilator", name)]


def drawn(seed: int, count: int) -> Iterator[tuple[str, int, Case]]:
    """The first cases of every group."""
    for group in GROUPS:
        for number in range(count):
            try:
                case = draw_case(group, seed, number)
            except Refused:
                break
            yield group, number, case


def shown(engine, case, runner: Runner):
    """Everything that a case leaves behind on an engine."""
    outcome = runner.run(case)
    side = outcome.device
    return outcome.ok, side.cycles, side.registers, side.diagnostics, side.probed, side.peeked, engine.cycle


JITTER = DramConfig(jitter=37, read_latency=61, seed=5)


@pytest.mark.parametrize(
    ("name", "dram"),
    [("fast", DramConfig()), ("fast", JITTER), ("changes", JITTER)],
    ids=["fast, default", "fast, jitter", "changes, jitter"],
)
def test_random_tasks_take_the_same_cycles(name: str, dram: DramConfig):
    seed = seeds.seed(__name__)
    print("seed", seed)
    rtl, fast = both(name, cores=1, dram=dram)
    with closing(rtl), closing(fast):
        runners = Runner(rtl), Runner(fast)
        for group, number, case in drawn(seed, 2):
            found = shown(fast, case, runners[1])
            assert found[0] and found == shown(rtl, case, runners[0]), (group, number)
        assert fast.task_log() == rtl.task_log()
        assert fast.counters(0) == rtl.counters(0)
        assert fast.block_counters(0) == rtl.block_counters(0)


@pytest.mark.heavy
def test_more_random_tasks_on_changes():
    seed = seeds.seed(__name__)
    print("seed", seed)
    rtl, changes = both("changes", cores=1, dram=MEMORY)
    with closing(rtl), closing(changes):
        runners = Runner(rtl), Runner(changes)
        for group, number, case in drawn(seed, 10):
            found = shown(changes, case, runners[1])
            assert found[0] and found == shown(rtl, case, runners[0]), (group, number)


@pytest.mark.parametrize("cores", [1, 3])
def test_a_network_is_the_same(cores: int):
    results = [
        run_model(DIGITS, None, engine=engine, cores=cores, check=True, seed=3)
        for engine in ("verilator", "fast", "changes")
    ]
    assert all(result.verdict["match"] for result in results)
    cycles = [[row.cycles for row in result.layers] for result in results]
    assert cycles[0] == cycles[1] == cycles[2]
    assert results[0].outputs == results[1].outputs == results[2].outputs


@pytest.mark.parametrize("name", ["fast", "changes"])
def test_events_are_those_of_the_rtl(name: str):
    logs = []
    for engine in both(name, cores=1):
        with closing(engine):
            engine.record(["task", "burst", "stripe", "irq", "busy"])
            Runner(engine).run(draw_case(next(iter(GROUPS)), 4, 0))
            logs.append(engine.events())
    assert len(logs[0]) > 20
    assert list(logs[0]) == list(logs[1])


def test_what_needs_data_is_refused(tmp_path: Path):
    with closing(open_engine("fast", cores=1)) as engine:
        with pytest.raises(WaveformError, match="fast writes no waveforms"):
            engine.trace(tmp_path / "run.vcd")
        assert not engine.has_snapshots
    for words, text in (
        (["--trace", str(tmp_path / "run.vcd")], "the engine fast writes no waveforms"),
        (["--save", str(tmp_path / "run.snap"), "--at", "task:2"], "the engine fast cannot be saved"),
        (["--exact"], "the engine fast has no array cell"),
        (["--engine", "golden"], "--fast is the engine fast"),
    ):
        code, _, said = rkcosim("run", DIGITS, "--fast", *words)
        assert code == 2 and text in said
    for words, text in (
        (["--trace", str(tmp_path / "run.vcd")], "the engine changes writes no waveforms"),
        (["--save", str(tmp_path / "run.snap"), "--at", "task:2"], "the engine changes cannot be saved"),
        (["--exact"], "the engine changes has its array cell in C++"),
    ):
        code, _, said = rkcosim("run", DIGITS, "--engine", "changes", *words)
        assert code == 2 and text in said
    assert not list(tmp_path.iterdir())


def test_a_job_that_the_golden_model_cannot_compute_is_an_error():
    with closing(open_engine("fast", cores=1)) as engine:

        def fails(core: int, offset: int, value: int) -> None:
            raise GoldenError("no such mode")

        engine._model.write32 = fails
        engine.write32(0, 0x30, 0)
        with pytest.raises(EngineError, match="does not compute the bytes of this job: no such mode"):
            engine.run(100)
        engine.run(100)  # it is reported once
