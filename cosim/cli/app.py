"""Declaration of commands: a dataclass of options, one function, and what all commands have in common.

The options of a command are the members of a frozen dataclass derived from `Options`. Each is an `argument`
or an `option`, or its type is annotated with a `Parameter` (`rkcosim.cli.options`); its type and default
determine what the command line accepts. `command` makes a `click.Command` from the dataclass and a function.
Every command has `--json` and `--quiet`, and turns errors into one line and an exit code
(`rkcosim.cli.exits`).
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import MISSING, dataclass, field, fields
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

import click
from click.shell_completion import CompletionItem, shell_complete

from rkcosim.base import BAD_INPUT, progress
from rkcosim.cli.exits import INTERRUPTED, OK, Asked, fail, flush, flushed, mannered, reported
from rkcosim.cli.results import STDOUT, check_output, write_json

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

COMPLETE = "_RKCOSIM_COMPLETE"
"""Environment variable with which the shell requests completions."""

METAVARS = {int: "N", float: "NUMBER", str: "TEXT", Path: "FILE"}
"""Metavariable shown in the help for a type, where an option sets none."""

PATH = click.Path(path_type=Path)

Words = Iterable[str] | Mapping[str, str]
"""Words for the shell's completion; a mapping adds a description to each."""


@dataclass(frozen=True)
class Parameter:
    """The declaration of one argument or option of a command.

    Members
    -------
    help : help text.
    names : option strings; empty to use the member's name, or for an argument.
    argument : True for an argument, False for an option.
    low, high : bounds of a number, inclusive.
    metavar : word for the value in the help.
    words : words for the shell's completion, "module:name" of such words, or a function that returns them.
    check : called with the value; raises ValueError if it is not allowed.
    writes : True if the member is the path of a file that the command writes, or of a folder for its files.
    folder : True if `writes` means a folder.
    """

    help: str
    names: tuple[str, ...] = ()
    argument: bool = False
    low: float | None = None
    high: float | None = None
    metavar: str | None = None
    words: str | Words | Callable[[], Words] | None = None
    check: Callable[[Any], None] | None = None
    writes: bool = False
    folder: bool = False

    def made(self, name: str, kind: Any, default: Any) -> click.Parameter:
        """Make the click parameter; `kind` is the member's type, `default` is MISSING if it is required."""
        if get_origin(kind) in (Union, UnionType):
            (kind,) = (part for part in get_args(kind) if part is not NoneType)
        several = get_origin(kind) is tuple
        kind = get_args(kind)[0] if several else kind
        settings: dict[str, Any] = {"help": self.help, "type": self._type(kind)}
        settings["metavar"] = self.metavar or (None if self.argument else METAVARS.get(kind))
        if self.words is not None:
            settings["shell_complete"] = _completed(self.words)
        if self.check is not None:
            settings["callback"] = _checked(self.check)
        if default is MISSING:
            settings["required"] = True
        elif default not in (None, ()):
            settings |= {"default": default, "show_default": default != ""}
        if self.argument:
            settings["required"] = default is MISSING
            return click.Argument([name], nargs=-1 if several else 1, **settings)
        names = self.names or (f"--{name.strip('_').replace('_', '-')}",)
        if kind is bool:
            settings |= {"default": default, "is_flag": True, "type": None, "show_default": "/" in names[-1]}
        return click.Option([name, *names], multiple=several, **settings)

    def _type(self, kind: Any) -> Any:
        if get_origin(kind) is Literal:
            return click.Choice(get_args(kind))
        if kind is Path:
            return PATH
        if self.low is None and self.high is None:
            return kind
        bounded: Any = click.IntRange if kind is int else click.FloatRange
        return bounded(self.low, self.high)


def argument(help: str, *, default: Any = MISSING, **settings: Any) -> Any:
    """Declare a member as an argument, required without `default`; see `Parameter` for the settings."""
    return field(default=default, metadata={"parameter": Parameter(help, argument=True, **settings)})


def option(help: str, *names: str, default: Any = None, **settings: Any) -> Any:
    """Declare a member as an option, required if `default` is MISSING; see `Parameter` for the settings."""
    return field(default=default, metadata={"parameter": Parameter(help, names, **settings)})


def _completed(words: str | Words | Callable[[], Words]) -> Callable[..., list[CompletionItem]]:
    def complete(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        if isinstance(words, str):
            found: Words = list(resolve_name(words))
        else:
            found = words() if callable(words) else words
        about = found if isinstance(found, Mapping) else dict.fromkeys(found)
        return [CompletionItem(word, help=about[word]) for word in about if word.startswith(begun)]

    return complete


def _checked(check: Callable[[Any], None]) -> Callable[..., Any]:
    def callback(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        try:
            check(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
        return value

    return callback


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of every command."""

    json: Path | None = option("Also write the result as JSON; - for standard output.", writes=True)  # noqa: RUF009
    quiet: bool = option("Print no progress, only results.", "-q", "--quiet", default=False)

    def write(self, document: dict[str, Any], say: bool = False) -> None:
        """Write the JSON document of the command if --json is given; with `say`, print its path."""
        if self.json is not None:
            write_json(self.json, document)
            if say:
                print(f"JSON: {self.json}")


def needs(other: str, **given: object) -> None:
    """Raise ValueError if an option of `given` (names without dashes) is set; `other` is what it needs."""
    for name, value in given.items():
        if value:
            raise ValueError(f"--{name.strip('_').replace('_', '-')} needs {other}")


def parameters(options: type[Options]) -> Iterator[tuple[str, Parameter, click.Parameter]]:
    """Yield name, annotation and parameter of each member: first of the class, then of its bases."""
    hints = get_type_hints(options, include_extras=True)
    members = {member.name: member for member in fields(options)}
    names = [name for kind in options.__mro__ for name in vars(kind).get("__annotations__", ())]
    for name in dict.fromkeys(names):
        kind, declared = hints[name], members[name].metadata.get("parameter")
        if declared is None:  # the annotation is in the type, which several commands share
            kind, declared = get_args(kind)
        yield name, declared, declared.made(name, kind, members[name].default)


Given = TypeVar("Given", bound=Options)


class Command(click.Command):
    """A command: calls `function` with its options and turns every exception into an exit code.

    Parameters
    ----------
    options : the dataclass of its options.
    function : `NAME_command`, whose docstring is the help text.
    examples : command lines for the help.
    waits : True if the command waits for people or other programs, so that no progress is shown.
    context : settings of its `click.Context`.
    """

    def __init__(
        self,
        options: type[Given],
        function: Callable[[Given], None],
        examples: Sequence[str],
        waits: bool = False,
        context: dict[str, Any] | None = None,
    ) -> None:
        declared = list(parameters(options))
        self.function: Callable[[Any], None] = function
        self.options, self.waits = options, waits
        self.written = {name for name, parameter, _ in declared if parameter.writes}
        self.folders = {name for name, parameter, _ in declared if parameter.folder}
        super().__init__(
            function.__name__.removesuffix("_command"),
            params=[made for _, _, made in declared],
            help=inspect.getdoc(function),
            epilog="\b\nExamples:\n" + "\n".join(f"  {line}" for line in examples),
            callback=self._run,
            context_settings=context,
        )

    def _run(self, **values: Any) -> None:
        files = {n: path for n in sorted(self.written) if isinstance(path := values[n], Path)}
        # A waveform that starts at an error or a mismatch is written only if one occurs.
        lucky = values.get("trace_from") in ("error", "mismatch")
        expected = [path for name, path in files.items() if not (lucky and name == "trace")]
        words = click.get_current_context().command_path.partition(" ")[2]
        shown = nullcontext() if self.waits else progress.step(self.name or "", background=True)
        with mannered(values["quiet"], Asked(words, expected, values["json"])), shown:
            for name, path in files.items():
                if path != STDOUT:
                    check_output(path, folder=name in self.folders)
            self.function(self.options(**values))


def command(*examples: str, **settings: Any) -> Callable[[Callable[[Given], None]], Command]:
    """Declare a function of its options (`asked`) as a command; see `Command` for the parameters."""
    return lambda function: Command(get_type_hints(function)["asked"], function, examples, **settings)


class Group(click.Group):
    """A group of commands, whose modules are imported on first use; usage errors are printed in one line.

    Parameters
    ----------
    modules : module of `rkcosim.cli` for each command; the command is its `NAME_command`.
    default : command for words that begin with an option, or with --.
    added : group of entry points with further commands (`rkcosim.base.extensions`); empty for none.
    """

    def __init__(
        self,
        name: str,
        modules: Mapping[str, str],
        default: str | None = None,
        added: str = "",
        **settings: Any,
    ) -> None:
        context = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
        super().__init__(name, no_args_is_help=True, context_settings=context, **settings)
        self.modules, self.default, self._group = modules, default, added

    @property
    def added(self) -> Mapping[str, EntryPoint]:
        """The commands that packages add, by name."""
        from rkcosim.base.extensions import extensions

        return extensions(self._group) if self._group else {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse words; those that name no command are of the default one, if there is one."""
        if self.default and args and args[0].startswith("-") and args[0] not in ctx.help_option_names:
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of their declaration."""
        return list(dict.fromkeys([*self.modules, *self.added]))

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the module of a command and return the command, or None for an unknown name."""
        if name in self.commands:
            return self.commands[name]
        if name not in self.modules:
            added = self.added.get(name)
            command: click.Command | None = None if added is None else added.load()
            return command
        return getattr(import_module(f"rkcosim.cli.{self.modules[name]}"), f"{name}_command")

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Find the command; an unknown name is a usage error that suggests the nearest names."""
        if args[0] not in self.modules and not args[0].startswith("-") and args[0] not in self.added:
            near = get_close_matches(args[0], self.list_commands(ctx), n=2, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else "there is no such command"
            fail(f"no command '{args[0]}': {hint} (all: {ctx.command_path} --help)", BAD_INPUT)
        return super().resolve_command(ctx, args)

    def main(  # type: ignore[override]  # fewer parameters than the base class
        self, args: Sequence[str] | None = None, prog_name: str = "rkcosim", **extra: Any
    ) -> None:
        """Run with `args`; usage errors end with one line and the exit code for bad input."""
        if COMPLETE in os.environ:
            sys.exit(shell_complete(self, extra, prog_name, COMPLETE, os.environ[COMPLETE]))
        run_alone(self, prog_name, args, **extra)


def run_alone(
    command: click.Command, prog_name: str, args: Sequence[str] | None = None, **extra: Any
) -> NoReturn:
    """Run a command as a program, and exit; usage errors are one line and the exit code for bad input.

    Parameters
    ----------
    command : the command.
    prog_name : how it is called, for its help.
    args : its words; None for those of this process.
    """
    with flushed(), reported():
        code = _code(command, list(sys.argv[1:] if args is None else args), prog_name, extra)
        flush()
    sys.exit(code)


def _code(command: click.Command, args: list[str], prog_name: str, extra: Mapping[str, Any]) -> int:
    """Run a command and return its exit code; usage errors are printed."""
    try:
        with command.make_context(prog_name, args, **extra) as ctx:
            command.invoke(ctx)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return BAD_INPUT
    except click.ClickException as error:
        text = " ".join(error.format_message().split()).rstrip(".")
        context = getattr(error, "ctx", None)
        place = f" (see {context.command_path} --help)" if context is not None else ""
        fail(text[:1].lower() + text[1:] + place, BAD_INPUT)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.Abort:
        fail("interrupted", INTERRUPTED)
    return OK
