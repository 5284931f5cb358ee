"""`rkcosim delegate` and `rkcosim litert`: scripts that use LiteRT on the simulated NPU."""

from __future__ import annotations

from dataclasses import dataclass

from rkcosim.apis.link.scripts import ScriptOptions, run_script
from rkcosim.cli.app import Options, command


@dataclass(frozen=True, kw_only=True)
class DelegateOptions(Options):
    """Options of `rkcosim delegate`."""


@command("rkcosim delegate")
def delegate_command(asked: DelegateOptions) -> None:
    """Print the path of the external delegate for LiteRT.

    A script passes it to load_delegate. The library is compiled on first use.
    """
    from rkcosim.apis.litert.library import delegate_library

    path = delegate_library()
    print(path)
    asked.write({"delegate": str(path)})


@dataclass(frozen=True, kw_only=True)
class LiteRtOptions(ScriptOptions):
    """Options of `rkcosim litert`."""


@command(
    "rkcosim litert -- python classify.py",
    "rkcosim litert --engine golden --check -- python examples/litert/classify.py",
    "rkcosim litert --html run.html --json run.json -- python script.py arguments",
    context={"allow_interspersed_args": False},
    waits=True,
)
def litert_command(asked: LiteRtOptions) -> None:
    """Run an unmodified LiteRT script on the simulated NPU.

    Every Interpreter gets the delegate. The exit code is that of the script; 70 if
    it is 0 and an internal error occurred behind a call.
    """
    from rkcosim.apis.litert.library import delegate_library

    run_script(asked, "litert", delegate_library)
