"""`rkcosim debug`: the debugger for command streams, for editors and in a terminal."""

from __future__ import annotations

import shutil
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rkcosim.base.files import read_given
from rkcosim.cli.app import Options, argument, command, needs, option
from rkcosim.cli.options import Program, check_engine
from rkcosim.engines.protocol import ALL_ENGINES, GOLDEN, capabilities

if TYPE_CHECKING:
    from rkcosim.debug.base import BaseSession


ENGINES = tuple(name for name in ALL_ENGINES if name == GOLDEN or capabilities(name).has_snapshots)
"""What the debugger can run on: the golden model, and engines whose state can be saved."""


def _check_engine(name: str) -> None:
    check_engine(name)
    if name not in ENGINES:
        raise ValueError(f"the debugger runs on {' or '.join(ENGINES)}, not on '{name}'")


@dataclass(frozen=True, kw_only=True)
class DebugOptions(Options):
    """Options of `rkcosim debug`."""

    file: str | None = argument(
        "A stream file, a capture's manifest, a listing with memory (`regcmd dump --with-memory`), or a "
        "model (.onnx, .tflite, .rknn, compiled); an editor may name it instead.",
        default=None,
    )
    program: Program = ()
    port: int | None = option(
        "Serve editors on this port of the loopback interface (0: any free one) instead of standard input "
        "and output.",
        low=0,
        high=65535,
    )
    terminal: bool = option("Read commands from the terminal.", default=False)
    commands: Path | None = option(
        "Carry out the commands of this file and end; the exit code is 1 after a deviation or a false "
        "`assert`, 2 after a bad command, 3 after a hang."
    )
    against: Path | None = option(
        "Arrays by the names of tensors (.npz): stop at the first task whose result differs."
    )
    tolerance: float = option(
        "With --against, how far an element may be from its reference, in its own unit.", low=0, default=0.0
    )
    relative: float = option(
        "With --against, how far it may be in addition, as a part of the reference.", low=0, default=0.0
    )
    input: tuple[Path, ...] = option(
        "Input file of a model, as for `rkcosim run`; default: random numbers.", "-i", "--input", default=()
    )
    seed: int = option("Seed of the random inputs.", default=0)
    cores: int | None = option(
        "Cores among which large layers of a model are divided (default: 1), or cores of a program's device "
        "(default: 3).",
        low=1,
        high=3,
    )
    engine: str = option(
        "What runs the stream: golden (the golden model, word by word), or verilator (the RTL, in cycles).",
        metavar="NAME",
        words=ENGINES,
        check=_check_engine,
        default=GOLDEN,
    )

    def __post_init__(self) -> None:
        given = {"--terminal": self.terminal, "--commands": self.commands, "--port": self.port}
        forms = [name for name, value in given.items() if value is not None and value is not False]
        if len(forms) > 1:
            raise ValueError(f"give only one of {' and '.join(forms)}")
        if self.file is None and (self.terminal or self.commands is not None):
            raise ValueError(f"{forms[0]} needs a FILE to debug")
        if self.file is None:
            needs("FILE", against=self.against, input=self.input)
        if self.against is None:
            needs("--against FILE", tolerance=self.tolerance, relative=self.relative)


def session_of(asked: DebugOptions) -> BaseSession | None:
    """Open what is debugged, with its references; None if an editor says what it is."""
    from rkcosim.debug.deviations.against import Tolerance, read_references
    from rkcosim.debug.opening import open_debugged
    from rkcosim.debug.program import open_program
    from rkcosim.debug.sessions import session_on

    if asked.file is None:
        return None
    if words := program_of(asked):
        quiet = not asked.terminal and asked.commands is None
        work = open_program(words, asked.cores or 3, quiet=quiet)
    else:
        work = open_debugged(Path(asked.file), inputs=asked.input, seed=asked.seed, cores=asked.cores or 1)
    try:
        references = [] if asked.against is None else read_references(asked.against, work)
        return session_on(asked.engine, work, references, Tolerance(asked.tolerance, asked.relative))
    except BaseException:
        if work.program is not None:
            work.program.close()
        raise


def program_of(asked: DebugOptions) -> list[str]:
    """Return the program that is debugged and its arguments; empty for a file that is no program."""
    words = [asked.file or "", *asked.program]
    if asked.program:
        return words
    found = shutil.which(words[0])
    if found is None:
        return []
    with open(found, "rb") as file:
        return words if file.read(4).startswith((b"\x7fELF", b"#!")) else []


@command(
    "rkcosim debug examples/streams/digits.json --terminal",
    "rkcosim debug --port 4711",
    "rkcosim debug stream.json --engine verilator --terminal",
    "rkcosim debug --terminal -- ./program arguments",
    "rkcosim debug model.onnx -i inputs.npz --against board.npz --commands find.txt",
    waits=True,
)
def debug_command(asked: DebugOptions) -> None:
    """Step through a command stream, forwards and backwards.

    With --against the run stops at the first task whose result differs from a reference. Without --terminal,
    --commands and --port, an editor is served on standard input and output by the Debug Adapter Protocol.
    """
    if not asked.terminal and asked.commands is None:
        _serve(asked)
        return
    session = session_of(asked)
    assert session is not None
    try:
        raise SystemExit(_in_terminal(asked, session))
    finally:
        session.close()


def _in_terminal(asked: DebugOptions, session: BaseSession) -> int:
    """Read commands from the terminal, or carry out those of a file; return the exit code."""
    from rkcosim.debug.clients.terminal import Terminal

    terminal = Terminal(session)
    for note in session.work.notes:
        print(f"note: {note}")
    if asked.commands is None:
        return terminal.interact()
    lines = read_given(asked.commands).decode(errors="replace").splitlines()
    return terminal.run_lines(lines, asked.commands.name)


def _serve(asked: DebugOptions) -> None:
    from rkcosim.debug.clients.adapter import Adapter, serve_port

    if asked.port is not None:
        serve_port(asked.port, lambda: session_of(asked), lambda text: print(text, flush=True), asked.engine)
        return
    # Nothing but messages of the protocol may go to standard output.
    output = sys.stdout.buffer
    with redirect_stdout(sys.stderr):
        Adapter(sys.stdin.buffer, output, session_of(asked), asked.engine).serve()
