"""What every command of `rkcosim` has by itself: `--quiet`, `--json -`, exit codes, errors in one line."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from cosim import progress
from cosim.cli.exits import BAD_INPUT, INTERRUPTED, STDOUT, check_output, fail, leave_pipe, mannered
from cosim.cli.signatures import resolved, with_options

QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Say nothing of what is under way, only results.")
]

UsageProblem: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)
"""Base of what typer raises for words that it does not understand (its home differs between versions)."""


OUTPUTS = {"json", "csv", "html", "log", "svg", "trace", "events", "timeline", "coverage", "page", "save"}
"""Names of parameters that are files to write: looked at before anything runs for long."""


ORDER = (
    *("run", "compare", "compile", "device", "serve", "regcmd", "diff", "waves", "timeline", "report"),
    *("sweep", "conformance", "fuzz", "verilog", "bench", "explain", "doctor"),
)
"""Commands as the help lists them; others follow as they were declared."""

WAITS = {"device", "serve", "capture", "explain", "waves"}
"""Commands that wait for people or programs of theirs: how long that takes is nothing to show."""


def examples(*lines: str) -> str:
    """Lines of a command's `epilog`: commands as one would type them, a line each."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


class Group(TyperGroup):
    """A group of commands whose usage errors are one line with the likely word."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order in which people need them, whatever module declared them first."""
        place = {name: number for number, name in enumerate(ORDER)}
        return sorted(super().list_commands(ctx), key=lambda name: place.get(name, len(place)))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; an unknown one is a usage error that names the nearest."""
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            near = get_close_matches(args[0], self.list_commands(ctx), n=2, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else "it has none of that name"
            fail(f"no command '{args[0]}': {hint} (all: {ctx.command_path} --help)", BAD_INPUT)
        return super().resolve_command(ctx, args)

    def main(  # type: ignore[override]  # fewer parameters of its own
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run with `args`; usage errors end with one line and the code for bad input."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except UsageProblem as error:
            _usage(error)
        except (typer.Abort, KeyboardInterrupt):
            fail("interrupted", INTERRUPTED)
        except SystemExit:
            if type(sys.stdout).__name__ == "PacifyFlushWrapper":  # typer met a pipe that nobody reads
                leave_pipe()
            raise
        sys.exit(code if isinstance(code, int) else 0)


def _usage(error: Any) -> None:
    """Say what is wrong with the words of a command line, and where to read about it."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message(), file=sys.stderr)
        raise SystemExit(BAD_INPUT)
    text = " ".join(error.format_message().split()).rstrip(".")
    place = f" (see {context.command_path} --help)" if context is not None else ""
    fail(text[:1].lower() + text[1:] + place, BAD_INPUT)


class App(typer.Typer):
    """A typer application whose commands have the manners of `cosim.cli.exits.mannered`.

    Parameters
    ----------
    options : as of `typer.Typer`.
    """

    def __init__(self, **options: Any) -> None:
        settings: dict[str, Any] = {
            "cls": Group,
            "no_args_is_help": True,
            "pretty_exceptions_enable": False,
            "rich_markup_mode": None,
            "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 110},
        }
        super().__init__(**(settings | options))

    def command(  # type: ignore[override]  # fewer parameters of its own
        self, name: str | None = None, **options: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Declare a command; as of `typer.Typer`."""
        register = super().command(name, **options)

        def declare(function: Callable) -> Callable:
            register(_with_manners(function))
            return function

        return declare


def _under_way(name: str) -> AbstractContextManager[object]:
    """The whole command as something under way, for those that say nothing more."""
    return (
        nullcontext()
        if name in WAITS
        else progress.step(name.removeprefix("regcmd_").strip("_"), background=True)
    )


def _with_manners(function: Callable) -> Callable:
    """The command with one more option, `--quiet`, and everything it raises turned into an exit code."""

    @functools.wraps(function)
    def command(*args: Any, quiet: bool = False, **options: Any) -> None:
        with mannered(quiet, options.get("json")), _under_way(function.__name__):
            for name in OUTPUTS & options.keys():
                if isinstance(options[name], Path) and options[name] != STDOUT:
                    check_output(options[name])
            function(*args, **options)

    return resolved(with_options(command, function, {"quiet": QuietOption}))
