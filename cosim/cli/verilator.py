"""`rkcosim verilator`: run Verilator, or another program that looks for it, in the right environment."""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click

from rkcosim.cli.app import Command, Options, argument, option


@dataclass(frozen=True, kw_only=True)
class VerilatorOptions(Options):
    """Options of `rkcosim verilator`."""

    exec_: bool = option(
        "The words are a program and its arguments, which finds `verilator` on its path.",
        "--exec",
        default=False,
    )
    words: tuple[str, ...] = argument(
        "Arguments of Verilator, or a program with its arguments.", default=(), metavar="WORD..."
    )


class _Passing(Command):
    """A command whose words, from the first one on that is not `--exec`, are those of another program."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse only `--exec` and the options for help at the beginning."""
        if args and args[0] == "--exec":
            args = ["--exec", "--", *args[1:]] if args[1:2] != ["--"] else args
        elif args and args[0] != "--" and args[0] not in ctx.help_option_names:
            args = ["--", *args]
        return super().parse_args(ctx, args)


def _run(asked: VerilatorOptions) -> None:
    """Run Verilator, or a program that looks for it on its path.

    The package `verilator` installs no command of this name, and its makefiles need a variable to be set;
    this command sets both. All words are passed on as they are, and the exit code is that of the program.
    With --exec, for example, cocotb's own runner or FuseSoC finds Verilator.
    """
    from rkcosim.engines import toolchain

    with tempfile.TemporaryDirectory(prefix="rkcosim-verilator-") as folder:
        variables = {**os.environ, **toolchain.verilator_variables(Path(folder))}
        if asked.exec_ and not asked.words:
            raise ValueError("--exec needs a program, as in: rkcosim verilator --exec python bench.py")
        command = list(asked.words) if asked.exec_ else ["verilator", *asked.words]
        try:
            done = subprocess.run(command, env=variables, check=False)
        except FileNotFoundError:
            raise ValueError(f"there is no program {command[0]!r} on the path") from None
    raise SystemExit(done.returncode if done.returncode >= 0 else 128 - done.returncode)


verilator_command = _Passing(
    VerilatorOptions,
    _run,
    (
        "rkcosim verilator --lint-only -Wall npu.vlt npu_cbuf.v --top-module npu_cbuf",
        "rkcosim verilator --exec python cocotb_npu_core.py verilator",
        "rkcosim verilator --exec fusesoc --cores-root . run --target lint rkcosim:npu:npu_cbuf",
    ),
    waits=True,
)
