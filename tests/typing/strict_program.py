"""A program that uses every public name of modules on docs/api; `mypy --strict` checks it, nothing runs it.

tests/unit/test_types.py holds that it has every name; `make check` checks its types as those of an installed
package (tests/typing/mypy.ini).
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import rkcosim
from rkcosim import driver, engines, regcmd, waves
from rkcosim import model as models
from rkcosim.compiler import (
    CompiledModel,
    LayerReport,
    LoadedModel,
    RunReport,
    TensorInfo,
    compile_conv_layer,
    compile_model,
    keeping_tensors,
    using_cores,
)
from rkcosim.regcmd import lint
from rkcosim.waves import events
from rkcosim.waves.spec import TraceSpec, When

Array = npt.NDArray[Any]


def loads(path: Path) -> rkcosim.Model:
    """Load a model in every way."""
    rkcosim.load(path.read_bytes(), engine="fast", cores=3, floats="host", fallback=False)
    rkcosim.load(str(path), dram={"read_latency": 200}, shapes={"x": (1, 3, 32, 32)}, outputs=["y"])
    rkcosim.load(path, calibration=np.zeros((4, 1, 16, 16), np.float32))
    rkcosim.load(path, dram="4224MT/s", plan="rknn", exact=True)
    with rkcosim.open_engine("fast", cores=1) as engine:
        models.load(path, engine=engine).close()
    return rkcosim.load(rkcosim.example("digits/digits_int8.onnx"))


def runs(model: rkcosim.Model, x: Array) -> float:
    """Run a model with positions, names, a mapping and a list."""
    with model as same:
        outputs = same.run(x)
    assert_type(outputs, models.Outputs)
    assert_type(outputs[0], Array)
    assert_type(outputs["y"], Array)
    assert_type(outputs[:1], list[Array])
    assert_type(outputs.asdict(), dict[str, Array])
    assert_type(outputs.names, tuple[str, ...])
    model.run({"x": x})
    model.run([[0.0, 1.0]], y=[1, 2])
    for tensor in model.inputs:
        assert_type(tensor, models.ModelTensor)
        tensor.to_codes(tensor.to_real(np.zeros(tensor.shape, tensor.dtype)))
    assert_type(model.inputs, models.ModelTensors)
    assert_type(model.outputs["y"].scale, float)
    assert_type(model.layers["conv"].op, str)
    assert_type(model.mac_share, float)
    assert_type(model.cores, int)
    engine: engines.AnyEngine = model.engine
    model.save("a.rkc")
    assert_type(model.to_bytes(), bytes)
    return float(model(x).argmax()) + engine.cycle


def profiles(model: rkcosim.Model) -> list[models.Report]:
    """Use every report and its rows."""
    profile = model.profile(seed=1)
    assert_type(profile, models.Profile)
    assert_type(profile.cycles, int | None)
    assert_type(profile.milliseconds(600.0), float | None)
    assert_type(profile.board_milliseconds(), float | None)
    assert_type(profile.outputs["y"], Array)
    row = profile.layers[0]
    assert_type(row.cycles, int | None)
    assert_type(row.bound, str)
    task = profile.tasks["task 0"]
    assert_type(task, models.TaskRow)
    assert_type(task.start + task.bytes_read + profile.macs, int)
    tasks: models.Table[models.TaskRow] = profile.tasks
    assert_type([one.layer for one in tasks], list[str])
    assert_type(tasks.names(), list[str])
    tasks.to_dicts()[0]["cycles"]
    profile.roofline()

    check = model.check()
    assert_type(check, models.Check)
    assert_type(check.match, bool | None)
    assert_type(check.first_difference, str | None)
    if not check:
        print(check.profile.summary, check.mac_share, check.element_share)

    compared = model.compare(reference="onnxruntime")
    assert_type(compared, models.ComparisonReport)
    assert_type(compared.worst, float)
    assert_type(compared.table[0].differing, int)

    estimate = model.estimate(clock=600.0, cores=3, dram="23.65GB/s", plan="rknn")
    assert_type(estimate, models.EstimateReport)
    advice = model.advise(only=["activations"], workers=2)
    assert_type(advice, models.AdviceReport)
    assert_type(advice.changed, bytes | None)
    assert_type(estimate.milliseconds, float)
    first = estimate.table[0]
    assert_type(first, models.EstimateRow)
    assert_type(first.share, float | None)

    small = model.quantize(np.zeros((4, 1, 16, 16)), method="percentile", keep=["head"], mixed=2)
    if small.accuracy is not None:
        assert_type(small.accuracy, models.AccuracyReport)
        assert_type(small.accuracy.outputs["y"].cosine, float)
        assert_type(small.accuracy.worst(2), list[str])
        small.accuracy.save("accuracy.json")

    traced = model.trace(None, "a.fst", start="task:3", stop=1000, scopes=["core0.*"])
    for stream in model.stream():
        assert_type(stream, rkcosim.Stream)
    return [profile, check, compared, estimate, traced]


def saves(report: models.Report) -> str:
    """Write a report in each form."""
    try:
        report.save(Path("a.html"))
        report.to_pandas(everything=True)
        report.to_arrow()
    except (models.SaveError, models.MissingExtraError, models.ClosedError) as error:
        return str(error)
    return "\n".join(report.lines()) + str(report.as_json()["cycles"])


def fails(path: Path) -> dict[str, str | int]:
    """Catch every error by its class and read its place."""
    try:
        rkcosim.load(path).run()
    except rkcosim.ModelError as error:
        assert_type(error.layer, str | None)
    except (driver.DriverTimeout, driver.DriverDmaError, rkcosim.DriverError) as error:
        assert_type(error.task, int | None)
    except (
        engines.BuildError,
        engines.BusError,
        engines.DiagnosticError,
        engines.MemoryAccessError,
    ) as error:
        assert_type(error.register, str | None)
    except (engines.SnapshotError, rkcosim.EngineError, engines.EngineError) as error:
        assert_type(error.core, int | None)
    except rkcosim.Error as error:
        return error.at(tensor="x", core=1).place()
    return {}


def opens(path: Path) -> int:
    """Open engines and use what they have in common, and what each has."""
    memory = engines.DramConfig(read_latency=200).at_clock(0.6).faster(2.0)
    assert_type(memory.bandwidth(3), float)
    assert_type(engines.capabilities("fast"), engines.Capabilities)
    for name in engines.ENGINES:
        assert name in engines.ALL_ENGINES
    with rkcosim.open_engine("golden", cores=1) as golden:
        assert_type(golden, engines.GoldenEngine)
    with engines.open_engine("fast", dram=memory) as fast:
        assert_type(fast, engines.FastEngine)
    with engines.saving(path, "task:3", stop=True):
        pass
    with engines.resuming(path), engines.open_engine(on_diagnostic="go on", threads=2) as engine:
        assert_type(engine, engines.SocEngine)
        engine.memory.map(0x1000, 4096)
        assert_type(engine.memory, engines.DeviceMemory)
        assert_type(engine.memory.view(0x1000, 16), npt.NDArray[np.uint8])
        engine.trace(TraceSpec(path, start=When.parse("task:3")))
        record: engines.TaskRecord = engine.task_log()[0]
        assert_type(record.cycles, int | None)
        counters: engines.CoreCounters = engine.counters(0)
        assert_type(counters.events[engines.EVENT_NAMES[0]], int)
        log: events.EventLog = engine.events()
        assert_type(log.count(), dict[str, int])
    return both(golden) + both(engine)


def both(engine: engines.Engine) -> int:
    """Use what every engine has."""
    shared: engines.EngineMemory = engine.memory
    shared.map(0x2000, 4096)
    shared.write(0x2000, b"abc")
    assert_type(shared.read(0x2000, 3), bytes)
    engine.write32(0, 8, engine.read32(0, 8))
    engine.run(10)
    engine.reset(1)
    print(engine.block_state(0), engine.task_count(), engine.has_cycles, engine.diagnostics())
    return engine.run_until_irq(1, 1000)


def programs(path: Path) -> int:
    """Run models and programs on a device, and read a stream."""
    run = rkcosim.run_model(path, np.zeros((1, 1, 16, 16), np.float32), engine="fast", cores=1, labels=[3])
    assert_type(run.cycles, int)
    assert_type(run.measured, bool)
    with rkcosim.device("golden", cores=1, verbose=True) as machine:
        print(machine.report())
    stream = rkcosim.Stream.load(path)
    return stream.core + run.layers[0].macs


def lists(path: Path) -> Array:
    """Write, run, watch and compare task lists and streams."""
    tasks = rkcosim.TaskList(core=1, name="pool")
    source = tasks.buffer("in", np.zeros((4, 4, 16), np.int8))
    tasks.buffer("out", (3, 3, 16), np.int8)
    task = tasks.task("PPU", "PPU_RDMA", registers={"PPU.DATA_CUBE_IN_WIDTH": 3})
    task.set("PPU_RDMA.SRC_BASE_ADDR", source).set("PPU.DATA_FORMAT", INDEX_ADD=9, PROC_PRECISION="INT8")
    task.set("PPU_RDMA.SRC_BASE_ADDR", source + 16).set("PPU.DST_BASE_ADDR", "out")
    task["PPU.OPERATION_MODE_CFG.POOLING_METHOD"] = "MAX"
    assert_type(task["PPU.DATA_FORMAT"], int)
    assert_type(tasks[0].blocks, list[str])
    assert_type(len(tasks[:1]) + len(tasks), int)
    assert_type(str(rkcosim.TaskList.from_text(str(tasks))), str)
    assert_type(tasks.lint().errors, list[lint.Finding])
    result = tasks.run("fast", max_cycles=1000, events=True, dram=engines.DramConfig(read_latency=200))
    assert_type(result.cycles, int | None)
    assert_type(result["out"], Array)
    assert_type(result.tasks[0].cycles, int | None)
    verdict = result.compare()
    assert_type(bool(verdict) and verdict.match, bool)
    stream = rkcosim.Stream.load(path)
    stream.tasks[0]["PPU.DATA_CUBE_IN_WIDTH"] = 16
    with rkcosim.open_engine(cores=2) as engine:
        job = engine.submit(stream, core=1, max_cycles=1000)
        also: engines.Submission[Any] = engine.submit(tasks, 0)
        assert_type(engine.memory.view(0x1000, (2, 3), np.int16), npt.NDArray[np.int16])
        with engine.memory.place(result["out"]) as placed, engine.memory.alloc(8, np.float32) as zeros:
            assert_type(zeros.array, npt.NDArray[np.float32])
            assert_type(placed.address + zeros.address, int)
        try:
            assert_type(job.result(timeout=1.0).interrupts, tuple[str, ...])
        except engines.JobTimeout as error:
            print(error.state, also.done())
        except engines.JobError as error:
            assert_type(error.register, str | None)
    return np.asarray(result["out"])


def drives(engine: engines.SocEngine) -> driver.JobResult:
    """Use the driver."""
    device: driver.Device = engine
    memory: driver.Memory = device.memory
    memory.write(0x1000, b"")
    own = driver.Driver(device)
    buffer = own.alloc(4096)
    assert_type(buffer, driver.Buffer)
    mask = driver.completion_mask(regcmd.op_enable_mask(["DPU"]))
    assert_type(driver.fold_interrupts(mask) | driver.interrupt_bits("DPU_0"), int)
    task = driver.Task(buffer.iova, 4, mask, mask, regcmd.op_enable_mask(["DPU"]), name="task")
    result = own.submit(driver.Job([task], core_mask=1))
    assert_type(result, driver.JobResult)
    run: driver.CoreRun = result.cores[0]
    report: driver.CoreReport | None = None
    print(run.end - run.start, report)
    return result


def compiles(path: Path, own: driver.Driver) -> npt.NDArray[Any]:
    """Use the compiler without the object of a model."""
    with keeping_tensors(True), using_cores(3):
        compiled = compile_model(path.read_bytes())
    assert_type(compiled, CompiledModel)
    info: TensorInfo = compiled.inputs[0]
    with LoadedModel(compiled, own) as loaded:
        loaded.set_input(0, np.zeros(info.shape, np.float32))
        report: RunReport = loaded.run()
        layer: LayerReport = report.layers[0]
        print(layer.name, compile_conv_layer)
        return loaded.get_output(0)


def words() -> list[lint.Finding]:
    """Build, decode and check a command stream."""
    builder = regcmd.TaskBuilder("task").set("DPU", "DATA_CUBE_WIDTH", WIDTH=3).enable("DPU")
    tasks: regcmd.PlacedTasks = regcmd.build_task_list([builder], 0x1000)
    entry: regcmd.TaskEntry = tasks.tasks[0]
    assert_type(regcmd.task_list_bytes([builder]), int)
    assert_type(regcmd.words_of_amount(regcmd.amount_code(entry.n_words)), int)
    mask = regcmd.op_enable_mask(["DPU"])
    assert_type(regcmd.blocks_of_mask(mask), list[str])
    word = regcmd.op_enable_word(mask)
    assert_type(
        regcmd.unpack_word(regcmd.pack_word(regcmd.target_code("DPU"), 1, 0x4000)), tuple[int, int, int]
    )
    command: regcmd.Command = regcmd.decode_word(word)
    for one in regcmd.disassemble(regcmd.words_from_bytes(regcmd.words_to_bytes([word]))):
        print(regcmd.format_command(one), one.fields)
    if command.register is not None:
        assert_type(regcmd.register_word(command.register, 1), int)
    try:
        program: regcmd.Program = regcmd.program_of_words([word], "words")
        listed: regcmd.ListedTask = program.tasks[0]
        print(listed.commands)
    except regcmd.RegcmdError as error:
        raise SystemExit(str(error)) from error
    chain = regcmd.program_of_chain("chain", lambda address, size: tasks.data, 0x1000, entry.amount, 1)
    rule: lint.Rule[Any] = lint.RULES["unknown word"]
    start: lint.Start | None = None
    assert lint.SEVERITIES == (lint.ERROR, lint.WARNING, lint.NOTE)
    print(rule.why, start)
    return lint.lint(chain, only=[rule.name])


def waveforms(path: Path) -> list[object]:
    """Read a waveform and an event log."""
    ports = waves.PortMap.of(path, prefix="top.")
    try:
        wave = waves.open(path, ports=ports, cycle=Fraction(1, 10**9))
    except waves.WaveError as error:
        raise SystemExit(str(error)) from error
    assert_type(wave, waves.Wave)
    task: waves.WaveTask = wave.tasks()[0]
    assert_type(task.cycles, int | None)
    burst: waves.Burst = wave.bursts(0)[0]
    region: waves.Region = wave.regions(0)[0]
    job: waves.Job = wave.jobs(0)[0]
    part: waves.JobTask = job.tasks[0]
    write: waves.RegisterWrite = wave.register_writes(0)[0]
    access: waves.Access = wave.accesses(0)[0]
    stall: waves.Stall = wave.stalls(0)[0]
    irq: waves.Irq = wave.irqs()[0]
    seen: waves.DiagnosticSeen = wave.diagnostics()[0]
    activity: waves.MacActivity = wave.mac_activity(0, window=100)[0]
    signal: waves.Signal = wave.find("irq")
    log = events.load(path)
    span: events.TaskSpan = log.tasks()[0]
    text: events.Text = log.text("block")
    more = events.EventLog.of([events.Event("irq", cycle=1, end=2)])
    summary: events.Summary = log.joined(more).where(core=0).summary()[0]
    try:
        events.save(log, path)
    except events.EventsError as error:
        raise SystemExit(str(error)) from error
    assert_type(log["cycle"].sum() + span.cycles, Any)
    return [burst, region, part, write, access, stall, irq, seen, activity, signal, text, summary]
