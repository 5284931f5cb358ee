"""Waveforms of the engines: windows, scopes, names, the cycles before an error, sizes, formats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rkcosim import waves
from rkcosim.engines import BuildError, DramConfig, EngineError, open_engine, toolchain
from rkcosim.engines.traces.writing import fst_functions
from rkcosim.spec.regs import registers
from rkcosim.verify.conformance.groups import draw_case
from rkcosim.verify.crosscheck.kick import run_kick
from rkcosim.verify.crosscheck.mismatch_trace import trace_mismatch, wants_mismatch
from rkcosim.verify.streams.stream import Stream
from rkcosim.waves.spec import AFTER, SpecError, TraceSpec, When
from tests.system import toy_core as toy

ROOT = Path(__file__).resolve().parents[2]
STREAM = Stream.load(ROOT / "examples" / "streams" / "pool.json")


def needs_compiler() -> None:
    try:
        toolchain.compiler()
        toolchain.yosys()
        if toolchain.verilator() is None:
            pytest.skip("no Verilator")
    except BuildError as error:
        pytest.skip(str(error))


def needs_fst() -> None:
    try:
        fst_functions()
        import pywellen  # noqa: F401
    except (EngineError, ImportError) as error:
        pytest.skip(str(error))


def run(spec: TraceSpec | None, *, dram: DramConfig | None = None, layers=(), cores: int = 1):
    """Run the example stream; return the number of cycles, the task log, and the result of the waveform."""
    needs_compiler()
    engine = open_engine(
        cores=cores, dram=dram, on_diagnostic="go on", traced=True, progress=lambda text: None
    )
    with engine:
        if spec is not None:
            engine.trace(spec)
        STREAM.load_into(engine.memory)
        if layers:
            engine.annotate(0, layers)
        run_kick(engine, STREAM.kick, STREAM.core, 20_000, STREAM.writes)
        cycles, log = engine.cycle, engine.task_log()
    return cycles, log, engine.trace_result()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> waves.Wave:
    path = tmp_path_factory.mktemp("waves") / "whole.vcd"
    run(TraceSpec(path))
    return waves.open(path)


@pytest.fixture(scope="module")
def task() -> tuple[int, int]:
    """Start and end of the stream's one task."""
    _, (record,), _ = run(None)
    return record.start, record.end


def same_values(part: waves.Wave, whole: waves.Wave, names: list[str]) -> None:
    """Check that every value of a part of a run is that of the whole run's waveform."""
    assert names
    part.load(*names)
    whole.load(*names)
    for name in names:
        expected = [pair for pair in whole.changes(name) if part.first < pair[0] <= part.last]
        got = [pair for pair in part.changes(name) if pair[0] > part.first]
        assert got == expected, name
        assert part.value(name, part.first) == whole.value(name, part.first), name


def plain_names(wave: waves.Wave) -> list[str]:
    return [s.name for s in wave.signals if s.name != "npu.clk" and not s.name.endswith("layer_name")]


def test_tracing_changes_no_cycle(tmp_path: Path):
    assert run(None)[:2] == run(TraceSpec(tmp_path / "w.vcd"))[:2]


def test_names_are_those_of_the_manual(whole: waves.Wave):
    names = {signal.name: signal.width for signal in whole.signals}
    assert not [name for name in names if set(name) & set("$:[]\\ ")]
    for block in registers():
        for register in block:
            for field in register.fields.values():
                path = f"core0.{block.name}.registers.{register.name}.{field.name}"
                assert names.get(path) == field.width, path
    for scope in (
        "PC",
        "CNA",
        "CNA.CSC",
        "CBUF",
        "CORE",
        "DPU",
        "DPU_RDMA",
        "PPU",
        "PPU_RDMA",
        "DDMA",
        "axi",
    ):
        assert any(name.startswith(f"core0.{scope}.") for name in names), scope
    assert {"npu.jobs", "npu.layer", "npu.core0.task", "core0.irq", "core0.events.task_start"} <= set(names)
    assert not [name for name in names if "cfg_" in name], "registers appear once, in `registers`"


@pytest.mark.parametrize("form", ["vcd", "fst"])
def test_no_scope_has_a_name_twice(tmp_path: Path, form: str):
    if form == "fst":
        needs_fst()
    path = tmp_path / f"w.{form}"
    run(TraceSpec(path, stop=When.parse(40)))
    if form == "vcd":
        scopes, names = [], []
        for line in path.read_text().partition("$enddefinitions")[0].splitlines():
            match line.split():
                case ["$scope", _, name, "$end"]:
                    scopes.append(name)
                case ["$upscope", "$end"]:
                    scopes.pop()
                case ["$var", _, _, _, name, *_]:
                    names.append(".".join([*scopes, name]))
    else:
        names = [signal.name for signal in waves.open(path).signals]
    assert len(names) > 9000
    assert [name for name, count in Counter(names).items() if count > 1] == []


CONSTANT = {
    "npu.layer": "no layers are announced",
    "npu.layer_name": "the same",
    "npu.core0.layer": "the same",
    "npu.core0.layer_name": "the same",
    "core0.core_index": "there is one core",
    "core0.options": "no option is set",
    "core0.rst": "the waveform begins after the reset",
    "core0.axi.arsize": "all beats are whole",
    "core0.axi.awsize": "the same",
    "core0.axi.arburst": "all bursts are incrementing",
    "core0.axi.awburst": "the same",
    "core0.axi.arprot": "always 0",
    "core0.axi.awprot": "the same",
    "core0.axil.arprot": "the same",
    "core0.axil.awprot": "the same",
    "core0.axi.arready": "the memory of the engine takes every address",
    "core0.axi.awready": "the same",
    "core0.axi.rresp": "no access fails",
    "core0.axi.bresp": "the same",
    "core0.axil.rresp": "the same",
    "core0.axil.bresp": "the same",
    "core0.axil.wstrb": "the host writes whole words",
    "core0.events.stall_acc": "does not happen in these tasks",
    "core0.events.stall_dpu": "the same",
}
"""Variables that do not change in the runs of the next test, with the reason."""


def test_every_variable_of_a_core_and_its_ports_can_change(tmp_path: Path):
    needs_compiler()
    streams = ROOT / "examples" / "streams"
    work = [draw_case("conv int8", 3, 0).stream(), STREAM, Stream.load(streams / "bank_split.json")]
    scopes = ("tasks", "core0.axi", "core0.axil", "core0.[alm]*")
    still: set[str] = set()
    for number, stream in enumerate(work):
        path = tmp_path / f"{number}.vcd"
        with open_engine(cores=1, on_diagnostic="go on", traced=True, progress=lambda text: None) as engine:
            engine.trace(TraceSpec(path, scopes=scopes))
            engine.count_blocks(True)
            stream.load_into(engine.memory)
            run_kick(engine, stream.kick, stream.core, 30_000, stream.writes)
            engine.count_blocks(False)
            engine.run(700)  # until the core is idle
        wave = waves.open(path)
        names = [s.name for s in wave.signals if ".registers." not in s.name]
        wave.load(*names)
        constant = {name for name in names if len(wave.changes(name)) < 2}
        still = still & constant if number else constant
    shown = {"core0.activity", "core0.levels", "core0.macs", "core0.array_macs", "core0.counting"}
    assert shown <= set(names)
    assert still == set(CONSTANT)


def test_registers_hold_what_the_stream_wrote(whole: waves.Wave, task: tuple[int, int]):
    words = {
        (write.block, write.register): write.value
        for write in whole.register_writes()
        if write.fetched and write.register and registers()[write.block][write.register].shadowed
    }
    assert len(words) > 10
    for (block, name), value in words.items():
        for field in registers()[block][name].fields.values():
            got = whole.value(f"core0.{block}.registers.{name}.{field.name}", task[0] + 2)
            assert got == (value & field.mask) >> field.lsb, f"{block}.{name}.{field.name}"


def test_counters(whole: waves.Wave, task: tuple[int, int]):
    start, end = task
    assert whole.rises("core0.events.task_start") == [start] and whole.rises("core0.events.task_done") == [
        end
    ]
    assert whole.changes("npu.core0.tasks_started")[-1] == (start, 1)
    assert whole.changes("npu.core0.tasks_done")[-1] == (end, 1)
    assert whole.value("npu.jobs", start - 1) == 1 and whole.value("npu.jobs", whole.first) == 0
    assert whole.value("npu.core0.reads_open", end) == 0
    assert max(value for _, value in whole.changes("npu.core0.reads_open")) > 0


def test_a_window_of_cycles_is_exact(tmp_path: Path, whole: waves.Wave):
    spec = TraceSpec(tmp_path / "w.vcd", start=When.parse(350), stop=When.parse(420))
    _, _, result = run(spec)
    part = waves.open(spec.path)
    assert result.cycles == (350, 419) == (part.first, part.last)
    assert result.bytes == spec.path.stat().st_size
    same_values(part, whole, plain_names(part))


def test_a_window_in_which_everything_sleeps(tmp_path: Path):
    needs_compiler()
    path = tmp_path / "w.vcd"
    with open_engine(cores=1, traced=True, progress=lambda text: None) as engine:
        engine.trace(path, 5000, 6000)
        engine.run(20_000)
    part = waves.open(path)
    assert (part.first, part.last) == (5000, 5999)
    assert part.value("core0.irq", 5500) == 0


@pytest.mark.parametrize("before", [None, 40])
def test_a_window_of_a_task(tmp_path: Path, task: tuple[int, int], before: int | None):
    spec = TraceSpec(tmp_path / "w.vcd", start=When.parse("task:0"), stop=When.parse("task:0"), before=before)
    _, _, result = run(spec)
    assert result.cycles[1] == task[1]
    if before is None:
        assert result.cycles[0] == task[0]
    else:
        assert task[0] - 3 * before < result.cycles[0] <= task[0] - before


def test_a_task_of_one_job_only(tmp_path: Path):
    for job, there in ((0, True), (1, False)):
        path = tmp_path / f"{job}.vcd"
        _, _, result = run(TraceSpec(path, scopes=("tasks",), start=When.parse(f"task:0@{job}")))
        assert path.exists() == there and (result.cycles is not None) == there
        assert there or "never reached" in result.text


def test_a_window_of_a_layer(tmp_path: Path, task: tuple[int, int]):
    when = When.parse("layer:pool of four")
    spec = TraceSpec(tmp_path / "w.vcd", scopes=("npu",), start=when, stop=when)
    layers = [(0, 1, "pool of four")]
    _, _, result = run(spec, layers=layers)
    assert result.cycles == task
    part = waves.open(spec.path)
    assert part.value("npu.core0.layer", task[0]) == 1
    text = spec.path.read_text()
    assert "spool_of_four " in text
    _, _, result = run(TraceSpec(spec.path, start=When.parse("layer:conv")), layers=layers)
    assert "no layer is called 'conv'; there were pool of four" in result.text
    assert not spec.path.exists()


def test_a_window_from_a_register_write(tmp_path: Path, whole: waves.Wave):
    (write,) = [w for w in whole.register_writes() if w.register == "OPERATION_MODE_CFG"]
    method = write.fields["POOLING_METHOD"]
    for value, there in ((method, True), ((method + 1) % 3, False)):
        text = f"write:PPU.OPERATION_MODE_CFG.POOLING_METHOD={value}"
        _, _, result = run(TraceSpec(tmp_path / f"{there}.vcd", scopes=("tasks",), start=When.parse(text)))
        assert (result.cycles[0] if result.cycles else None) == (write.cycle if there else None)


def test_the_cycles_before_an_error(tmp_path: Path):
    faulty = DramConfig(fault_read=3)
    whole_path, path = tmp_path / "whole.vcd", tmp_path / "error.vcd"
    run(TraceSpec(whole_path), dram=faulty)
    _, _, result = run(TraceSpec(path, start=When.parse("error"), before=50), dram=faulty)
    all_of_it, part = waves.open(whole_path), waves.open(path)
    same_values(part, all_of_it, plain_names(part))
    error = part.last + 1 - AFTER
    assert result.cycles == (part.first, part.last) and part.first < error
    changed = {c for s in plain_names(part) for c, _ in all_of_it.changes(s, part.first, error - 1)}
    assert len(changed) == 50, "cycles before the error in which something changed"
    refused = [c for c, value in part.changes("core0.axi.rresp") if value == 2]
    assert refused and refused[0] > error, "memory refuses the burst when it takes its request"


def test_no_error_no_file(tmp_path: Path):
    path = tmp_path / "w.vcd"
    _, _, result = run(TraceSpec(path, scopes=("tasks",), start=When.parse("error")))
    assert result.cycles is None and "no error happened" in result.text and not path.exists()


def test_a_hang_is_an_error(tmp_path: Path):
    needs_compiler()
    path = tmp_path / "w.vcd"
    with open_engine(cores=1, traced=True, on_diagnostic="go on", progress=lambda text: None) as engine:
        engine.trace(TraceSpec(path, scopes=("tasks",), start=When.parse("error")))
        STREAM.load_into(engine.memory)
        result = run_kick(engine, STREAM.kick, STREAM.core, 400, STREAM.writes)  # too few cycles
        assert not result.done
    part = waves.open(path)
    assert part.rises("core0.events.task_start"), "the cycles before the error are in the file"


def test_scopes_hold_what_they_say(tmp_path: Path):
    def names(*scopes: str) -> set[str]:
        path = tmp_path / "w.vcd"
        run(TraceSpec(path, scopes=scopes))
        return {s.name for s in waves.open(path).signals if not s.name.startswith("npu.")}

    block = names("core0.CNA")
    assert block and all(name.startswith("core0.CNA.") for name in block)
    several = names("core0.[DP]PU_RDMA", "*.registers.S_POINTER")
    assert {name.split(".")[1] for name in several if ".S_POINTER." not in name} == {"DPU_RDMA", "PPU_RDMA"}
    assert "core0.CNA.registers.S_POINTER.POINTER" in several
    tasks = names("tasks")
    assert "core0.CNA.registers.CONV_CON1.CONV_MODE" in tasks and "core0.irq" in tasks
    assert not [name for name in tasks if name.startswith("core0.axi.") or "payload" in name]
    with pytest.raises(
        SpecError, match=r"no scope and no signal is called 'core0\.CNE'; there are tasks, npu, "
    ):
        names("core0.CNE")


def test_a_part_of_the_scopes_has_the_same_values(tmp_path: Path, whole: waves.Wave):
    spec = TraceSpec(tmp_path / "w.vcd", scopes=("core0.PPU", "core0.DDMA.axi", "tasks"))
    run(spec)
    part = waves.open(spec.path)
    same_values(part, whole, plain_names(part))


def test_fst_holds_the_same(tmp_path: Path, whole: waves.Wave):
    needs_fst()
    spec = TraceSpec(tmp_path / "w.fst")
    _, _, result = run(spec)
    other = waves.open(spec.path)
    assert other.format == "fst" and (other.first, other.last) == (whole.first, whole.last)
    assert {s.name: s.width for s in other.signals} == {s.name: s.width for s in whole.signals}
    same_values(other, whole, [s.name for s in whole.signals if not s.name.endswith("layer_name")])
    assert result.bytes == spec.path.stat().st_size < whole.file.stat().st_size / 4


def test_the_limit_ends_the_file_and_not_the_run(tmp_path: Path, whole: waves.Wave):
    cycles = run(None)[0]
    limit = whole.file.stat().st_size // 2
    spec = TraceSpec(tmp_path / "w.vcd", limit=limit)
    ran, _, result = run(spec)
    assert ran == cycles and "ended at its limit" in result.text
    assert limit - 20_000 < spec.path.stat().st_size == result.bytes < limit + 20_000
    part = waves.open(spec.path)
    assert part.last == result.cycles[1] < whole.last
    same_values(part, whole, plain_names(part))


def test_an_exception_leaves_a_readable_file(tmp_path: Path):
    path = tmp_path / "w.vcd"
    needs_compiler()
    with (
        pytest.raises(RuntimeError, match="halfway"),
        open_engine(cores=1, traced=True, progress=lambda text: None) as engine,
    ):
        engine.trace(path)
        engine.run(100)
        raise RuntimeError("halfway")
    assert waves.open(path).last >= 100


def test_what_cannot_be_written(tmp_path: Path):
    with pytest.raises(EngineError, match="cannot write a waveform"):
        run(TraceSpec(tmp_path / "no such folder" / "w.vcd"))
    with pytest.raises(EngineError, match="--check"):
        run(TraceSpec(tmp_path / "w.vcd", start=When.parse("mismatch")))
    with pytest.raises(SpecError, match="needs --check"):
        wants_mismatch(TraceSpec(tmp_path / "w.vcd", start=When.parse("mismatch")), False)
    assert not list(tmp_path.iterdir())


def test_the_write_of_a_wrong_byte(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    needs_compiler()
    output = next(region for region in STREAM.regions if "out" in region.name)
    trace = TraceSpec(tmp_path / "w.vcd", scopes=("core0.axi",), start=When.parse("mismatch"), before=30)

    @contextmanager
    def repeat(spec: TraceSpec | None) -> Iterator[tuple[Any, Callable[[], object]]]:
        with closing(open_engine(None, cores=1, trace=spec, progress=lambda text: None)) as engine:
            STREAM.load_into(engine.memory)
            yield engine, lambda: run_kick(engine, STREAM.kick, STREAM.core, 20_000, STREAM.writes)

    address = output.address + 5
    cycle = trace_mismatch(trace, {"address": address}, repeat)["cycle"]
    assert cycle is not None and f"{cycle:,}" in capsys.readouterr().err
    wave = waves.open(trace.path)
    assert wave.first == cycle - 30
    assert wave.value("core0.axi.wvalid", cycle) == wave.value("core0.axi.wready", cycle) == 1
    strobes = wave.value("core0.axi.wstrb", cycle)
    assert isinstance(strobes, int) and strobes >> address % 32 & 1
    assert trace_mismatch(trace, {"address": 0x7000_0000}, repeat) == {"cycle": None}
    assert "nothing wrote" in capsys.readouterr().err
    assert trace_mismatch(trace, {}, repeat) == {} and "nothing differs" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["verilator", "cxxrtl"])
def test_other_designs_and_cxxrtl(tmp_path: Path, name: str):
    needs_compiler()
    path = tmp_path / "w.vcd"
    spec = TraceSpec(path, scopes=("core0.axi", "core0.a*"), start=When.parse(30), stop=When.parse(90))
    with open_engine(name, design=toy.ToyCore, cores=1, progress=lambda text: None) as engine:
        engine.trace(spec)
        engine.memory.map(0x10_0000, 0x1000)
        engine.memory.write(0x10_0000, np.arange(0x1000, dtype=np.uint32).astype(np.uint8))
        toy.start(engine, 0, 2, 4, source=0x10_0000, target=0x10_0800)
        engine.run(500)
    wave = waves.open(path)
    names = [s.name for s in wave.signals]
    assert "core0.axi.arvalid" in names
    assert not [name for name in names if not name.startswith(("core0.a", "npu."))]
    assert (wave.first, wave.last) == (30, 89)
    assert wave.rises("core0.axi.arvalid")


def test_amaranth_traces_whole_runs(tmp_path: Path):
    needs_compiler()
    with open_engine("amaranth", design=toy.ToyCore, cores=1, progress=lambda text: None) as engine:
        with pytest.raises(EngineError, match="whole runs only"):
            engine.trace(TraceSpec(tmp_path / "w.vcd", scopes=("core0.axi",)))
