"""Programs of allbilly/rk3588: operations by registers alone, over both drivers."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.outside.programs import last_line, note, under
from tools.outside.suite import FAIL, LIMIT, PASS, Checkout, NotHere, Outcome, Suite, all_pass, on_engine


@dataclass(frozen=True)
class Script:
    """A program that prints PASS or FAIL for each of its cases."""

    path: str
    cases: int
    words: tuple[str, ...] = ()


_OWN, _MAINLINE = "experimental", "experimental/kernel_6_18"
SCRIPTS = {
    "simple_add": Script("examples/simple_add.py", 1),
    "elementwise": Script("examples/elementwise.py", 60),
    "gemm": Script("examples/gemm.py", 2),
    "gemm_int8": Script(f"{_OWN}/gemm_int8.py", 5),
    "gemm_int16": Script(f"{_OWN}/gemm_int16.py", 5),
    "pool": Script(f"{_OWN}/pool.py", 9),
    "mainline simple_add": Script("examples/kernel_6_18/simple_add.py", 1),
    "mainline elementwise": Script(f"{_MAINLINE}/elementwise.py", 6),
}
"""The programs of README.md by name; those of its section about kernel 6.18 are of the mainline driver."""

RTL_TOO = ("simple_add", "gemm", "pool", "mainline simple_add", "mainline elementwise")
"""Programs that are small enough for the RTL."""


def _outcome(text: str, code: int | None, seconds: float, script: Script) -> Outcome:
    if code is None:
        return Outcome(LIMIT, note(f"ended after {seconds:.0f} s"))
    passed, failed = len(re.findall(r"\bPASS\b", text)), len(re.findall(r"\bFAIL\b", text))
    if code or failed or passed != script.cases:
        said = f"exit code {code}, {passed} of {script.cases} cases pass, {failed} fail: {last_line(text)}"
        return Outcome(FAIL, note(said))
    return Outcome(PASS)


def _run(here: Checkout, engine: str, folder: Path) -> Mapping[str, Outcome]:
    here.needs(*(script.path for script in SCRIPTS.values()))
    if subprocess.run([here.python, "-c", "import numpy"], capture_output=True, check=False).returncode:
        raise NotHere(f"{Path(here.python).name} has no numpy")
    found = {}
    for name, script in on_engine(engine, SCRIPTS, RTL_TOO).items():
        command = [here.python, str((here.folder / script.path).resolve()), *script.words]
        done = under("device", engine, command, 900, folder=folder)
        found[name] = _outcome(done.text, done.code, done.seconds, script)
        print(f"  {name}: {found[name].verdict} ({done.seconds:.1f} s)", flush=True)
    return found


SUITE = Suite(
    name="allbilly-rk3588",
    repository="allbilly/rk3588",
    tests="additions, element-wise operations of up to 131072 numbers, products of matrices of fp16, int8 "
    "and int16, and pooling, by registers alone over both drivers",
    how="The programs that README.md names as working run under `rkcosim device`, each with all of its "
    "cases, of which none may fail and none may be missing. Its convolutions are a test of this project, "
    "with the numbers of its sweep ([allbilly's sweeps](#allbillys-sweeps)).",
    board_source="allbilly/rk3588 @40fae7b, README.md: the programs are run on a board; current_task.md has "
    "the output of simple_add.py there.",
    board=all_pass,
    run=_run,
)
