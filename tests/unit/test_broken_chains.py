"""Streams with a broken chain of tasks: compared up to the break, which the message names with its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from rkcosim.cli.main import app
from rkcosim.regcmd import decode_word, op_enable_mask, op_enable_word, register_word
from rkcosim.spec.regs import registers
from rkcosim.verify.differences.streams import first_command, walked, writes_of
from rkcosim.verify.streams.programs import program_of_stream
from rkcosim.verify.streams.stream import Stream

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "streams" / "digits.json"


def patched(stream: Stream, task: int, path: str, change: Callable[[int], int | None]) -> Stream:
    """The stream with one register's value changed in a task (None: no word writes it)."""
    address = program_of_stream(stream).tasks[task].address
    assert address is not None
    block, name = path.split(".")
    register = registers()[block][name]
    for region in stream.regions:
        place = address - region.address
        if not 0 <= place < region.data.size:
            continue
        words = region.data[place:].view("<u8")
        for number in range(len(program_of_stream(stream).tasks[task].words)):
            command = decode_word(int(words[number]))
            if command.register is register:
                value = change(command.value)
                words[number] = 0 if value is None else register_word(register, value)
                return stream
    raise AssertionError(f"task {task} does not write {path}")


def test_op_enable_words_are_shown_by_their_blocks():
    """CORE left out of task 1."""
    right, wrong = Stream.load(DIGITS), Stream.load(DIGITS)
    task = program_of_stream(wrong).tasks[1]
    region = next(r for r in wrong.regions if r.address <= task.address < r.address + r.data.size)
    words = region.data[task.address - region.address :].view("<u8")
    at = next(command.index for command in task.commands if command.kind == "op_enable")
    words[at] = op_enable_word(op_enable_mask(["CNA", "DPU", "DPU_RDMA"]))
    finding = first_command(wrong, right)
    assert finding.text == "task 1, OP_ENABLE: CNA DPU DPU_RDMA, against CNA CORE DPU DPU_RDMA"


def broken(how: str) -> Stream:
    """The digits' stream, damaged after task 3 or at its start."""
    stream = Stream.load(DIGITS)
    if how == "link 0":
        return patched(stream, 3, "PC.BASE_ADDRESS", lambda value: 0)
    if how == "no link":
        return patched(stream, 3, "PC.BASE_ADDRESS", lambda value: None)
    if how == "amount too small":
        return patched(stream, 3, "PC.REGISTER_AMOUNTS", lambda value: 3)
    if how == "amount of the kick":
        return Stream(replace(stream.kick, amount=2), stream.regions, stream.core, stream.writes)
    raise AssertionError(how)


SAID = {
    "link 0": (4, "after task 3 (at 0x0): ", "PC.BASE_ADDRESS 0x0, against 0x"),
    "no link": (4, "after task 3: no link, but ", "PC.BASE_ADDRESS not written, against 0x"),
    "amount too small": (4, "no op-enable word among the ", "PC.REGISTER_AMOUNTS 0x3, against 0x"),
    "amount of the kick": (0, "at its start (at 0x", "PC.REGISTER_AMOUNTS 0x2, against 0x"),
}


@pytest.mark.parametrize("how", SAID)
def test_the_break_is_named(how: str, tmp_path: Path):
    whole, bad = Stream.load(DIGITS), broken(how)
    tasks, place, words = SAID[how]
    finding = first_command(bad, whole)
    assert finding is not None and finding.data["kind"] == "chain" and finding.data["side"] == "ours"
    assert finding.data["tasks"] == tasks and place in finding.text and words in finding.text
    other = first_command(whole, bad)
    assert other is not None and other.data["side"] == "theirs" and place in other.text
    bad.save(tmp_path / "bad.json")
    out = tmp_path / "found.json"
    for order in ([tmp_path / "bad.json", DIGITS], [DIGITS, tmp_path / "bad.json"]):
        said = CliRunner().invoke(app, ["diff", *map(str, order), "--engine", "golden", "--json", str(out)])
        assert said.exit_code == 1 and place in said.output, said.output
        assert json.loads(out.read_text())["verdict"]["kind"] == "chain"


KICKS = {
    "interrupt_mask": ("PC.INTERRUPT_MASK", 0xC00),
    "dma_base": ("PC.TASK_DMA_BASE_ADDR", 0x1000),
    "pp_en": ("PC.TASK_CON", 0),
}


@pytest.mark.parametrize("member", KICKS)
def test_members_of_the_kick_are_compared_before_anything_runs(member: str, tmp_path: Path):
    """Both orders name the same register; with another mask one of the two would never end."""
    path, value = KICKS[member]
    whole, bad = Stream.load(DIGITS), Stream.load(DIGITS)
    bad.kick = replace(bad.kick, **{member: value})
    bad.save(tmp_path / "bad.json")
    for order in ([tmp_path / "bad.json", DIGITS], [DIGITS, tmp_path / "bad.json"]):
        said = CliRunner().invoke(app, ["diff", *map(str, order), "--engine", "golden"])
        assert said.exit_code == 1 and f"the host, {path}: 0x" in said.output, said.output
    finding = first_command(bad, whole)
    assert finding is not None and (finding.data["kind"], finding.data["register"]) == ("kick", path)


def test_what_differs_before_the_break_comes_first():
    bad = patched(broken("link 0"), 2, "DPU.OUT_CVT_SHIFT", lambda value: value ^ 1)
    finding = first_command(bad, Stream.load(DIGITS))
    assert finding is not None and finding.data["kind"] == "command"
    assert (finding.data["task"], finding.data["register"]) == (2, "DPU.OUT_CVT_SHIFT")


def test_the_earlier_break_counts():
    early, late = broken("link 0"), patched(Stream.load(DIGITS), 5, "PC.BASE_ADDRESS", lambda value: 0)
    for pair, side in (((early, late), "ours"), ((late, early), "theirs")):
        finding = first_command(*pair)
        assert finding is not None and (finding.data["side"], finding.data["tasks"]) == (side, 4)


@pytest.mark.parametrize("how", SAID)
def test_the_same_break_on_both_sides_is_no_difference(how: str, tmp_path: Path):
    assert first_command(broken(how), broken(how)) is None
    broken(how).save(tmp_path / "bad.json")
    name = str(tmp_path / "bad.json")
    said = CliRunner().invoke(app, ["diff", name, name, "--engine", "golden", "--max-cycles", "1000"])
    assert said.exit_code == 3 and SAID[how][1] in said.output, said.output


def test_tasks_up_to_the_break():
    words, place, _ = walked(broken("link 0"))
    whole = walked(Stream.load(DIGITS))[0]
    assert words[:3] == whole[:3] and len(words) == 4 and place is not None and place.after == 4
    assert {write.task for write in writes_of(broken("link 0"))} <= {0, 1, 2, 3}
    assert "the chain breaks after task 3" in place.place
    assert walked(Stream.load(DIGITS))[1] is None and len(whole) == Stream.load(DIGITS).kick.tasks
