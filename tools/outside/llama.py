"""Runs of programs of llama.cpp: what they generate with the NPU's products, and with exact ones."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from rkcosim.devices.native_library import c_compiler
from rkcosim.rknn_api import declarations
from tools.outside.programs import ROOT, last_line, note, under
from tools.outside.suite import FAIL, LIMIT, PASS, Outcome

EXACT = ROOT / "tools/outside/drivers/exact_matmul.c"
"""The calls of rknn_matmul_api.h that the back ends need, with exact sums on the processor."""


def exact_library(folder: Path) -> Path:
    """Compile the library of exact products in a folder; return its path."""
    library = folder / "exact_matmul.so"
    (folder / declarations.HEADER).write_text(declarations.header())
    command = [*c_compiler(), "-shared", "-fPIC", "-O2", f"-I{folder}", "-o", str(library), str(EXACT)]
    subprocess.run(command, check=True)
    return library


def generated(
    engine: str,
    folder: Path,
    command: Sequence[str],
    prompt: str,
    *,
    options: Sequence[str] = (),
    library: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> bytes | Outcome:
    """Return what a program writes to standard output behind the prompt, or how it failed.

    Parameters
    ----------
    engine : "golden" or "rtl".
    folder : working folder.
    command : the program and its arguments.
    prompt : text that the program repeats first.
    options : options of `rkcosim rknn`.
    library : a library in the place of the NPU's.
    environment : variables in addition to this process's.
    """
    out = folder / "text"
    out.unlink(missing_ok=True)
    first = "" if library is None else f'LD_PRELOAD="{library}:$LD_PRELOAD" '
    words = ["sh", "-c", f'{first}exec "$@" > "{out}"', "sh", *command]
    done = under("rknn", engine, words, 1200, options=options, folder=folder, environment=environment)
    if done.code is None:
        return Outcome(LIMIT, note(f"ended after {done.seconds:.0f} s"))
    if done.code:
        return Outcome(FAIL, note(f"exit code {done.code}: {last_line(done.text)}"))
    return out.read_bytes().partition(prompt.encode())[2]


def compared(wanted: bytes | Outcome, given: bytes | Outcome, least: int) -> Outcome:
    """Compare two texts, of which the second one has at least `least` bytes, or pass on how one failed."""
    if isinstance(wanted, Outcome):
        return wanted
    if isinstance(given, Outcome):
        return given
    if wanted == given and len(given) >= least:
        return Outcome(PASS)
    return Outcome(FAIL, note(f"expected {wanted.hex()}, NPU {given.hex()}"))
