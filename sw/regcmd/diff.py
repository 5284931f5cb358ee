"""Comparison of two register programs by task, register and field, independent of the order of words."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

from rkcosim.regcmd.disassembler import Command, format_command
from rkcosim.regcmd.program import ListedTask, Program
from rkcosim.spec.regs import Register, registers

Key = tuple[str, int]
"""Identity of a word: its register or kind, and how often it occurred before in its task."""


@dataclass(frozen=True)
class WordPair:
    """A word of one task and the word for the same register in the other task.

    Members
    -------
    state : "same", "changed", "moved" (equal, at another place), "left" or "right" (only on that side).
    left, right : the words; None where there is none.
    fields : name -> (left, right) of the fields that differ.
    moved : the order of the word relative to the others differs (also for changed words).
    """

    state: str
    left: Command | None
    right: Command | None
    fields: dict[str, tuple[int, int]] = field(default_factory=dict)
    moved: bool = False

    @property
    def name(self) -> str:
        """Register or kind of the word."""
        command = self.left or self.right
        assert command is not None
        return command.name

    def as_json(self) -> dict[str, Any]:
        """The pair as data for JSON."""
        return {
            "state": self.state,
            "moved": self.moved,
            "register": self.name,
            "left": _word_json(self.left),
            "right": _word_json(self.right),
            "fields": {name: list(values) for name, values in self.fields.items()},
        }


def _word_json(command: Command | None) -> dict[str, Any] | None:
    return None if command is None else {"index": command.index, "word": f"0x{command.word:016x}"}


@dataclass(frozen=True)
class TaskPair:
    """A task and the task that it matches; an index is None if the other side has no such task."""

    left: int | None
    right: int | None
    words: list[WordPair]

    @property
    def same(self) -> bool:
        """Whether both tasks have the same words, possibly in another order."""
        return all(pair.state in ("same", "moved") for pair in self.words) and None not in (
            self.left,
            self.right,
        )

    def as_json(self, everything: bool = False) -> dict[str, Any]:
        """The pair as data for JSON, with the words that differ or all words."""
        words = [pair.as_json() for pair in self.words if everything or pair.state != "same" or pair.moved]
        return {"left": self.left, "right": self.right, "words": words}


def diff_programs(left: Program, right: Program) -> list[TaskPair]:
    """Match the tasks of two programs and the words in them.

    Tasks match by number if both sides have equally many, otherwise by the registers that they write, so that
    an inserted or deleted task does not affect those after it.
    """
    return [
        TaskPair(
            a,
            b,
            diff_tasks(
                left.tasks[a] if a is not None else None,
                right.tasks[b] if b is not None else None,
            ),
        )
        for a, b in _match(left.tasks, right.tasks)
    ]


def _match(left: list[ListedTask], right: list[ListedTask]) -> list[tuple[int | None, int | None]]:
    if len(left) == len(right):
        return [(n, n) for n in range(len(left))]
    pairs: list[tuple[int | None, int | None]] = []
    matcher = SequenceMatcher(None, [_shape(t) for t in left], [_shape(t) for t in right], autojunk=False)
    for kind, a0, a1, b0, b1 in matcher.get_opcodes():
        common = min(a1 - a0, b1 - b0) if kind in ("equal", "replace") else 0
        pairs += [(a0 + n, b0 + n) for n in range(common)]
        pairs += [(n, None) for n in range(a0 + common, a1)]
        pairs += [(None, n) for n in range(b0 + common, b1)]
    return pairs


def _shape(task: ListedTask) -> int:
    """Hash of a task's words without addresses."""
    return hash(
        tuple(
            command.word
            for command in task.commands
            if command.register is None or not _is_address(command.register)
        )
    )


def _is_address(register: Register) -> bool:
    return register.block == "PC" or register.name.endswith(("_ADDR", "ADDR0"))


def _keys(commands: list[Command]) -> list[Key]:
    seen: Counter[str] = Counter()
    keys = []
    for command in commands:
        name = command.register.path if command.register else f"{command.kind} {command.target}"
        if command.kind == "unknown":
            name += f" {command.offset}"
        keys.append((name, seen[name]))
        seen[name] += 1
    return keys


def diff_tasks(left: ListedTask | None, right: ListedTask | None) -> list[WordPair]:
    """Pairs of the words of two tasks in the order of the left task; words of the right task are inserted."""
    if left is not None and right is not None and left.words == right.words:
        pairs_ = zip(left.commands, right.commands, strict=True)
        return [WordPair("same", mine, other) for mine, other in pairs_]
    ours = left.commands if left is not None else []
    theirs = right.commands if right is not None else []
    a, b = _keys(ours), _keys(theirs)
    place = {key: number for number, key in enumerate(b)}
    known = set(a)
    pairs: list[WordPair] = []
    matcher = SequenceMatcher(None, a, b, autojunk=False)
    for kind, a0, a1, b0, b1 in matcher.get_opcodes():
        if kind == "equal":
            pairs += [_pair(ours[a0 + n], theirs[b0 + n], False) for n in range(a1 - a0)]
            continue
        for number in range(a0, a1):
            other = place.get(a[number])
            if other is None:
                pairs.append(WordPair("left", ours[number], None))
            else:
                pairs.append(_pair(ours[number], theirs[other], True))
        pairs += [WordPair("right", None, theirs[n]) for n in range(b0, b1) if b[n] not in known]
    return pairs


def _pair(left: Command, right: Command, moved: bool) -> WordPair:
    if left.word == right.word:
        return WordPair("moved" if moved else "same", left, right, {}, moved)
    fields = {}
    if left.register is not None and left.register is right.register:
        mine, other = left.register.decode(left.value), right.register.decode(right.value)
        fields = {name: (mine[name], other[name]) for name in mine if mine[name] != other[name]}
    elif left.kind == right.kind == "op_enable":
        mask = registers()["GLOBAL"]["OPERATION_ENABLE"]
        mine, other = mask.decode(left.value), mask.decode(right.value)
        fields = {name: (mine[name], other[name]) for name in mine if mine[name] != other[name]}
    return WordPair("changed", left, right, fields, moved)


def field_text(register: Register | None, name: str, value: int) -> str:
    """A field's value as text: the name of its code if it has one."""
    if register is None or name not in register.fields:
        return str(value)
    item = register.fields[name]
    label = item.label(value)
    if label is not None:
        return label
    return f"0x{value:X}" if item.width >= 16 and not item.signed and value > 9 else str(value)


def diff_lines(pairs: list[TaskPair], everything: bool = False, width: int = 100) -> list[str]:
    """Lines of a side-by-side text: left column, mark, right column."""
    half = max(24, (width - 5) // 2)
    lines: list[str] = []
    for pair in pairs:
        words = [p for p in pair.words if everything or p.state != "same"]
        if not words and pair.left == pair.right:
            continue
        lines.append(_heading(pair))
        if None in (pair.left, pair.right) and not everything:
            continue
        for item in words:
            lines += _pair_lines(item, half)
    return lines


def _heading(pair: TaskPair) -> str:
    if pair.left is None:
        return f"task - | task {pair.right}: only on the right"
    if pair.right is None:
        return f"task {pair.left} | task -: only on the left"
    changed = sum(p.state != "same" for p in pair.words)
    return f"task {pair.left} | task {pair.right}: {changed} of {len(pair.words)} words differ"


_MARKS = {"same": "   ", "changed": " | ", "moved": " ~ ", "left": " < ", "right": " > "}


def _pair_lines(item: WordPair, half: int) -> list[str]:
    left, right = item.left, item.right
    if item.state == "changed" and item.fields:
        register = left.register if left else None
        where = f"{item.name} (words {left.index if left else '-'} | {right.index if right else '-'})"
        lines = ["  " + where + ("  ~ moved" if item.moved else "")]
        for name, (mine, other) in item.fields.items():
            a, b = field_text(register, name, mine), field_text(register, name, other)
            lines.append(f"    {name + ' = ' + a:<{half - 4}} | {name} = {b}")
        return lines
    a = format_command(left) if left else ""
    b = format_command(right) if right else ""
    if item.state == "moved":
        assert left is not None and right is not None
        return [f"  {item.name}  ~ moved from word {left.index} to {right.index}"]
    return [f"  {_cut(a, half - 2):<{half - 2}}{_MARKS[item.state]}{_cut(b, half)}".rstrip()]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
