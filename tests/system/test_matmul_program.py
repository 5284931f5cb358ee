"""The calls of a language model's backend (programs/layers.c) against numpy, and the report of products."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import rkcosim.rknn_api as rk
from rkcosim.devices.native_library import c_compiler
from rkcosim.devices.rknn_library import environment, lay_out, rknn_library
from rkcosim.driver import Driver
from rkcosim.engines import BuildError
from rkcosim.golden.task import GoldenNpu
from rkcosim.rknn_api.server import RknnServer

ROOT = Path(__file__).parents[2]
SOURCE = Path(__file__).with_name("programs") / "layers.c"
KINDS = {
    "int8": "int8 x int8 -> int32",
    "int4": "int4 x int4 -> int16",
    "fp16": "float16 x float16 -> float32",
}


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the library, its header and the program."""
    folder = tmp_path_factory.mktemp("prefix")
    try:
        lay_out(folder, rknn_library(), copy=True)
    except BuildError as error:
        pytest.skip(str(error))
    command = [*c_compiler(), "-O1", "-Wall", "-Wextra", "-Werror", f"-I{folder / 'include'}"]
    linked = [f"-L{folder / 'lib'}", "-lrknnrt", "-lpthread"]
    subprocess.run([*command, "-o", folder / "layers", SOURCE, *linked], check=True)
    return folder


@pytest.fixture
def golden() -> Iterator[None]:
    rk.use_device(Driver(GoldenNpu(3), shared=True))
    yield
    rk.use_device(None)


def value(i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """The numbers of the program."""
    x = i.astype(np.uint32) * np.uint32(2654435761) ^ j.astype(np.uint32) * np.uint32(2246822519)
    x ^= x >> np.uint32(13)
    x *= np.uint32(3266489917)
    return (x >> np.uint32(16)).astype(np.int64) % 15 - 7


def wanted(k: int, n: int, rows: tuple[int, ...]) -> str:
    """What the program prints if the products are right."""
    b = value(*np.meshgrid(np.arange(k), 1000 + np.arange(n), indexing="ij"))
    lines = []
    for m in rows:
        a = value(*np.meshgrid(np.arange(m), np.arange(k), indexing="ij"))
        sums = (a @ b) @ np.arange(1, n + 1)
        lines.append(f"{m}: {' '.join(map(str, sums))}\n")
    return "".join(lines)


@pytest.mark.parametrize("kind", KINDS)
def test_on_the_golden_model(golden: None, kind: str, prefix: Path) -> None:
    """One, two and three cores, K with and without a whole number of native blocks of int4 rows."""
    rows = (1, 4, 33)
    with RknnServer(prefix / "socket") as server:
        for cores, k, n in ((1, 96, 192), (2, 2048, 256), (3, 320, 448)):
            done = subprocess.run(
                [prefix / "layers", kind, *map(str, (cores, k, n, *rows))],
                env=environment(prefix, server.path),
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            assert done.stdout == wanted(k, n, rows)


def test_on_the_rtl_with_a_report(prefix: Path, tmp_path: Path) -> None:
    """A row for each M and core; no share is above 1, and the rest of a board's time is named."""
    words = ["--cores", "3", "--report", "--json", tmp_path / "run.json"]
    shell = f'for kind in {" ".join(KINDS)}; do "$0" $kind 3 64 192 1 5 || exit 1; done'
    done = subprocess.run(
        [sys.executable, "-m", "rkcosim", "rknn", *words, "--", "sh", "-c", shell, prefix / "layers"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == 3 * wanted(64, 192, (1, 5))
    rows = json.loads((tmp_path / "run.json").read_text())["products"]
    found = [(row["kind"], row["m"], row["core"]) for row in rows]
    assert found == [(kind, m, core) for kind in KINDS.values() for m in (1, 5) for core in range(3)]
    sizes = dict(zip(KINDS.values(), (1, 0.5, 2), strict=True))
    for row in rows:
        assert (row["k"], row["n"], row["runs"]) == (64, 64, 1)
        assert row["cycles"] > 500 and 0 < row["utilisation"] < 1 and row["bound"]
        assert row["bytes_read"] >= 64 * (64 + row["m"]) * sizes[row["kind"]]
        assert row["conversions"] == 0  # B was native
    assert "18 runs of products: " in done.stderr and "% of 3 cores" in done.stderr
    assert "on a board each run takes 32.9 us more, 0.592 ms in all" in done.stderr
    assert "which costs more here than the NPU's work" in done.stderr
