"""A stream of many small tasks of all kinds, and copies of it with one field changed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np

from rkcosim.driver.core_port import Kick
from rkcosim.regcmd import register_word, words_to_bytes
from rkcosim.regcmd.disassembler import Command
from rkcosim.verify.conformance.arena import BASE
from rkcosim.verify.conformance.groups import draw_case
from rkcosim.verify.crosscheck.program import link
from rkcosim.verify.streams.programs import program_of_stream
from rkcosim.verify.streams.stream import PAGE, Region, Stream

GROUPS = (
    "conv int8",
    "conv fp16",
    "depthwise int8",
    "pool int8",
    "flying integers",
    "ew integers, memory",
    "conv int16",
    "argb int8",
    "pool fp16",
    "ew floats, memory",
)
COMMANDS = 0x8000_0000


def long_stream(seed: int, tasks: int = 100) -> Stream:
    """Return a chain of `tasks` drawn tasks, each with separate memory."""
    drawn, regions, base, index = [], [], BASE, 0
    while len(drawn) < tasks:
        case = draw_case(GROUPS[index % len(GROUPS)], seed, index, base=base)
        index += 1
        if len(case.plan.tasks) != 1 or case.plan.tasks[0].uploads:
            continue
        used = -(-(case.arena.end - base) // PAGE) * PAGE
        regions.append(Region(f"task {len(drawn)}", base, case.arena.image()[:used].copy()))
        drawn += case.plan.tasks
        base += -(-(used + PAGE) // 0x10000) * 0x10000
    chain = link(drawn, COMMANDS)
    size = max(address + 8 * len(words) for address, words in chain.lists) - COMMANDS
    image = np.zeros(-(-size // PAGE) * PAGE, np.uint8)
    for address, words in chain.lists:
        raw = np.frombuffer(words_to_bytes(words), np.uint8)
        image[address - COMMANDS :][: raw.size] = raw
    regions.append(Region("command lists", COMMANDS, image))
    return Stream(Kick(chain.base, chain.amount, tasks, chain.interrupt_mask), regions)


@dataclass(frozen=True)
class Plant:
    """One changed field."""

    task: int
    command: Command
    field: str
    old: int
    new: int

    @property
    def path(self) -> str:
        assert self.command.register is not None
        return f"{self.command.register.path}.{self.field}"

    def __str__(self) -> str:
        return f"task {self.task}, {self.path}: {self.old} -> {self.new}"


def plant(stream: Stream, rng: Random, fields: frozenset[str] | None = None) -> tuple[Stream, Plant]:
    """Return a copy of a stream with one field of one task changed, one of `fields` (paths) if given."""
    tasks = program_of_stream(stream).tasks
    while True:
        index = rng.randrange(len(tasks))
        places = [
            (command, name)
            for command in tasks[index].commands
            if command.register is not None and command.register.shadowed
            for name, field in command.register.fields.items()
            if "w" in field.sw and (fields is None or f"{command.register.path}.{name}" in fields)
        ]
        if places:
            break
    command, name = rng.choice(places)
    assert command.register is not None
    field = command.register.fields[name]
    old, size = command.fields[name], 1 << field.width
    choices = (old + 1, old - 1, 2 * old, old // 2, 0, size - 1, rng.randrange(size), rng.randrange(size))
    news = [value % size for value in choices if value % size != old % size]
    new = rng.choice(news)
    value = command.register.update(command.value, **{name: new})
    copy = Stream(stream.kick, [Region(r.name, r.address, r.data) for r in stream.regions])
    address = tasks[index].address
    assert address is not None
    for region in copy.regions:
        start = address + 8 * command.index - region.address
        if 0 <= start < region.data.size:
            region.data = region.data.copy()
            word = words_to_bytes([register_word(command.register, value)])
            region.data[start : start + 8] = np.frombuffer(word, np.uint8)
    return copy, Plant(index, command, name, old, new)
