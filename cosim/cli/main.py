"""`rkcosim`: the command of the project. The module of each command is imported on first use."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, get_completion_class

from rkcosim.base import BAD_INPUT, extensions
from rkcosim.cli import streams
from rkcosim.cli.app import COMPLETE, Group
from rkcosim.cli.exits import fail, hear_signals

COMMANDS = {
    **{name: name for name in ("run", "compare", "compile", "info")},
    **dict.fromkeys(("quantize", "accuracy"), "quantize"),
    "device": "device",
    "serve": "device",
    **{"regcmd": "", "rknn": ""},
    **{"diff": "diff", "waves": "waves", "timeline": "waves"},
    **{
        name: name
        for name in ("report", "sweep", "conformance", "verilog", "registers", "verilator", "bench")
    },
    "debug": "debug",
    "explain": "doctor",
    **{name: name for name in ("doctor", "counters", "validate", "estimate", "advise")},
}
"""Module of each command, in the order of the help; the commands of `regcmd` and `rknn` are groups.

Interfaces and other packages add theirs as entry points (`rkcosim.base.extensions.COMMANDS`).
"""

REGCMD = {
    **dict.fromkeys(("dump", "asm", "lint"), "regcmd_dump"),
    **dict.fromkeys(("import", "capture"), "regcmd_capture"),
    "run": "regcmd_run",
}
"""Module of each command of `rkcosim regcmd`."""

RKNN = {"run": "rknn_run", **dict.fromkeys(("info", "test"), "rknn")}
"""Module of each command of `rkcosim rknn`."""


@add_completion_class
class Bash(BashComplete):
    """Completion in bash, which inserts words literally: blanks are escaped, twice because of `read`."""

    def format_completion(self, item: CompletionItem) -> str:
        """Return a line that click's script for bash reads."""
        return f"{item.type}," + item.value.replace(" ", r"\\ ")


def _version(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    """Print the version and end, if requested."""
    if wanted:
        from rkcosim.base import version

        print(f"rkcosim {version()}")
        context.exit()


def _completion(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    """Print the completion script for the current shell, or install it, and end, if requested."""
    if not wanted or context.resilient_parsing:
        return
    shell = _shell()
    script = get_completion_class(shell)
    if script is None:
        fail(
            f"completion is available for bash, zsh and fish, not for '{shell or 'an unknown shell'}'",
            BAD_INPUT,
        )
    source = script(app, {}, "rkcosim", COMPLETE).source()
    if parameter.name == "show_completion":
        print(source)
        context.exit()
    home = Path(os.path.expanduser("~"))  # Path.home raises RuntimeError
    if not home.is_absolute():
        fail("completion cannot be installed: there is no home folder; set the variable HOME", BAD_INPUT)
    file, settings, lines = {
        "bash": (home / ".bash_completions/rkcosim.sh", home / ".bashrc", "source '{file}'"),
        "zsh": (
            home / ".zfunc/_rkcosim",
            home / ".zshrc",
            "fpath+={folder}; autoload -Uz compinit; compinit",
        ),
        "fish": (home / ".config/fish/completions/rkcosim.fish", None, ""),
    }[shell]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source + "\n")
    if settings is not None:
        lines = lines.format(file=file, folder=file.parent)
        known = settings.read_text() if settings.exists() else ""
        if lines not in known:
            settings.write_text(f"{known.rstrip()}\n\n{lines}\n".lstrip())
    print(f"{shell} completion installed in {file}; it takes effect in new shells")
    context.exit()


def _shell() -> str:
    """Return the name of the running shell, or that of `$SHELL` if it cannot be found."""
    try:
        import shellingham  # of the extra completion

        return str(shellingham.detect_shell()[0])
    except (ModuleNotFoundError, OSError):  # OSError: no shell was found
        return Path(os.environ.get("SHELL", "")).name


def _root(option: tuple[str, ...]) -> None:
    """Set the options that apply to every command."""
    from rkcosim.spec.regs.options import VARIABLE, chosen_options

    if option:
        try:
            chosen = chosen_options(option)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--option") from None
        before = os.environ.get(VARIABLE)
        os.environ[VARIABLE] = ",".join(sorted(chosen))
        click.get_current_context().call_on_close(lambda: _restore(VARIABLE, before))


def _restore(variable: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(variable, None)
    else:
        os.environ[variable] = value


def _switch(name: str, callback: Any, help: str) -> click.Option:
    return click.Option([name], is_flag=True, is_eager=True, expose_value=False, callback=callback, help=help)


app = Group(
    "rkcosim",
    COMMANDS,
    added=extensions.COMMANDS,
    help="The RK3588 NPU as cycle-accurate RTL: run models and register-command streams without a board.",
    callback=_root,
    params=[
        click.Option(
            ["--option"],
            multiple=True,
            metavar="NAME",
            help="Use the alternative interpretation of the hardware where no board has decided "
            "(docs/reference); repeatable. Must precede the command.",
        ),
        _switch("--version", _version, "Print the version and end."),
        _switch("--install-completion", _completion, "Install completion for the current shell."),
        _switch("--show-completion", _completion, "Print the completion script for the current shell."),
    ],
)
app.add_command(
    Group(
        "rknn",
        RKNN,
        default="run",
        help="Run programs that call rknn_api.h; show and test .rknn files.",
    )
)
app.add_command(Group("regcmd", REGCMD, help="Convert, check, capture and run register-command streams."))


def main() -> None:
    """Entry point of the `rkcosim` command."""
    streams.prepare()
    hear_signals()
    try:
        app()
    finally:
        if "rkcosim.engines.build" in sys.modules:  # otherwise nothing was built
            from rkcosim.engines import ahead

            ahead.start()


if __name__ == "__main__":
    main()
