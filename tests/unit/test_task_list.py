"""Task lists written in Python: names and limits of registers, buffers, chains, text, runs and comparison."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from rkcosim import Stream, TaskList, open_engine
from rkcosim.cli.main import app
from rkcosim.engines import JobError, JobTimeout, MemoryAccessError
from rkcosim.golden.task import GoldenNpu
from rkcosim.regcmd import RegcmdError, TaskBuilder, build_task_list
from rkcosim.regcmd.job import interrupt_bits
from rkcosim.spec.regs import registers
from tests.makers.pool_lists import cube, max_pool, pool_list
from tests.makers.small_tasks import pool_task

ROOT = Path(__file__).resolve().parents[2]
POOL = ROOT / "examples" / "streams" / "pool.json"


# -- registers by name ---------------------------------------------------------------------------------


def test_registers_of_a_list_are_the_words_of_the_builder():
    """The words are those that the project's other way to make tasks gives, apart from their order."""
    features = cube(5, 7)
    tasks = pool_list(features)
    source, target = (tasks.buffers[name].address for name in ("features", "pooled 1"))
    other = pool_task(source, target, 5, 7)
    assert sorted(tasks[0].builder.words()) == sorted(other.words())


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("PPUX.DATA_FORMAT", 1, "no block has the name 'PPUX'; there is PPU"),
        ("PPU.DATA_CUBE_WIDTH", 1, "PPU has no register 'DATA_CUBE_WIDTH'; there are DATA_CUBE_.*_WIDTH"),
        ("PPU.DATA_FORMAT.INDEX", 1, "PPU.DATA_FORMAT has no field 'INDEX'; there .* INDEX_ADD"),
        ("PPU", 1, "'PPU' names no register: PPU.DATA_FORMAT is one"),
        (
            "PPU.DATA_CUBE_IN_WIDTH",
            8192,
            "PPU.DATA_CUBE_IN_WIDTH.DATA_CUBE_IN_WIDTH: 8192 is outside 0..8191",
        ),
        (
            "PPU.OPERATION_MODE_CFG.POOLING_METHOD",
            "MAXIMUM",
            "no code named 'MAXIMUM'; known: AVERAGE, MAX, MIN",
        ),
        ("PPU.OPERATION_MODE_CFG.USE_CNT", 8, "PPU.OPERATION_MODE_CFG.USE_CNT: 8 is outside 0..7"),
        ("PPU.DATA_CUBE_IN_WIDTH", 1.5, "PPU.DATA_CUBE_IN_WIDTH: 1.5 is neither a whole number nor a name"),
        (
            "PPU.OPERATION_MODE_CFG.USE_CNT",
            2.5,
            "PPU.OPERATION_MODE_CFG.USE_CNT: 2.5 is neither a whole number nor a name",
        ),
        ("PPU.OPERATION_MODE_CFG", 1 << 31, "has bits 0x80000000 that belong to no field"),
        ("PPU.OPERATION_MODE_CFG", 1 << 32, "is outside 0..0xFFFFFFFF"),
        ("PPU.OPERATION_MODE_CFG", "MAX", "'MAX' is a value for one of its fields"),
        ("PPU.DST_BASE_ADDR", 0x1008, "has bits 0x8 that belong to no field"),
        (
            "PPU.DST_BASE_ADDR",
            "out",
            r"'out' is neither a code of PPU.DST_BASE_ADDR nor a buffer \(buffers: in\)",
        ),
        ("PPU.DATA_CUBE_IN_WIDTH", "in", "PPU.DATA_CUBE_IN_WIDTH is no address register"),
    ],
)
def test_a_wrong_write_names_task_word_register_and_limit(path, value, message):
    tasks = TaskList()
    tasks.buffer("in", 16)
    task = tasks.task("PPU", name="pooling").set("PPU.DATA_CUBE_IN_HEIGHT", 3)
    with pytest.raises(RegcmdError, match=message) as caught:
        task.set(path, value)
    assert str(caught.value).startswith(f"pooling, word 2 ({path}): ")
    assert len(task) == 2


def test_a_field_keeps_the_others_and_a_register_is_written_again():
    task = TaskList().task("PPU", pointers=False)
    task.set("PPU.DATA_FORMAT", INDEX_ADD=48, PROC_PRECISION="INT8")
    task["PPU.DATA_FORMAT.INDEX_ADD"] = 3
    assert task["PPU.DATA_FORMAT"] == registers()["PPU"]["DATA_FORMAT"].encode(
        INDEX_ADD=3, PROC_PRECISION="INT8"
    )
    assert len(task) == 1
    task.set("PPU.DATA_FORMAT", 0)
    assert len(task) == 2 and task["PPU.DATA_FORMAT.INDEX_ADD"] == 0
    assert list(task) == ["PPU.DATA_FORMAT"]
    assert "PPU.DATA_FORMAT" in task and "PPU.MISC_CTRL" not in task and "PPU.NOTHING" not in task
    with pytest.raises(KeyError, match=r"does not write PPU\.MISC_CTRL"):
        task["PPU.MISC_CTRL"]


def test_a_value_and_fields_exclude_each_other():
    task = TaskList().task("PPU")
    with pytest.raises(RegcmdError, match="either a value or fields"):
        task.set("PPU.DATA_FORMAT", 1, INDEX_ADD=2)
    with pytest.raises(RegcmdError, match="a field takes one value"):
        task.set("PPU.DATA_FORMAT.INDEX_ADD", INDEX_ADD=2)
    with pytest.raises(RegcmdError, match="no field 'WIDTH'"):
        task.set("PPU.DATA_FORMAT", WIDTH=2)


def test_pointers_are_those_of_the_compiler():
    words = [registers()[block]["S_POINTER"].path for block in ("DPU", "DPU_RDMA")]
    tasks = TaskList()
    assert list(tasks.task("CNA", "CORE", "DPU", "DPU_RDMA")) == words
    assert tasks[0]["DPU.S_POINTER"] == 0x0E
    assert list(tasks.task("DPU", pointers=False)) == []


def test_an_unknown_block_is_refused():
    with pytest.raises(RegcmdError, match="NPU"):
        TaskList().task("NPU")


# -- buffers ---------------------------------------------------------------------------------------------


def test_buffers_have_free_pages_between_them():
    tasks = TaskList()
    one, two = tasks.buffer("one", np.arange(5000, dtype=np.int8)), tasks.buffer("two", (2, 3), np.float16)
    assert two.address - one.address == 3 * 4096
    assert two.array.dtype == np.float16 and two.array.shape == (2, 3)
    assert tasks.buffer("three", 10, at=0x8000_0000).address == 0x8000_0000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("one", 4), "has a buffer 'one' already"),
        (("two", (0, 4)), r"shape \[0, 4\] has no elements"),
        (("two", (-1, 4)), "negative dimension"),
        (("two", 4, object), "need a type of fixed size"),
    ],
)
def test_wrong_buffers_are_refused(arguments, message):
    tasks = TaskList()
    tasks.buffer("one", 4)
    with pytest.raises(ValueError, match=message):
        tasks.buffer(*arguments)
    with pytest.raises(ValueError, match="exceed 32-bit addresses"):
        tasks.buffer("far", 8192, at=0xFFFF_F000)


def test_a_part_of_a_buffer_can_be_meant():
    tasks = TaskList()
    buffer = tasks.buffer("rows", (4, 16), np.int8)
    task = tasks.task("PPU_RDMA", pointers=False).set("PPU_RDMA.SRC_BASE_ADDR", buffer + 32)
    assert task["PPU_RDMA.SRC_BASE_ADDR"] == buffer.address + 32
    task.set("PPU.DST_BASE_ADDR.DST_BASE_ADDR", buffer + 32)
    assert task["PPU.DST_BASE_ADDR"] == buffer.address + 32
    with pytest.raises(RegcmdError, match="is not a multiple of 16"):
        task.set("PPU.DST_BASE_ADDR", buffer + 8)


# -- chains ----------------------------------------------------------------------------------------------


def test_the_chain_is_that_of_the_builders_function():
    tasks = pool_list(cube(6, 6), times=3)
    stream = tasks.stream()
    copies = [TaskBuilder(task.name).enable(*task.blocks) for task in tasks]
    for copy, task in zip(copies, tasks, strict=True):
        for word in task.builder.body:
            copy.raw(word)
    wanted = build_task_list(copies, stream.kick.base)
    commands = next(region for region in stream.regions if region.name == "commands")
    data = commands.data.tobytes()
    assert commands.address == wanted.address
    assert wanted.data.startswith(data) and not any(wanted.data[len(data) :])
    assert stream.kick.tasks == 3 and stream.kick.amount == wanted.tasks[0].amount
    assert stream.kick.interrupt_mask == interrupt_bits("PPU_0", "PPU_1")
    assert [task.address for task in stream.tasks] == [entry.address for entry in wanted.tasks]


def test_a_list_moves_with_its_buffers():
    tasks = pool_list(cube(4, 5))
    moved = tasks.stream(0x5000_0000)
    delta = 0x5000_0000 - tasks.at
    for name in ("features", "pooled 1"):
        assert next(r for r in moved.regions if r.name == name).address == tasks.buffers[name].address + delta
    assert moved.tasks[0]["PPU_RDMA.SRC_BASE_ADDR"] == tasks.buffers["features"].address + delta
    assert moved.tasks[0]["PPU.DST_BASE_ADDR"] == tasks.buffers["pooled 1"].address + delta
    tasks.buffer("fixed", 16, at=0x7000_0000)
    with pytest.raises(RegcmdError, match="addresses were given"):
        tasks.stream(0x5000_0000)


def test_a_list_of_a_stream_moves_with_its_regions():
    tasks, stream = TaskList.load(POOL), Stream.load(POOL)
    assert tasks.movable and tasks.at == 0x100000
    moved = tasks.stream(0x4000_0000)
    assert [r.address - 0x4000_0000 for r in moved.regions] == [r.address - 0x100000 for r in stream.regions]
    for path in ("PPU.DST_BASE_ADDR", "PPU_RDMA.SRC_BASE_ADDR"):
        assert moved.tasks[0][path] - 0x4000_0000 == stream.tasks[0][path] - 0x100000
    for path in ("PPU.RECIP_KERNEL_WIDTH", "PPU.PADDING_VALUE_1_CFG"):
        assert moved.tasks[0][path] == stream.tasks[0][path]
    assert moved.kick.base == 0x4000_0000 and moved.compare("golden")


def test_empty_lists_and_tasks_without_blocks_are_refused():
    with pytest.raises(RegcmdError, match="at least one task"):
        TaskList().stream()
    tasks = TaskList()
    tasks.task()
    with pytest.raises(RegcmdError, match="starts no block"):
        tasks.run("golden")


# -- text ------------------------------------------------------------------------------------------------


def test_text_and_back():
    tasks = pool_list(cube(6, 6), times=2)
    back = TaskList.from_text(tasks.dump(memory=True))
    assert str(back) == str(tasks)
    assert [task.builder.words() for task in back] == [task.builder.words() for task in tasks]
    words = TaskList.from_text("\n".join(str(task) for task in tasks))  # words alone, at other places
    assert [task.builder.body for task in words] == [task.builder.body for task in tasks]


def test_the_text_is_that_of_the_command_line():
    printed = CliRunner().invoke(app, ["regcmd", "dump", str(POOL)])
    assert printed.exit_code == 0
    assert printed.output == str(TaskList.load(POOL)) + "\n" == str(Stream.load(POOL)) + "\n"
    printed = CliRunner().invoke(app, ["regcmd", "dump", "--with-memory", str(POOL)])
    assert printed.output == Stream.load(POOL).dump(memory=True) + "\n"


def test_a_stream_file_and_back(tmp_path):
    TaskList.load(POOL).save(tmp_path / "again.json")
    again, first = Stream.load(tmp_path / "again.json"), Stream.load(POOL)
    assert again.kick == first.kick
    for one, other in zip(again.regions, first.regions, strict=True):
        assert one.address == other.address and (one.data == other.data).all()


def test_text_that_is_no_task_list_is_refused():
    with pytest.raises(RegcmdError, match="line 1"):
        TaskList.from_text("PPU.NOTHING A=1")
    with pytest.raises(RegcmdError, match="does not end with its only op-enable word"):
        TaskList.from_text("PPU.DATA_FORMAT INDEX_ADD=1")
    with pytest.raises(RegcmdError, match="does not end as task lists do"):
        TaskList.from_text("NOP\nNOP\nNOP\nNOP\nOP_ENABLE PPU")
    with pytest.raises(RegcmdError, match=r"no \.stream line"):
        Stream.from_text("NOP")


# -- runs ------------------------------------------------------------------------------------------------


def test_a_run_gives_arrays_by_name():
    features = cube(6, 7)
    result = pool_list(features, times=2).run("golden")
    assert (result["pooled 1"] == max_pool(features)).all()
    assert (result["pooled 2"] == max_pool(max_pool(features))).all()
    assert result["pooled 2"].dtype == np.int8
    assert result["features"] is not features and (result["features"] == features).all()
    assert result.keys() == ["features", "pooled 1", "pooled 2", "commands"]
    assert result.cycles is None and [task.cycles for task in result.tasks] == [None, None]
    assert result.interrupts == ("PPU_0", "PPU_1") and result.done and not result.diagnostics
    with pytest.raises(KeyError, match="no buffer or region 'pooled'; it has 'features', 'pooled 1'"):
        result["pooled"]


def test_a_list_runs_again_on_the_same_engine_and_leaves_nothing():
    tasks = pool_list(cube(5, 5))
    with open_engine("golden") as engine:
        for seed in range(3):
            tasks.buffers["features"].array[...] = cube(5, 5, seed)
            assert (tasks.run(engine)["pooled 1"] == max_pool(cube(5, 5, seed))).all()
            assert engine.memory.ranges == {}
        kept = tasks.run(engine, keep=True)
        address = tasks.buffers["pooled 1"].address
        assert (engine.memory.view(address, (4, 4, 16), np.int8) == kept["pooled 1"]).all()


def test_a_comparison_finds_the_first_difference():
    good, wrong = pool_list(cube(5, 6)), pool_list(cube(5, 6))
    wrong[0]["PPU.OPERATION_MODE_CFG.POOLING_METHOD"] = "MIN"
    ours, theirs = wrong.run("golden"), good.run("golden")
    verdict = ours.compare(theirs)
    assert not verdict and verdict.text.startswith("MISMATCH: region 'pooled 1': ")
    first = tuple(np.argwhere(ours["pooled 1"] != theirs["pooled 1"])[0])
    found = verdict.difference
    assert (found["row"], found["column"], found["channel"]) == first
    assert (found["task"], found["block"], found["surface"]) == (0, "PPU", 0)
    assert found["differing"] == np.count_nonzero(ours["pooled 1"] != theirs["pooled 1"])
    assert good.compare("golden")
    assert str(good.compare("golden")).startswith("match: golden = task golden in all")


def test_a_hang_is_an_error_with_its_place():
    tasks = pool_list(cube(5, 5))
    tasks[0]["PPU.DATA_CUBE_IN_WIDTH"] = 9
    assert tasks.lint().errors[0].path == "PPU_RDMA.CUBE_IN_WIDTH.CUBE_IN_WIDTH"
    with pytest.raises(JobTimeout, match="no interrupt within 5000 cycles") as caught:
        tasks.run("golden", max_cycles=5000)
    error = caught.value
    assert (error.core, error.task, error.register, error.value) == (0, 0, "PPU.DATA_CUBE_IN_WIDTH", 9)
    assert error.code == "SIZE_MISMATCH" and "expects 10" in error.state
    assert error.result is not None and not error.result.done
    assert error.place() == {"task": 0, "register": "PPU.DATA_CUBE_IN_WIDTH", "core": 0}


def test_a_diagnostic_is_an_error_with_its_place():
    tasks = pool_list(cube(5, 5))
    tasks[0].set("PPU.DST_BASE_ADDR", 0x0FFF_0000)  # nothing is mapped there
    with pytest.raises(JobError) as caught:
        tasks.run("golden")
    assert caught.value.task == 0 and caught.value.core == 0
    assert not isinstance(caught.value, JobTimeout)
    assert caught.value.__cause__ is not None


def test_lint_counts_and_shows():
    tasks = pool_list(cube(5, 5))
    found = tasks.lint()
    assert not found.errors and found.summary.startswith("1 tasks: 0 errors")
    wrong = Stream.load(POOL)
    wrong.tasks[0]["PPU.DATA_CUBE_IN_WIDTH"] = 16
    assert str(wrong.lint()) == (
        "error: task 0, word 18: PPU_RDMA.CUBE_IN_WIDTH.CUBE_IN_WIDTH = 15: PPU_RDMA delivers width 16, the "
        "PPU expects 17 (or PPU.DATA_CUBE_IN_WIDTH) [pool.cube]\n1 tasks: 1 errors, 0 warnings"
    )


def test_options_of_an_engine_that_is_open_are_refused():
    tasks = pool_list(cube(5, 5))
    with open_engine("golden") as engine:
        with pytest.raises(ValueError, match="trace is for an engine that is opened for the run"):
            tasks.run(engine, trace="w.vcd")
        with pytest.raises(ValueError, match="dram is for an engine"):
            tasks.run(engine, dram=None)
        with pytest.raises(ValueError, match="records no events"):
            tasks.run(engine, events=True)
        assert engine.memory.ranges == {}
        assert tasks.run(engine).done  # the engine is still usable


def test_a_run_without_events_has_no_writes():
    result = pool_list(cube(5, 5)).run("golden")
    for call in (lambda: result.writes("PPU.DATA_FORMAT"), result.dump):
        with pytest.raises(ValueError, match="recorded no events"):
            call()


# -- streams ---------------------------------------------------------------------------------------------


def test_tasks_of_a_stream_change_the_stream(tmp_path: Path):
    stream = Stream.load(POOL)
    task = stream.tasks[0]
    assert task["PPU.OPERATION_MODE_CFG.POOLING_METHOD"] == 1 and task.blocks == ["PPU", "PPU_RDMA"]
    task["PPU.OPERATION_MODE_CFG.POOLING_METHOD"] = "MIN"
    assert "POOLING_METHOD=MIN" in str(stream) and "POOLING_METHOD=MIN" in str(task)
    stream.save(tmp_path / "min.json")
    assert Stream.load(tmp_path / "min.json").tasks[0]["PPU.OPERATION_MODE_CFG.POOLING_METHOD"] == 2
    with pytest.raises(RegcmdError, match=r"task 0 does not write DPU\.DATA_FORMAT, and a task of a stream"):
        task["DPU.DATA_FORMAT"] = 1
    result = stream.run("golden")
    source = result["input cube"].view(np.int8)[: 12 * 16 * 16].reshape(12, 16, 16)
    windows = source.reshape(6, 2, 8, 2, 16)
    assert (
        result["output cube"].view(np.int8)[: 6 * 8 * 16].reshape(6, 8, 16) == windows.min(axis=(1, 3))
    ).all()


def test_a_stream_runs_on_any_device_of_the_protocol():
    """Also on a golden model that was not opened by `open_engine`."""
    stream = Stream.load(POOL)
    device = GoldenNpu(1)
    begun = stream.begin(device, 0)
    assert begun.end(bool(device.run_until_irq(1, 1000))).compare()


def test_memory_of_a_stream_that_is_partly_mapped_is_refused():
    tasks = pool_list(cube(5, 5))
    tasks.buffer("large", 0x3000, at=0x5000_1000)
    with open_engine("golden") as engine:
        engine.memory.map(0x5000_0000, 0x2000)
        with pytest.raises(MemoryAccessError, match="overlaps what is mapped: 0x50000000..0x50002000"):  # noqa: RUF043
            tasks.run(engine)
        assert engine.memory.ranges == {0x5000_0000: 0x2000}


def test_memory_that_the_host_has_mapped_is_used():
    stream = Stream.load(POOL)
    with open_engine("golden") as engine:
        engine.memory.map(0x100000, 0x10000)
        assert stream.run(engine).compare()
        assert engine.memory.ranges == {0x100000: 0x10000}


# -- what people see -------------------------------------------------------------------------------------


def test_representations_are_short():
    tasks = pool_list(cube(5, 5))
    stream = Stream.load(POOL)
    result = tasks.run("golden")
    assert repr(tasks) == "<TaskList 'pool': 1 task, 28 words, 2 buffers>"
    assert repr(stream) == "<Stream 'pool.json': 1 task, 30 words, 3 regions with 4,080 bytes, core 0>"
    assert repr(result) == "<run on golden: 1 task, no cycles, PPU_0>"
    assert repr(tasks[0]) == "<task 'task 0': 23 words, PPU PPU_RDMA>"
    assert repr(stream.tasks[0]) == "<task 0: 30 words at 0x00100000, PPU PPU_RDMA>"
    assert repr(tasks.buffers["features"]).startswith("<buffer 'features': int8 [5, 5, 16] at 0x")
    for shown in (tasks, stream, result, tasks[0], stream.tasks[0], tasks.lint()):
        page = shown._repr_html_()
        assert page.startswith("<table>") and page.endswith("</table>")
        assert len(repr(shown)) < 100


def test_html_escapes_names():
    tasks = TaskList(name="<b>")
    tasks.task("PPU")
    assert "<b>" not in tasks._repr_html_() and "&lt;b&gt;" in tasks._repr_html_()
