"""`rkcosim provider` and `rkcosim ort`: scripts that use onnxruntime on the simulated NPU."""

from __future__ import annotations

from dataclasses import dataclass

from rkcosim.apis.link.scripts import ScriptOptions, run_script
from rkcosim.cli.app import Options, command


@dataclass(frozen=True, kw_only=True)
class ProviderOptions(Options):
    """Options of `rkcosim provider`."""


@command("rkcosim provider")
def provider_command(asked: ProviderOptions) -> None:
    """Print the path of the execution provider for onnxruntime.

    A script passes it to register_execution_provider_library. The library is compiled on first use.
    """
    from rkcosim.apis.ort.library import provider_library

    path = provider_library()
    print(path)
    asked.write({"provider": str(path)})


@dataclass(frozen=True, kw_only=True)
class OrtOptions(ScriptOptions):
    """Options of `rkcosim ort`."""


@command(
    "rkcosim ort -- python classify.py",
    "rkcosim ort --engine golden --check -- python examples/ort/classify.py examples/digits/digits_int8.onnx",
    "rkcosim ort --html run.html --json run.json -- python script.py arguments",
    context={"allow_interspersed_args": False},
    waits=True,
)
def ort_command(asked: OrtOptions) -> None:
    """Run an unmodified onnxruntime script on the simulated NPU.

    Every InferenceSession gets the execution provider. The exit code is that of the script; 70 if
    it is 0 and an internal error occurred behind a call.
    """
    from rkcosim.apis.ort.library import provider_library

    run_script(asked, "onnxruntime", provider_library)
