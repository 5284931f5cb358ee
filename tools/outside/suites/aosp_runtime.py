"""AOSP's own tests of NNAPI's runtime, against libneuralnetworks.so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tools.outside.programs import junit, last_line, under
from tools.outside.suite import Checkout, Outcome, Suite

PROGRAMS = (
    *("TrivialModel", "Memory", "Free", "Wrapper", "OperandExtraParams", "Validation", "ValidateOperations"),
    *("UnspecifiedDimensions", "ControlFlow"),
)
"""Names in the source files `runtime/test/Test<name>.cpp`; each file is built as one program."""


def _run(here: Checkout, engine: str, folder: Path) -> Mapping[str, Outcome]:
    here.needs(*(f"build/Test{name}" for name in PROGRAMS))
    found: dict[str, Outcome] = {}
    for name in PROGRAMS:
        report = folder / f"{name}.xml"
        command = [str((here.folder / f"build/Test{name}").resolve()), f"--gtest_output=xml:{report}"]
        done = under("nnapi", engine, command, 1200, folder=folder)
        if not report.is_file():
            raise OSError(f"Test{name} wrote no report: {last_line(done.text)}")
        found |= {f"{name}: {test}": outcome for test, outcome in junit(report).items()}
        print(f"  {name}: {done.seconds:.0f} s", flush=True)
    return found


SUITE = Suite(
    name="AOSP's runtime tests",
    repository="timocapa/android_packages_modules_NeuralNetworks",
    tests="AOSP's own tests of NNAPI's runtime: calls, memory, dimensions that are not known, validation of "
    "models and operations",
    how="The files runtime/test/Test*.cpp of CTS that need no other runtime are built, unchanged, as "
    "programs in the folder `build` with gtest 1.12, AOSP's headers, `-DNNTEST_ONLY_PUBLIC_API` and "
    "`libneuralnetworks.so` of `rkcosim nnapi --prefix` (on Linux with stand-ins for the headers of "
    "android-base and of ControlFlow.h), and run under `rkcosim nnapi` on the golden model. "
    "TestUnknownDimensions makes 5,761 models and is left out.",
    board_source="none: they test an interface.",
    run=_run,
    engines=("golden",),
)
