"""Lines that the commands of this project print about a run that hangs or reports something."""

from __future__ import annotations

import re

from rkcosim.regcmd.lint import RULES as LINT_RULES
from rkcosim.rknn_api.explain.explanation import Explanation, Rules, events
from rkcosim.rknn_api.explain.words import find_register, register_title
from rkcosim.spec.regs import registers
from rkcosim.spec.regs.events import PORT

_BLOCKS = "|".join(block.name for block in registers() if block.has_groups)


def _bound(match: re.Match[str]) -> Explanation:
    return Explanation(
        match[0],
        "the run ended without its interrupt (exit code 3)",
        [
            "the lines behind it tell which task has not ended and which block waits for what",
            "if none does, the bound may be too small: --max-cycles sets it, and rkcosim estimate FILE gives "
            "the cycles that the work needs",
            "rkcosim regcmd lint STREAM names the wrong register, rkcosim debug STREAM stops at the task",
        ],
    )


def _state(match: re.Match[str]) -> Explanation:
    meanings = {event.name: event.meaning for event in PORT}
    names = [name for name in (match[4] or "").split(", ") if name]
    ended = match[3] == "idle"
    first = "nothing is left to do" if ended else "its blocks have not ended"
    line = "the interrupt line is high" if match[2] == "high" else "the interrupt line is low"
    return Explanation(
        match[0],
        f"task {match[1]} was the last that started; {first}, and {line}",
        [f"{name}: {meanings[name]}" for name in names if name in meanings],
    )


def _block(match: re.Match[str]) -> Explanation:
    states = {"OPERATING": "is at work on the task of", "OTHER_WAITING": "has a task waiting in"}
    what = states.get(match[3], match[3])
    return Explanation(match[0], f"{match[1]} {what} register group {match[2]} (S_STATUS)")


def _waits(match: re.Match[str]) -> Explanation:
    title = f"{match[1]} cannot go on before this"
    more = "the block at the end of such a chain was not started by the task, or has the wrong setting"
    return Explanation(match[0], title, [more])


def _masked(match: re.Match[str]) -> Explanation:
    mask = int(match[1], 16)
    return Explanation(
        match[0],
        "the work has ended, but the interrupt mask suppresses its event",
        [
            *(f"the mask enables {line}" for line in events(mask)),
            "set the mask of the kick (int_mask of the last task) to the event of the last block that the "
            "last task runs, in both register groups: 0x300 for the DPU, 0xC00 for the PPU",
        ],
    )


def _diagnostic(match: re.Match[str]) -> Explanation:
    described = find_register(match["register"])
    title = f"core {match['core']} refuses a setting of task {match['task']}, in cycle {match['cycle']}"
    lines = [match["text"] + f" (diagnostic {match['code']}, value {match['value']})"]
    if described is not None:
        lines.append(register_title(described))
    return Explanation(match[0], title, lines)


def _reason(match: re.Match[str]) -> Explanation | None:
    described = find_register(match["register"])
    if described is None:
        return None
    title = f"the golden model: task {match['task']} never ends because of this register"
    return Explanation(match[0], title, [register_title(described), match["text"]])


def _finding(match: re.Match[str]) -> Explanation | None:
    rule = LINT_RULES.get(match["rule"])
    if rule is None:
        return None
    lines = [f"{rule.why} {rule.source}"]
    if follows := re.search(r"follows from (task -?\d+, word -?\d+)", match[0]):
        lines.append(f"it is a consequence: correct {follows[1]} first")
    return Explanation(match[0], f"rule {rule.name} of rkcosim regcmd lint (docs/lint.md)", lines)


RULES: Rules = {
    r"(?:error|warning|note): (?:task \d+|host)\b.* \[(?P<rule>[a-z]+\.[a-z0-9-]+)\]$": _finding,
    r"no interrupt within \d+ cycles": _bound,
    r"^task (\d+), interrupt (high|low), (idle|not idle)(?:, now: (.+))?$": _state,
    rf"^({_BLOCKS}): group ([01]) ([A-Z]+)": _block,
    r"PC\.INTERRUPT_MASK (0x[0-9a-f]+) \(.*\) masks all events.*$": _masked,
    rf"^task (?P<task>\d+): (?P<register>(?:{_BLOCKS})\.[A-Z0-9_]+)\S* = 0x[0-9A-F]+: (?P<text>.*)$": _reason,
    rf"^(?:task \d+: )?({_BLOCKS}|PC):? (?:waits (?:for|at)|takes no|has results).*$": _waits,
    r"core (?P<core>\d+), task (?P<task>\d+), cycle (?P<cycle>\d+): (?P<register>[A-Z_]+\.\w+)\S*: "
    r"(?P<text>.*) \((?P<code>[A-Z_]+), (?P<value>0x[0-9a-fA-F]+)\)": _diagnostic,
}
