"""Compiles the C programs of this folder and of examples/device, once for all tests of a run."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path

import pytest

from rkcosim.devices.native_library import c_compiler
from rkcosim.engines import BuildError
from rkcosim.spec.regs.cheader import header

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "device"
FOLDERS = (Path(__file__).parent, EXAMPLES)
FLAGS = ("-std=gnu11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function")


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="rkcosim-tests-")
    Path(folder.name, "npu_registers.h").write_text(header(), encoding="utf-8")
    return folder


@functools.cache
def compiled(name: str, *extra: str) -> Path:
    """Return the program `name`.c as an executable; the test is skipped if there is no C compiler."""
    try:
        compiler = c_compiler()
    except BuildError as error:
        pytest.skip(str(error))
    folder = Path(_folder().name)
    target = folder / f"{name}{abs(hash(extra)) if extra else ''}"
    source = next(path for home in FOLDERS if (path := home / f"{name}.c").exists())
    command = [*compiler, *FLAGS, *extra, "-I", str(folder), "-o", str(target), str(source), "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target
