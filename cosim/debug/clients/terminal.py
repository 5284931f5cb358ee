"""The debugger in a terminal, with the words of gdb, and from files of commands."""

from __future__ import annotations

import cmd
import re
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from rkcosim.base import BAD_INPUT, DEVICE_ERROR, Error
from rkcosim.debug.base import BaseSession, Stop, Unit
from rkcosim.debug.clients.info import KNOWN, CommandError
from rkcosim.debug.deviations.against import Deviation, Tolerance, outputs_after_tasks, read_references
from rkcosim.debug.texts import deviation_lines, shown
from rkcosim.golden.task.errors import MemoryFault
from rkcosim.spec.regs import registers
from rkcosim.waves.whole_file import whole_file

UNITS: dict[str, Unit] = {
    "word": "word",
    "task": "task",
    "node": "node",
    "interrupt": "interrupt",
    "cycle": "cycle",
}


class Terminal(cmd.Cmd):
    """The commands of the terminal; each method `do_NAME` is one, and its docstring its help.

    Parameters
    ----------
    session : what is debugged.
    out : takes what is printed.

    Members
    -------
    worst : exit code of what has happened: 0, 1 after a deviation or a false `assert`, 2 after a command that
        cannot be carried out, 3 after a hang or an error of the device.
    """

    prompt = "(rkcosim) "

    def __init__(self, session: BaseSession, out: TextIO | None = None) -> None:
        super().__init__(stdout=out or sys.stdout)
        self.session = session
        self.worst = 0
        self._ended = False
        self._found: Deviation | None = None

    # -- the loop --------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """Print a line."""
        self.stdout.write(f"{text}\n")

    def onecmd(self, line: str) -> bool:
        """Carry out a line; errors are printed."""
        try:
            return bool(super().onecmd(line.strip()))
        except (Error, ValueError, MemoryFault, OSError) as error:
            self.worst = max(self.worst, BAD_INPUT) if self.worst != DEVICE_ERROR else self.worst
            self._last_failed = str(error)
            self.say(f"error: {error}")
            return False

    _last_failed = ""

    def parseline(self, line: str) -> tuple[str | None, str | None, str]:
        """Divide a line into a command and the rest; words of gdb and short forms are known."""
        line = line.strip()
        if not line or line.startswith("#"):
            return None, None, ""
        if line[0] == "?":
            line = f"help {line[1:]}"
        if found := re.match(r"x/\S*", line):
            return "x", line[1 : found.end()] + line[found.end() :], line
        word, _, rest = line.partition(" ")
        word, slash, form = word.partition("/")
        name = self._whole(word)
        return name, f"{slash}{form} {rest}".strip() if slash else rest.strip(), line

    def _whole(self, word: str) -> str:
        """Return the command that a word or its beginning means."""
        word = word.lower()
        if word in SHORT:
            return SHORT[word]
        names = [name[3:].replace("_", "-") for name in self.get_names() if name.startswith("do_")]
        if word in names:
            return word.replace("-", "_")
        fit = [name for name in names if name.startswith(word)]
        return fit[0].replace("-", "_") if len(fit) == 1 else word

    def completenames(self, text: str, *ignored: Any) -> list[str]:
        """Return the commands that begin with a text."""
        names = [name[3:].replace("_", "-") for name in self.get_names() if name.startswith("do_")]
        return [name for name in names if name.startswith(text)]

    def completedefault(self, text: str, line: str, begin: int, end: int) -> list[str]:
        """Return what may continue a text: words of a command, registers, fields, tensors and nodes."""
        before = line[:begin]
        if before and not before.strip(" -").count(" ") and not before.endswith(" "):  # reverse-st
            return [name[begin:] for name in self.completenames(line[:end])]
        command = self._whole(before.split()[0]) if before.split() else ""
        if command == "info" and len(before.split()) == 1:
            return [word for word in KNOWN if word.startswith(text)]
        block, dot, rest = text.partition(".")
        if dot and block in registers().blocks:
            register, second, _ = rest.partition(".")
            known = [one.path for one in registers()[block]]
            if second and register in registers()[block]:
                known = [f"{block}.{register}.{name}" for name in registers()[block][register].fields]
            return [name for name in known if name.startswith(text)]
        known = [
            *(PLACES if command in ("break", "tbreak", "until", "list") else ()),
            *self.session.work.tensors,
            *dict.fromkeys(node for job in self.session.work.jobs for node in job.nodes if node),
            *registers().blocks,
        ]
        return [name for name in known if name.startswith(text)]

    def default(self, line: str) -> None:
        """Refuse an unknown command."""
        raise CommandError(f"no command {line.split()[0]!r}; `help` lists them")

    def emptyline(self) -> bool:
        """Do nothing for an empty line or a comment."""
        return False

    def interact(self) -> int:
        """Read commands from the user up to `quit` or the end of the input; return the exit code."""
        self._readline()
        self.tell(self.session.stop)
        while not self._ended:
            try:
                self.cmdloop()
                break
            except KeyboardInterrupt:
                self.say("")
        return self._code()

    def _readline(self) -> None:
        try:
            import readline
        except ImportError:
            return
        readline.set_completer_delims(" \t\n+-*/()[],=<>")

    def run_lines(self, lines: Iterable[str], name: str) -> int:
        """Carry out commands of a file, up to the first that cannot be; return the exit code.

        Parameters
        ----------
        name : of the file, for the message.
        """
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.strip().startswith("#"):
                continue
            self._last_failed = ""
            self.say(f"{self.prompt}{line.strip()}")
            if self.onecmd(line):
                break
            if self._last_failed:
                self.say(f"{name}, line {number}: the commands after it were not carried out")
                return BAD_INPUT
        return self._code()

    def _code(self) -> int:
        return self.worst

    # -- what happened ---------------------------------------------------------------------------

    def tell(self, stop: Stop) -> None:
        """Print why the run stands where it is, and the line."""
        session = self.session
        known = ", ".join(f"breakpoint {number}" for number in stop.breakpoints)
        head = f"{known}: " if known else "" if stop.reason == "step" else f"{stop.reason}: "
        if stop.reason != "step":
            self.say(f"{head}{stop.text}")
        if stop.reason == "deviation":
            self.worst, self._found = max(self.worst, 1), stop.deviation
            self.say("`why` describes the deviation and looks for the cause")
        if stop.reason == "difference":
            self.worst = max(self.worst, 1)
            self.say("`difference` goes to the first wrong write and looks for the stage that made it")
        if stop.reason in ("hang", "error"):
            self.worst = DEVICE_ERROR
        line = session.line
        self.say(f"{session.title}")
        more = session.position_text()
        if more and (stop.reason == "step" or more not in stop.text):
            self.say(more)
        self.say(f"{line:6}  {session.source.lines[line - 1]}")

    def _count(self, text: str) -> int:
        if not text:
            return 1
        if not text.isdecimal() or not int(text):
            raise CommandError(f"{text!r} is not a number of steps")
        return int(text)

    def _unit(self, text: str, unit: Unit) -> tuple[Unit, int]:
        """Read `[UNIT] [N]`."""
        words = text.split()
        if words and words[0].rstrip("s") in UNITS:
            unit = UNITS[words.pop(0).rstrip("s")]
        if len(words) > 1:
            raise CommandError(f"one number of steps is expected, not {text!r}")
        return unit, self._count(words[0] if words else "")

    # -- forwards and backwards ------------------------------------------------------------------

    def do_step(self, text: str) -> None:
        """step [word|task|node|interrupt|cycle] [N]: run N words on (or tasks, nodes, up to the interrupt, or
        cycles of the RTL)."""
        self.tell(self.session.step(*self._unit(text, "word")))

    def do_next(self, text: str) -> None:
        """next [N]: run to the start of the next task, or the Nth."""
        self.tell(self.session.step(*self._unit(text, "task")))

    def do_node(self, text: str) -> None:
        """node [N]: run to the first task of the next node of the model."""
        self.tell(self.session.step("node", self._count(text)))

    def do_finish(self, text: str) -> None:
        """finish: run to the interrupt of the job."""
        self.tell(self.session.step("interrupt"))

    def do_continue(self, text: str) -> None:
        """continue: run to the next breakpoint, the first deviation, or the end."""
        self.tell(self.session.proceed())

    def do_until(self, text: str) -> None:
        """until PLACE: run to a place once (as `tbreak PLACE` and `continue`)."""
        self.session.set_breakpoint(text, temporary=True)
        self.tell(self.session.proceed())

    def do_reverse_step(self, text: str) -> None:
        """reverse-step [word|task|node|cycle] [N]: go back by N command words (or tasks, nodes, cycles)."""
        self.tell(self.session.step_back(*self._unit(text, "word")))

    def do_reverse_next(self, text: str) -> None:
        """reverse-next [N]: go back to the start of the task, or of the one before."""
        self.tell(self.session.step_back(*self._unit(text, "task")))

    def do_reverse_continue(self, text: str) -> None:
        """reverse-continue: go back to the last breakpoint before this place, or to the start."""
        self.tell(self.session.proceed_back())

    def do_run(self, text: str) -> None:
        """run: go back to the start, and run to the next breakpoint."""
        self.session.run_to(self.session.source.place_of(1)[0])  # type: ignore[index]
        self.tell(self.session.proceed())

    # -- breakpoints -----------------------------------------------------------------------------

    def do_break(self, text: str) -> None:
        """break PLACE [if EXPRESSION]: stop before a LINE, `task N`, `task N@JOB`, `node NAME` or each `job`;
        after a write of BLOCK.REGISTER or BLOCK.REGISTER.FIELD (in the condition `value` is what is written,
        `old` what was there); at an `interrupt`, a `diagnostic` or a `deviation` from the reference; on the
        RTL in `cycle N`, and after the first task with a `difference` from the golden model."""
        made = self.session.set_breakpoint(text)
        self.say(f"breakpoint {made.number}: {made}")

    def do_tbreak(self, text: str) -> None:
        """tbreak PLACE: as `break`, deleted at the first stop."""
        made = self.session.set_breakpoint(text, temporary=True)
        self.say(f"breakpoint {made.number}, once: {made}")

    def _watch(self, text: str, access: str) -> None:
        made = self.session.watch(text, access)
        self.say(f"breakpoint {made.number}: {made}")

    def do_watch(self, text: str) -> None:
        """watch TENSOR|REGION|FIRST..END|FIRST+SIZE|BLOCK.REGISTER [if EXPRESSION]: stop after the task that
        writes a part of it."""
        self._watch(text, "write")

    def do_rwatch(self, text: str) -> None:
        """rwatch MEMORY: stop after the task that reads a part of it."""
        self._watch(text, "read")

    def do_awatch(self, text: str) -> None:
        """awatch MEMORY: stop after the task that reads or writes a part of it."""
        self._watch(text, "access")

    def _numbers(self, text: str) -> list[int]:
        words = text.split()
        if any(not word.isdecimal() for word in words):
            raise CommandError(f"{text!r} are not numbers of breakpoints")
        return [int(word) for word in words] or list(self.session.breakpoints)

    def do_delete(self, text: str) -> None:
        """delete [NUMBER ...]: delete breakpoints, or all."""
        for number in self._numbers(text):
            self.session.delete(number)

    def _enable(self, text: str, enabled: bool) -> None:
        for number in self._numbers(text):
            if number not in self.session.breakpoints:
                raise CommandError(f"there is no breakpoint {number}")
            self.session.breakpoints[number].enabled = enabled

    def do_enable(self, text: str) -> None:
        """enable [NUMBER ...]: let breakpoints count again."""
        self._enable(text, True)

    def do_disable(self, text: str) -> None:
        """disable [NUMBER ...]: keep breakpoints without stopping at them."""
        self._enable(text, False)

    # -- values ----------------------------------------------------------------------------------

    def do_print(self, text: str) -> None:
        """print EXPRESSION: registers (DPU.OUT_CVT_SHIFT, DPU[1].WIDTH of group 1), tensors (y[0, 3, 4, 7]),
        `golden y`, `reference y`, `diff y`, numbers and operators; names with other characters in quotes."""
        if not text:
            raise CommandError("print needs an expression")
        form, _, rest = text.partition(" ") if text.startswith("/") else ("", "", text)
        self.say(shown(self.session.evaluate(rest), form[1:]))

    def do_assert(self, text: str) -> None:
        """assert EXPRESSION: the exit code is 1 if it is false (or a part of an array)."""
        value = self.session.evaluate(text)
        if not bool(np.all(value)):
            self.worst = max(self.worst, 1)
            self.say(f"false: {text}")

    def do_x(self, text: str) -> None:
        """x/NFORMAT ADDRESS|TENSOR|REGION: bytes of the memory: N units of b, h, w or g (1, 2, 4, 8 bytes),
        as x (hexadecimal), d (signed), u (unsigned) or f; x/32xb 0x10C000."""
        found = re.match(r"/(\d*)([xduf]?)([bhwg]?)\s+(.+)", text) or re.match(r"()()()(.+)", text.strip())
        if found is None:
            raise CommandError("x needs an address, a tensor or a region")
        count, form, size = (
            int(found[1] or 16),
            found[2] or "x",
            {"": 1, "b": 1, "h": 2, "w": 4, "g": 8}[found[3]],
        )
        if form == "f" and size == 1:
            size = 4
        address = self._address(found[4].strip())
        if count * size > 1 << 16:
            raise CommandError(f"at most {1 << 16} bytes are shown, not {count * size}")
        try:
            raw = self.session.memory.read(address, count * size)
        except MemoryFault as fault:
            raise CommandError(str(fault)) from None
        kind = {"x": "u", "d": "i", "u": "u", "f": "f"}[form]
        values = np.frombuffer(raw, f"<{kind}{size}")
        for at in range(0, count, max(1, 16 // size)):
            part = values[at : at + max(1, 16 // size)]
            text = " ".join(f"{v:0{2 * size}x}" if form == "x" else f"{v}" for v in part.tolist())
            self.say(
                f"0x{address + at * size:08X}{'' if at else self.session.named_address(address)}: {text}"
            )

    def _address(self, text: str) -> int:
        work = self.session.work
        if text in work.tensors:
            return work.tensors[text].span[0]
        if text in work.regions:
            return work.regions[text].address
        value = self.session.evaluate(text)
        if not isinstance(value, int) or not 0 <= value < 1 << 32:
            raise CommandError(f"{text} is not an address")
        return value

    def do_info(self, text: str) -> None:
        """info breakpoints|registers [BLOCK [GROUP]]|block NAME|state|tensors|regions|tasks|nodes|threads|
        layout TENSOR [FIRST [COUNT]]|line|counters|history: what is known of these; `info block DPU.pipe` has
        signals of the RTL, and `info counters` what its core has counted from the start of the job on."""
        word, _, rest = text.partition(" ")
        fit = [name for name in KNOWN if word and name.startswith(word)]
        if word not in KNOWN and len(fit) != 1:
            raise CommandError(f"info {word}: there are {', '.join(KNOWN)}")
        self._lines(KNOWN[word if word in KNOWN else fit[0]](self.session, rest.strip()))

    def _lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.say(line)

    def do_backtrace(self, text: str) -> None:
        """backtrace: the word, its task, its node and its job."""
        session, place = self.session, self.session.place
        line = session.line
        self.say(f"#0  word {place.word}, line {line}: {session.source.lines[line - 1]}")
        self.say(f"#1  {session.title}")
        if session.node:
            self.say(f"#2  node {session.node}")
        job = session.work.jobs[place.job]
        self.say(
            f"#{3 if session.node else 2}  job {place.job} on core {job.stream.core} of {session.work.name}"
        )

    def do_list(self, text: str) -> None:
        """list [LINE|PLACE]: ten lines of the listing around this place, or another."""
        session = self.session
        line = session.line
        if text:
            line = int(text) if text.isdecimal() else session.source.line_of(self._place(text))
        first = max(1, min(line - 4, len(session.source.lines) - 9))
        for number in range(first, min(first + 10, len(session.source.lines) + 1)):
            mark = ">" if number == session.line else " "
            self.say(f"{number:6}{mark} {session.source.lines[number - 1]}")

    def _place(self, text: str) -> Any:
        from rkcosim.debug.breakpoints import parse_breakpoint

        made = parse_breakpoint(0, text, self.session.work, self.session.source, here=self.session.place)
        if made.place is None:
            raise CommandError(f"{text} is no place of the listing")
        return made.place

    # -- references ------------------------------------------------------------------------------

    def do_against(self, text: str) -> None:
        """against FILE.npz [ABSOLUTE [RELATIVE]]: compare the results of tasks with the arrays of a file."""
        words = shlex.split(text)
        if not 1 <= len(words) <= 3:
            raise CommandError("against takes a file and at most two tolerances")
        tolerance = Tolerance(*(float(word) for word in words[1:]))
        found = read_references(Path(words[0]), self.session.work)
        self.session.compare_with(found, tolerance)
        self.say(f"{len(found)} tensors: {', '.join(one.place.name for one in found)}")

    def do_save(self, text: str) -> None:
        """save FILE.npz: run everything apart from this session, and write the result of each task to a file
        that `against` and --against read."""
        if not text.endswith(".npz"):
            raise CommandError("save takes the name of an .npz file")
        found = outputs_after_tasks(self.session.work)
        with whole_file(Path(text)) as part, part.open("wb") as file:
            np.savez(file, allow_pickle=False, **found)
        self.say(f"{len(found)} tensors -> {text}")

    def do_why(self, text: str) -> None:
        """why: how the result deviates, and which fields of the task could be the cause, each tried."""
        found = self.session.stop.deviation or self._found
        if found is None:
            raise CommandError("no task has deviated from a reference; `against FILE.npz` reads one")
        self._lines(deviation_lines(self.session, found))

    def do_thread(self, text: str) -> None:
        """thread [JOB]: show another of the jobs that run at the same time, each on its core."""
        if text and not text.isdecimal():
            raise CommandError(f"{text!r} is not the number of a job")
        if text:
            self.session.choose(int(text))
        self._lines(KNOWN["threads"](self.session, ""))

    def do_difference(self, text: str) -> None:
        """difference: on the RTL, go to the first write of the last wrong result that was found, and look for
        the stage that made it."""
        self._lines(self.session.first_wrong_lines())
        self.tell(self.session.stop)

    # -- the RTL ---------------------------------------------------------------------------------

    def do_trace(self, text: str) -> None:
        """trace from here for N cycles FILE (or trace N FILE): write a waveform of the RTL, which begins with
        this cycle, or in a session on the golden model with the start of this task."""
        found = re.fullmatch(r"(?:from\s+here\s+for\s+)?(\d+)(?:\s+cycles)?\s+(?:to\s+)?(\S.*)", text.strip())
        if found is None:
            raise CommandError("trace from here for N cycles FILE")
        first, end = self.session.write_waveform(int(found[1]), Path(found[2]))
        self.say(f"cycles {first} to {end - 1} -> {found[2]}")

    def do_quit(self, text: str) -> bool:
        """quit: end."""
        self._ended = True
        return True

    def do_EOF(self, text: str) -> bool:
        """End of the input."""
        self.say("")
        return self.do_quit("")

    def do_help(self, arg: str) -> None:
        """help [COMMAND]: the commands, or what one does."""
        if arg:
            name = self._whole(arg.strip().split()[0])
            method = getattr(self, f"do_{name}", None)
            if method is None:
                raise CommandError(f"no command {arg!r}; `help` lists them")
            self.say(re.sub(r"\s+", " ", method.__doc__ or ""))
            return
        for name in sorted(self.get_names()):
            if name.startswith("do_") and name != "do_EOF":
                self.say(re.sub(r"\s+", " ", getattr(self, name).__doc__ or ""))


PLACES = ("task", "node", "job", "interrupt", "diagnostic", "deviation", "cycle")
"""Words with which a place of a breakpoint may begin."""

SHORT = {
    "b": "break", "br": "break", "tb": "tbreak", "s": "step", "si": "step", "stepi": "step", "n": "next",
    "ni": "next", "c": "continue", "p": "print", "inspect": "print", "output": "print", "bt": "backtrace",
    "where": "backtrace", "frame": "backtrace", "f": "backtrace", "l": "list", "i": "info", "r": "run",
    "start": "run", "q": "quit", "exit": "quit", "d": "delete", "h": "help", "rs": "reverse_step",
    "reverse-stepi": "reverse_step", "rsi": "reverse_step", "rn": "reverse_next", "rc": "reverse_continue",
    "u": "until", "w": "watch", "eof": "EOF", "dis": "disable",
}  # fmt: skip
"""Other words for commands, as gdb has them."""
