"""Listings and buffers: text in both directions, lists found in memory, programs side by side."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rkcosim.regcmd import RegcmdError, pack_word, register_word, words_from_bytes, words_to_bytes
from rkcosim.regcmd.diff import diff_lines, diff_programs, diff_tasks
from rkcosim.regcmd.listing import Piece, parse_listing, program_lines, stream_lines
from rkcosim.regcmd.program import ListedTask, Program, program_of_words
from rkcosim.regcmd.scan import address_of, find_lists, programs_of_buffer
from rkcosim.spec.regs import registers
from tests.makers.long_stream import long_stream

WORD = st.integers(0, 2**64 - 1)
OFFSETS = [register.offset for block in registers() for register in block]
TARGETS = list((registers().word.fields["TARGET"].enum or {}).values())
near_real = st.builds(
    pack_word,
    st.one_of(st.sampled_from(TARGETS), st.integers(0, 0xFFFF)),
    st.integers(0, 2**32 - 1),
    st.one_of(st.sampled_from(OFFSETS), st.integers(0, 0xFFFF)),
)
words_ = st.lists(st.one_of(WORD, near_real, st.just(0)), max_size=30)
tasks_ = st.lists(st.tuples(st.integers(0, 2**32 - 1), words_), min_size=1, max_size=4)


def _text(lines) -> str:
    return "".join(line + "\n" for line in lines)


@given(tasks_)
@settings(max_examples=100, deadline=None, print_blob=True)
def test_every_program_is_its_text(tasks: list[tuple[int, list[int]]]) -> None:
    program = Program("any", [ListedTask(tuple(words), address) for address, words in tasks])
    text = _text(program_lines(program))
    again = parse_listing(text)
    assert [(t.address, t.words) for t in again.tasks] == [(t.address, t.words) for t in program.tasks]


@given(tasks_, st.text(max_size=8))
@settings(max_examples=60, deadline=None, print_blob=True)
def test_comments_change_nothing(tasks: list[tuple[int, list[int]]], name: str) -> None:
    program = Program(name, [ListedTask(tuple(words), address, title="layer") for address, words in tasks])
    lines = program_lines(program, lambda index, command: "", [Piece(name, 0, bytes(1 << 20))])
    assert parse_listing(_text(lines)).words == [word for task in program.tasks for word in task.words]


def test_addresses_say_where_they_point() -> None:
    word = register_word(registers()["DPU_RDMA"]["SRC_BASE_ADDR"], 0x1010)
    program = Program("p", [ListedTask((word,))], dma_base=0x20)
    (_, line) = program_lines(program, places=[Piece("input", 0x1000, bytes(256))])
    assert line == "DPU_RDMA.SRC_BASE_ADDR SRC_BASE_ADDR=0x1010 # 0x00001030, input + 0x30"


@given(words_)
@settings(deadline=None, print_blob=True)
def test_any_words_keep_their_order(words: list[int]) -> None:
    program = program_of_words(words)
    assert [word for task in program.tasks for word in task.words] == words
    assert parse_listing(_text(program_lines(program))).words == words


@given(
    st.dictionaries(
        st.sampled_from(["core", "base", "tasks", "dma_base"]), st.integers(0, 2**32), min_size=1
    ),
    st.lists(st.tuples(st.integers(0, 0xFFFF), st.integers(0, 2**32 - 1)), max_size=3),
    st.lists(st.tuples(st.text(max_size=12), st.integers(0, 2**32 - 1), st.binary(max_size=300)), max_size=3),
)
@settings(max_examples=100, deadline=None, print_blob=True)
def test_every_stream_is_its_text(kick, writes, pieces) -> None:
    regions = [Piece(name, address, data) for name, address, data in pieces]
    text = _text(stream_lines(kick, writes, regions, regions[:1], {"PC.TASK_STATUS": 3}))
    again = parse_listing(text)
    assert (again.settings, again.writes, again.regions) == (kick, writes, regions)
    assert again.outputs == regions[:1] and again.registers == {"PC.TASK_STATUS": 3}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (".task nonsense", "line 1, 'nonsense' is not a number"),
        ("NOP\n.what 1", r"line 2, no directive \.what"),
        ('.region 0x0 4 "a"\n.data eJw=', "line 2"),
        (".data eJw=", "line 1, .data must follow"),
        ('.region 0x0 99999999999 "a"', "too many"),
        ("NOP\nCNA.NOTHING A=1", r"line 2, word 1 \(CNA.NOTHING\)"),
        (".stream core", "expected NAME=VALUE"),
        (".write 1", "takes 2 to 2 values"),
    ],
)
def test_errors_of_a_listing_say_where(text: str, says: str) -> None:
    with pytest.raises(RegcmdError, match=says):
        parse_listing(text)


@pytest.mark.parametrize("seed", (1, 2, 3))
def test_lists_are_found_in_a_buffer_of_anything(seed: int) -> None:
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    stream = long_stream(seed, 6)
    commands = stream.regions[-1]
    end = int(np.flatnonzero(commands.data)[-1]) // 8 * 8 + 8
    at = 64 * int(rng.integers(1, 1000))
    data = rng.integers(0, 256, 1 << 17).astype(np.uint8)
    data[at : at + end] = commands.data[:end]
    words = words_from_bytes(data.tobytes())
    found = find_lists(words)
    assert len(found) == 6
    assert address_of(found) == commands.address - at
    (program,) = programs_of_buffer(data.tobytes())
    assert program.tasks[0].address == stream.kick.base
    assert len(program.tasks) == 6 and not program.stopped
    end = 8 * (found[0].first + len(found[0].words))
    blind = programs_of_buffer(data[:end].tobytes())
    assert len(blind) == 1, "one whole list is left"
    assert programs_of_buffer(rng.integers(0, 256, 1 << 17).astype(np.uint8).tobytes()) == []


def test_a_file_of_words_is_shown_whole() -> None:
    rng = random.Random(4)
    words = [rng.getrandbits(64) for _ in range(50)]
    (program,) = programs_of_buffer(words_to_bytes(words))
    assert [w for task in program.tasks for w in task.words] == words


# -- side by side ------------------------------------------------------------------------------------


def _words(*settings: tuple[str, str, dict]) -> tuple[int, ...]:
    return tuple(register_word(registers()[b][r], registers()[b][r].encode(**f)) for b, r, f in settings)


A = ("DPU", "DATA_CUBE_WIDTH", {"WIDTH": 3})
B = ("DPU", "DATA_CUBE_HEIGHT", {"HEIGHT": 4})
C = ("DPU", "DATA_CUBE_CHANNEL", {"CHANNEL": 15, "ORIG_CHANNEL": 15})
D = ("CNA", "CONV_CON1", {"IN_PRECISION": "INT8"})


def test_registers_are_matched_whatever_their_order() -> None:
    left, right = ListedTask(_words(A, B, C, D)), ListedTask(_words(B, C, A))
    states = {pair.name: (pair.state, pair.moved) for pair in diff_tasks(left, right)}
    assert states["CNA.CONV_CON1"] == ("left", False)
    assert states["DPU.DATA_CUBE_WIDTH"] == ("moved", True)
    assert states["DPU.DATA_CUBE_HEIGHT"] == ("same", False)


def test_fields_that_differ_are_named_and_repeats_are_kept_apart() -> None:
    changed = ("DPU", "DATA_CUBE_CHANNEL", {"CHANNEL": 31, "ORIG_CHANNEL": 15})
    left, right = ListedTask(_words(A, C, C)), ListedTask(_words(A, C, changed))
    pairs = [p for p in diff_tasks(left, right) if p.state != "same"]
    assert [(p.name, p.fields) for p in pairs] == [("DPU.DATA_CUBE_CHANNEL", {"CHANNEL": (15, 31)})]
    (pair,) = diff_programs(Program("a", [left]), Program("b", [right]))
    lines = diff_lines([pair])
    assert any("CHANNEL = 15" in line and "CHANNEL = 31" in line for line in lines)
    assert not pair.same and len(diff_lines([pair], everything=True)) > len(lines)


def test_a_task_put_in_does_not_spoil_the_rest() -> None:
    one, two, three = (ListedTask(_words(x, D)) for x in (A, B, C))
    pairs = diff_programs(Program("a", [one, two]), Program("b", [one, three, two]))
    assert [(p.left, p.right) for p in pairs] == [(0, 0), (None, 1), (1, 2)]
    assert any("only on the right" in line for line in diff_lines(pairs))


def test_other_words_are_compared_too() -> None:
    left, right = ListedTask((1 << 63, 0)), ListedTask((1 << 63 | 1 << 16, 0))
    (word, _) = diff_tasks(left, right)
    assert word.state == "changed" and not word.fields
    assert parse_listing("NOP").words == [0]
