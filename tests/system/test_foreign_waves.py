"""Waveforms of the exported core in a testbench that is not this project's, and those of Verilator."""

from __future__ import annotations

from pathlib import Path

import pytest

from rkcosim import waves
from rkcosim.export.folder import export_folder
from rkcosim.regcmd import TaskBuilder, build_task_list
from rkcosim.regcmd.disassembler import disassemble
from rkcosim.regcmd.word import words_from_bytes
from rkcosim.spec.port_codes import client_name
from rkcosim.spec.regs import registers
from rkcosim.verify.streams.stream import Stream
from tests.makers.foreign_bench import MEMORY, NAMES, Item, Recorded, map_text, record
from tests.programs import needs_program
from tests.verilog_tools import verilator

pytestmark = [needs_program("iverilog", "vvp"), pytest.mark.heavy]
STREAM = Stream.load(Path(__file__).resolve().parents[2] / "examples" / "streams" / "pool.json")
PC = registers()["PC"]


def pc_write(name: str, **fields: int) -> Item:
    return Item("write", PC[name].offset, PC[name].encode(**fields))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The task of a stream, twice in one job, on the core in the small geometry."""
    folder = tmp_path_factory.mktemp("core")
    export_folder(folder, ["core"], geometry_name="small")
    commands, *others = STREAM.regions
    tasks = []
    for number in range(2):
        task = TaskBuilder(f"task {number}").enable("PPU", "PPU_RDMA")
        for command in disassemble(words_from_bytes(commands.data.tobytes())):
            if command.register is not None and command.block != "PC":
                task.raw(command.word)
        tasks.append(task)
    built = build_task_list(tasks, STREAM.kick.base)
    assert STREAM.kick.base + len(built.data) <= others[0].address
    script = [Item("write", registers()[block]["S_POINTER"].offset, 0xE) for block in ("CNA", "CORE")]
    script += [
        pc_write("BASE_ADDRESS", PC_SOURCE_ADDR=STREAM.kick.base // 16),
        pc_write("REGISTER_AMOUNTS", PC_DATA_AMOUNT=built.tasks[0].amount),
        pc_write("INTERRUPT_MASK", int_mask=STREAM.kick.interrupt_mask),
        pc_write("INTERRUPT_CLEAR", int_clr=0x1FFFF),
        pc_write("TASK_CON", TASK_NUMBER=2, TASK_PP_EN=1, TASK_COUNT_CLEAR=1),
        Item("write", registers()["CNA"]["CONV_CON1"].offset, 1, 0b0011),  # refused: not all bytes
        Item("read", PC["VERSION"].offset),
        Item("responses"),
        pc_write("OPERATION_ENABLE", OP_EN=1),
        Item("irq"),
        Item("read", PC["INTERRUPT_STATUS"].offset),
        Item("read", PC["TASK_STATUS"].offset),
        Item("responses"),
        pc_write("INTERRUPT_CLEAR", int_clr=0x1FFFF),
    ]
    memory = {region.address: region.data.tobytes() for region in others} | {STREAM.kick.base: built.data}
    return record(folder, script, memory, npu="npu_core", files=[folder / "npu_core.v"], levels=3)


def check_all(wave: waves.Wave, run: Recorded) -> None:
    """Compare all accesses and bursts with the bench's logs."""
    found = sorted(
        (a.direction, a.offset, a.value, a.strobes, a.start, a.accepted, a.end, a.error)
        for a in wave.accesses()
    )
    assert found == sorted(
        (a.direction, a.address, a.value, a.strobes, a.start, a.accepted, a.end, a.response == 2)
        for a in run.accesses
    )
    bursts = sorted(
        (b.direction, b.client, b.address, b.beats, b.bytes, b.start, b.accepted, b.first_data, b.end)
        for b in wave.bursts()
    )
    assert bursts == sorted(
        (
            *(b.direction, client_name(b.ident, write=b.direction == "write"), b.address, b.beats, b.bytes),
            *(b.start, b.accepted, b.first_data, b.end),
        )
        for b in run.bursts
    )


@pytest.mark.parametrize("by", ["names of the export", "prefix", "map"])
def test_the_core_in_another_hierarchy(run: Recorded, tmp_path: Path, by: str):
    if by == "map":
        (tmp_path / "ports.toml").write_text(map_text(NAMES, "board.u1."))
        wave = waves.open(run.wave, ports=tmp_path / "ports.toml")
    else:
        wave = waves.open(run.wave, prefix="board.u1.accelerator." if by == "prefix" else None)
    check_all(wave, run)
    assert [a.error for a in wave.accesses() if a.strobes != 15] == [True]
    (job,) = wave.jobs()
    last = max(b.end for b in run.bursts)
    assert (
        last < job.end
        and job.ended_by == "irq"
        and [t.blocks for t in job.tasks] == [("PPU", "PPU_RDMA")] * 2
    )
    status = [a for a in run.accesses if a.address == PC["INTERRUPT_STATUS"].offset and a.direction == "read"]
    assert job.status == status[0].value and not job.stopped
    regions = {(r.client, r.direction, r.first, r.end): r.bytes for r in wave.regions() if r.client == "PPU"}
    cubes = {name: r for r in STREAM.regions for name in ("input", "output") if r.name.startswith(name)}
    assert regions == {
        ("PPU", "read", cubes["input"].address, cubes["input"].address + 3072): 2 * 3072,
        ("PPU", "write", cubes["output"].address, cubes["output"].address + 768): 2 * 768,
    }


def test_what_only_the_core_knows(run: Recorded):
    """With the events, tasks have cycles, and the words that the PC executes are those that it fetched."""
    wave = waves.open(run.wave)
    tasks = wave.tasks()
    assert [(t.job, t.index) for t in tasks] == [(0, 0), (0, 1)]
    (job,) = wave.jobs()
    assert [(t.start, t.end) for t in job.tasks] == [(t.start, t.end) for t in tasks]
    executed = [(w.block, w.register, w.value) for w in wave.register_writes() if w.fetched]
    fetched = [
        (c.register.block, c.register.name, c.value)
        for task in job.tasks
        for c in task.commands
        if c.kind == "register" and c.register.block != "PC"
    ]
    assert executed == fetched
    writes = [b for b in run.bursts if b.direction == "write"]
    for task in tasks:
        own = [b for b in writes if task.start <= b.start < task.end]
        assert len(own) == len(writes) // 2 and all(b.end <= task.end for b in own)


def test_a_waveform_of_verilator(tmp_path: Path):
    """The same bench with its traffic generator; the log is Verilator's own."""
    script = [
        pc_write("BASE_ADDRESS", PC_SOURCE_ADDR=MEMORY // 16),
        pc_write("REGISTER_AMOUNTS", PC_DATA_AMOUNT=14),
        *(Item("write" if n % 3 else "read", 0x1000 + 4 * n, n, 15) for n in range(40)),
        *(Item("responses"), pc_write("OPERATION_ENABLE", OP_EN=1), Item("irq")),
        Item("read", PC["INTERRUPT_STATUS"].offset),
    ]
    run = record(tmp_path, script, {MEMORY: bytes(range(240))}, verilator=verilator(), uneven=True)
    (tmp_path / "ports.toml").write_text(map_text(NAMES, "board.u1."))
    wave = waves.open(run.wave, ports=tmp_path / "ports.toml")
    check_all(wave, run)
    (job,) = wave.jobs()
    assert b"".join(word.to_bytes(8, "little") for word in job.tasks[0].words) == bytes(range(240))
