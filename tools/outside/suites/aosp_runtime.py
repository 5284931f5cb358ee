"""AOSP's own tests of NNAPI's runtime, against libneuralnetworks.so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tools.outside.programs import junit, last_line, under
from tools.outside.suite import Checkout, Outcome, Suite

PROGRAMS = (
    *("TrivialModel", "Memory", "Free", "Wrapper", "OperandExtraParams", "Validation", "ValidateOperations"),
    "UnspecifiedDimensions",
)
"""Names in the source files `runtime/test/Test<name>.cpp`; each file is built as one program."""

_PAGE = "([differences](../nnapi.md#differences-from-aosps-runtime))"
OEM = f"the types of OEMs are refused here {_PAGE}."
SCALES = (
    "the scale of a fixed result or of a bias is wrong in the test's model: AOSP looks at it when the model "
    f"is executed, this library when the operation is added {_PAGE}."
)
TYPES = f"AOSP's addOperation refuses a type of an operand that this library's takes {_PAGE}."
RESULTS = f"AOSP's addOperation refuses a number of results that this library's takes {_PAGE}."
RANKS = f"a rank is refused at another time than AOSP's {_PAGE}."

_SCALED = (
    *("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "GROUPED_CONV_2D", "TRANSPOSE_CONV_2D"),
    *("L2_NORMALIZATION", "LOGISTIC", "SOFTMAX", "TANH"),
)
_OF = "ValidateOperations: OperationValidationTest::"
WHY = (
    {f"{_OF}{name}_quant8*": SCALES for name in _SCALED}
    | {f"{_OF}{name}": RESULTS for name in ("*SEQUENCE_RNN*", "*SEQUENCE_LSTM*", "LSTM_*")}
    | {f"{_OF}{name}_float32_rank_*": RANKS for name in ("PACK", "REVERSE")}
    | {"ValidateOperations: *": TYPES, "Validation: *": OEM, "OperandExtraParams: *": OEM}
)


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
    "android-base), and run under `rkcosim nnapi` on the golden model. TestControlFlow needs more of "
    "Android; TestUnknownDimensions makes 5,761 models and is left out.",
    board_source="none: they test an interface.",
    why=WHY,
    run=_run,
    engines=("golden",),
)
