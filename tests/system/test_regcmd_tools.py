"""`rkcosim regcmd dump`, `asm`, `lint`, `capture` and `diff` as a user types them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from rkcosim import device
from rkcosim.devices.recorder import Captured, Recorder
from rkcosim.driver.core_port import CorePort, Kick
from rkcosim.golden.task import GoldenNpu
from rkcosim.regcmd import register_word, words_to_bytes
from rkcosim.regcmd.lint import lint
from rkcosim.spec.regs import registers
from rkcosim.verify.crosscheck.kick import run_kick
from rkcosim.verify.streams.capture import Expected, save
from rkcosim.verify.streams.programs import program_of_stream
from rkcosim.verify.streams.stream import Region, Stream
from tests.makers.long_stream import long_stream
from tests.system.test_cli import ROOT, rkcosim

POOL = ROOT / "examples" / "streams" / "pool.json"
PROGRAM = ROOT / "examples" / "device" / "program.py"


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return four random tasks with their expected results."""
    path = tmp_path_factory.mktemp("streams") / "four.json"
    drawn = long_stream(3, 4)
    golden = GoldenNpu(1)
    drawn.load_into(golden.memory)
    assert run_kick(golden, drawn.kick).done
    outputs = [
        Region(r.name, r.address, golden.memory.view(r.address, r.data.size).copy())
        for r in drawn.regions[:-1]
    ]
    save(drawn, Expected(outputs), path)
    return path


def changed(stream: Path, register: str, field: str, value: int, output: Path) -> Path:
    """A copy with one changed field in the last task that has it, made with dump, edit and asm."""
    text = output.with_suffix(".txt")
    assert rkcosim("regcmd", "dump", stream, "-o", text)[0] == 0
    lines = text.read_text().splitlines()
    at = max(n for n, line in enumerate(lines) if line.startswith(register + " "))
    parts = [f"{field}={value}" if part.startswith(field + "=") else part for part in lines[at].split()]
    lines[at] = " ".join(parts)
    text.write_text("\n".join(lines))
    code, said = rkcosim("regcmd", "asm", text, "--into", stream, "-o", output)
    assert code == 0, said
    return output


def test_a_stream_is_its_text(stream: Path, tmp_path: Path):
    text, again = tmp_path / "all.txt", tmp_path / "again.json"
    assert rkcosim("regcmd", "dump", stream, "--with-memory", "-o", text)[0] == 0
    assert rkcosim("regcmd", "asm", text, "-o", again)[0] == 0
    assert json.loads(again.read_text()) == json.loads(stream.read_text(encoding="utf-8"))
    short = tmp_path / "short.txt"
    assert rkcosim("regcmd", "dump", stream, "-o", short)[0] == 0
    assert rkcosim("regcmd", "asm", short, "--into", stream, "-o", again)[0] == 0
    assert json.loads(again.read_text()) == json.loads(stream.read_text(encoding="utf-8"))


def test_an_edited_field_is_found_by_lint_and_by_diff(stream: Path, tmp_path: Path):
    bad = changed(stream, "PPU.DATA_CUBE_IN_WIDTH", "DATA_CUBE_IN_WIDTH", 4000, tmp_path / "bad.json")
    found = tmp_path / "lint.json"
    code, text = rkcosim("regcmd", "lint", bad, "--json", found)
    assert code == 1 and "PPU_RDMA.CUBE_IN_WIDTH" in text and "PPU.DATA_CUBE_IN_WIDTH" in text
    data = json.loads(found.read_text())
    assert data["counts"]["error"] == 1 and "pool.cube" in [f["rule"] for f in data["findings"]]
    sides = tmp_path / "sides.json"
    code, text = rkcosim("regcmd", "dump", stream, "--diff", bad, "--json", sides)
    assert code == 1 and "DATA_CUBE_IN_WIDTH = 4000" in text
    words = [word for task in json.loads(sides.read_text())["programs"][0]["tasks"] for word in task["words"]]
    assert [word["register"] for word in words] == ["PPU.DATA_CUBE_IN_WIDTH"]
    assert rkcosim("regcmd", "dump", stream, "--diff", stream)[0] == 0
    code, text = rkcosim("diff", bad, stream, "--engine", "golden")
    assert code == 1 and "PPU.DATA_CUBE_IN_WIDTH" in text
    assert rkcosim("diff", stream, "--engine", "golden")[0] == 0


def test_rules_and_words(tmp_path: Path):
    code, text = rkcosim("regcmd", "lint", "--explain", "--rule", "cbuf.bank-sum")
    assert code == 0 and text.startswith("cbuf.bank-sum (error): CBUF has 12 banks")
    code, text = rkcosim("regcmd", "lint", POOL)
    assert (code, text.strip()) == (0, "1 tasks: 0 errors, 0 warnings")
    word = register_word(registers()["DPU"]["DATA_CUBE_WIDTH"], 7)
    code, text = rkcosim("regcmd", "dump", f"0x{word:016x}")
    assert (code, text.strip()) == (0, "DPU.DATA_CUBE_WIDTH WIDTH=7")


def test_bad_input_is_one_line(stream: Path, tmp_path: Path):
    (tmp_path / "noise.bin").write_bytes(np.random.default_rng(1).bytes(1 << 17))
    for arguments, says in (
        (("regcmd", "dump", tmp_path / "nothing"), "no such file"),
        (("regcmd", "dump", tmp_path / "noise.bin"), "no command list"),
        (("regcmd", "lint", POOL, "--rule", "nonsense"), "no such rule"),
        (("regcmd", "dump", POOL, "--at", "3"), "--at needs --events"),
        (("regcmd", "dump", POOL, "--events", POOL), "neither an event log nor a waveform"),
        (("diff", POOL, ROOT / "README.md"), "is a text file, not a stream file"),
        (("diff", POOL, POOL, "--against", POOL), "once"),
        (("regcmd", "capture", "-o", tmp_path / "x.json"), "no program given"),
    ):
        code, text = rkcosim(*arguments)
        assert code == 2 and says in text and len(text.strip().splitlines()) == 1, text


@pytest.mark.parametrize("driver", ("rknpu", "rocket"))
def test_what_a_program_does_runs_again(driver: str, tmp_path: Path):
    """In process: the captured stream of every kick of the example program gives the same bytes."""
    import runpy

    found: list[Captured] = []
    with device(engine="golden", capture=found.append):
        runpy.run_path(str(PROGRAM))["run"](driver)
    ended = [item for item in found if item.cycles is not None]
    assert len(ended) >= 5 and {item.driver for item in found} == {driver}
    assert [item.job for item in found] == sorted(item.job for item in found)
    for number, item in enumerate(ended):
        path = tmp_path / f"{number}.json"
        item.save(path)
        stream = Stream.load(path)
        golden = GoldenNpu(stream.core + 1)
        stream.load_into(golden.memory)
        assert run_kick(golden, stream.kick, stream.core, writes=stream.writes).done
        assert item.expected.outputs
        for output in item.expected.outputs:
            assert (golden.memory.view(output.address, output.data.size) == output.data).all(), output.name


def test_registers_of_earlier_kicks_go_with_a_stream():
    """The third kick has only a tail: its registers are those that the first one left."""
    stream, found = long_stream(5, 2), []
    golden = GoldenNpu(1)
    recorder = Recorder(golden, found.append)
    stream.load_into(golden.memory)
    first = program_of_stream(stream).tasks[0]
    assert first.address is not None and first.amount is not None
    alone = stream.regions[-1].address + 0x800
    golden.memory.write(alone, words_to_bytes(first.words[-2:]))
    port = CorePort(recorder, 0)
    for base, amount in ((first.address, first.amount), (first.address, first.amount), (alone, 0)):
        port.start(Kick(base, amount, 1, 0xF00, clear=0x1FFFF))
        assert recorder.run_until_irq(1, 10**6)
        port.acknowledge()
    assert not found[1].stream.writes and found[2].stream.writes
    assert [f for f in lint(program_of_stream(found[2].stream)) if f.severity == "error"] == []
    again = GoldenNpu(1)
    last = found[2]
    last.stream.load_into(again.memory)
    for output in last.expected.outputs:  # so that they are not there already
        again.memory.view(output.address, output.data.size)[:] = 0
    assert run_kick(again, last.stream.kick, writes=last.stream.writes).done
    assert last.expected.outputs
    for output in last.expected.outputs:
        assert (again.memory.view(output.address, output.data.size) == output.data).all()


def test_capture_of_a_program(tmp_path: Path):
    output, report = tmp_path / "job.json", tmp_path / "report.json"
    code, text = rkcosim(
        *("regcmd", "capture", "-o", output, "--job", "2", "--engine", "golden", "--json", report, "--"),
        *(sys.executable, PROGRAM, "rocket"),
    )
    assert code == 0, text
    data = json.loads(report.read_text())
    assert data["exit_code"] == 0 and data["jobs"] > 2
    assert [(f["job"], f["driver"]) for f in data["files"]] == [(2, "rocket")] and output.is_file()
    assert rkcosim("diff", output, "--engine", "golden")[0] == 0
    assert rkcosim("regcmd", "lint", output)[0] == 0
    code, text = rkcosim("regcmd", "capture", "-o", output, "--engine", "golden", "--", "true")
    assert code == 2 and "started no job" in text
