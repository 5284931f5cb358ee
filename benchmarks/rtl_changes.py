"""What can be changed in the RTL, and what an estimate says about it: docs/results/rtl_changes.md.

    python -m benchmarks.rtl_changes [--only TEXT] [--again] [--record FILE] [--page FILE]

Each change is made in a copy of the repository, where the engine is built anew, and networks run with
every tensor compared with both golden models.  Changes that `rkcosim estimate --what-if` has a row for are
estimated in the repository as it is.  A run that is stopped goes on behind the last change of the record.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.zoo.measure import job_of
from benchmarks.zoo.networks import BY_NAME
from rkcosim.compiler.sharing import DIVIDE_VARIABLE
from rkcosim.compiler.tiling import banks_of
from rkcosim.engines.library import DramConfig
from rkcosim.measure.models.run import run_model
from rkcosim.measure.perf.estimator.estimate import estimate_model
from rkcosim.measure.perf.estimator.hardware import Hardware
from rkcosim.measure.perf.estimator.whatif import JUDGED
from rkcosim.measure.perf.page import table, write_stored
from rkcosim.rknn_file.opening import open_model
from rkcosim.waves.whole_file import whole_file

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "docs/results/rtl_changes.json"
PAGE = ROOT / "docs/results/rtl_changes.md"
SCHEMA_VERSION = 1
LIMIT = 1800
"""Seconds for the build and the runs of a change."""
NETWORKS = ("keypoints", "retinaface_mobile320")
"""The example of docs/howto/faster.md, and a network of the zoo; weights are random."""

CONFIG = "spec/config.py"


@dataclass(frozen=True)
class Change:
    """A change of the source.

    Members
    -------
    what
        What it does to the hardware.
    edits
        File, line and its replacement.
    depends
        What else depends on it.
    estimated
        Estimates a file with the change; None where estimates have no such row.
    """

    what: str
    edits: tuple[tuple[str, str, str], ...]
    depends: str
    estimated: Callable[[bytes], int] | None = None


@dataclass(frozen=True)
class Setting:
    """Another memory or number of cores, for which nothing is built."""

    what: str
    dram: DramConfig
    cores: int = 1


def _parts(hardware: Hardware) -> Callable[[bytes], int]:
    return lambda data: estimate_model(data, hardware=hardware).cycles


def _cbuf(size: int) -> Callable[[bytes], int]:
    def estimated(data: bytes) -> int:
        with banks_of(size):
            return estimate_model(open_model(data)).cycles

    return estimated


def _geometry(what: str, field: str, old: str, new: str, depends: str, **more: Any) -> Change:
    return Change(
        what, ((CONFIG, f"    {field}: int = {old}\n", f"    {field}: int = {new}\n"),), depends, **more
    )


LUT_FILE = "rtl/npu/dpu_lut.py"
PLANS = "nothing else: RTL, compiler and golden models take it from this line"

CHANGES = (
    _geometry(
        "CBUF of 768 KiB",
        "cbuf_bank_bytes",
        "32 * 1024",
        "64 * 1024",
        PLANS,
        estimated=_cbuf(64 * 1024),
    ),
    _geometry(
        "CBUF of 192 KiB",
        "cbuf_bank_bytes",
        "32 * 1024",
        "16 * 1024",
        PLANS,
        estimated=_cbuf(16 * 1024),
    ),
    Change(
        "tables: 4 elements a cycle",
        ((LUT_FILE, "WIDTH = 2\n", "WIDTH = 4\n"),),
        "`LUT_CYCLES` in spec/octets.py, from which the causes of cycles and estimates are derived; two more "
        "read ports of the tables for each element",
        _parts(Hardware(tables=2)),
    ),
    _geometry("stripes of 32 pixels", "stripe_pixels", "16", "32", "array, CORE, DPU, writer: checked there"),
    Change(
        "DPU of 16 lanes",
        (("spec/types.py", "LANES = 8\n", "LANES = 16\n"),),
        "ports of CORE, DPU and DPU_RDMA, words of BRDMA and NRDMA, the golden model's octets",
    ),
    Change(
        "atoms of 32 bytes",
        ((CONFIG, "ATOM_BYTES = 16\n", "ATOM_BYTES = 32\n"),),
        "every layout in memory [HW 3], every address in a register",
    ),
    Change(
        "AXI of 512 bits",
        ((CONFIG, "AXI_BYTES = 32\n", "AXI_BYTES = 64\n"),),
        "all loaders and writers, the harness",
    ),
    _geometry(
        "read FIFO of 64 beats",
        "read_fifo_beats",
        "256",
        "64",
        "nothing else; `rkcosim sweep --geometry` varies it from 32 to 256 without an edit",
    ),
    _geometry("CBUF of 16 banks", "cbuf_banks", "12", "16", "DATA_BANK and WEIGHT_BANK have four bits"),
    Change(
        "no floating-point arithmetic",
        ((CONFIG, "    floats: bool = True\n", "    floats: bool = False\n"),),
        "tasks of floats raise NOT_BUILT; `rkcosim verilog --no-floats` writes such a core",
    ),
)

DRAM = DramConfig()
SETTINGS = (
    Setting("bandwidth halved", DRAM.faster(0.5)),
    Setting("bandwidth doubled", DRAM.faster(2.0)),
    Setting("bandwidth eightfold", DRAM.faster(8.0)),
    Setting(
        "latency halved",
        replace(DRAM, read_latency=DRAM.read_latency // 2, write_latency=DRAM.write_latency // 2),
    ),
    Setting(
        "latency doubled",
        replace(DRAM, read_latency=2 * DRAM.read_latency, write_latency=2 * DRAM.write_latency),
    ),
    Setting("2 cores", DRAM, 2),
    Setting("3 cores", DRAM, 3),
)


def models(folder: Path) -> dict[str, Path]:
    """Return the files of the networks, made if they are missing."""
    path = folder / "keypoints_int8.onnx"
    if not path.exists():
        command = [sys.executable, str(ROOT / "examples/networks/keypoints.py"), str(folder)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return {"keypoints": path, **{name: job_of(BY_NAME[name], []).path for name in NETWORKS[1:]}}


def copied(folder: Path) -> Path:
    """Return a copy of the files that Git knows."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists() or (ROOT / name).is_symlink():
            shutil.copy2(ROOT / name, target, follow_symlinks=False)
    return folder


def edit(folder: Path, change: Change) -> None:
    """Make a change in a copy; raises ValueError if a line is not there once."""
    for name, old, new in change.edits:
        path = folder / name
        text = path.read_text(encoding="utf-8")
        if text.count(old) != 1:
            raise ValueError(f"{name} has the line {old.strip()!r} {text.count(old)} times")
        path.write_text(text.replace(old, new), encoding="utf-8")


def inside(paths: Sequence[str]) -> None:
    """Run networks with the sources of this process; print a line of JSON for each."""
    for path in paths:
        try:
            found = run_model(path, check=True, engine="changes")  # the default has the DPU's values in C++
            difference = str(found.verdict.get("first_difference") or "")
            row = {"cycles": found.cycles_each, "match": found.verdict["match"] is True, "why": difference}
        except Exception as error:  # whatever the change breaks
            row = {"cycles": None, "match": False, "why": f"{type(error).__name__}: {error}"}
        print("ROW " + json.dumps(row), flush=True)


def tried(change: Change, files: dict[str, Path]) -> dict[str, Any]:
    """Return the runs with a change in a copy, by the name of the network."""
    with tempfile.TemporaryDirectory(prefix="rkcosim-") as made:
        folder = copied(Path(made))
        edit(folder, change)
        surroundings = {**os.environ, "PYTHONPATH": str(folder)}
        command = [sys.executable, "-m", "benchmarks.rtl_changes", "--inside", *map(str, files.values())]
        try:
            done = subprocess.run(
                command, cwd=folder, env=surroundings, capture_output=True, text=True, timeout=LIMIT
            )
        except subprocess.TimeoutExpired:
            why = f"no end in {LIMIT} seconds"
            return {name: {"cycles": None, "match": False, "why": why} for name in files}
    rows = [json.loads(line[4:]) for line in done.stdout.splitlines() if line.startswith("ROW ")]
    last = (done.stderr.strip().splitlines() or ["no output"])[-1]
    rows += [{"cycles": None, "match": False, "why": last}] * (len(files) - len(rows))
    return dict(zip(files, rows, strict=True))


def measured(change: Change, files: dict[str, Path]) -> dict[str, Any]:
    """Return the figures of a change."""
    predicted = {}
    if change.estimated is not None:
        predicted = {name: change.estimated(path.read_bytes()) for name, path in files.items()}
    return {"predicted": predicted, "runs": tried(change, files)}


def set_up(setting: Setting, files: dict[str, Path]) -> dict[str, Any]:
    """Return the figures of a setting on the engine `fast`; cores divide layers by cycles alone."""
    predicted, runs = {}, {}
    with mock.patch.dict(os.environ, {DIVIDE_VARIABLE: "cycles"}):
        for name, path in files.items():
            predicted[name] = estimate_model(path.read_bytes(), dram=setting.dram, cores=setting.cores).cycles
            found = run_model(path, check=False, engine="fast", dram=setting.dram, cores=setting.cores)
            runs[name] = {"cycles": found.cycles_each, "match": None, "why": ""}
    return {"predicted": predicted, "runs": runs}


def _figures(found: dict[str, Any], before: dict[str, int]) -> Iterator[str]:
    """Yield the cells of each network: estimated cycles, cycles of the RTL, how far they are apart."""
    for name in NETWORKS:
        cycles, expected = found["runs"][name]["cycles"], found["predicted"].get(name)
        if cycles is None:
            yield from ("", "", "")
            continue
        yield f"{expected:,}" if expected else ""
        yield f"{cycles:,} ({cycles / before[name]:.1%})"
        yield f"{expected / cycles - 1:+.2%}" if expected else ""


def _verdict(found: dict[str, Any]) -> str:
    rows = found["runs"].values()
    if all(row["match"] for row in rows):
        return "every tensor right"
    why = next(row["why"] for row in rows if not row["match"]).replace("|", "/").replace("\n", " ")
    return why if len(why) <= SHORT else why[:SHORT] + " ..."


SHORT = 160
"""Largest number of characters of an error."""


def worst(record: dict[str, Any]) -> tuple[int, float]:
    """Return the number of pairs of estimated and measured cycles, and the largest relative error."""
    errors = [
        abs(found["predicted"][name] / row["cycles"] - 1)
        for found in record.values()
        for name, row in found["runs"].items()
        if row["cycles"] and name in found["predicted"]
    ]
    return len(errors), max(errors, default=0.0)


def page(record: dict[str, Any]) -> str:
    """Return the page."""
    before = {name: row["cycles"] for name, row in record["as it is"]["runs"].items()}
    heads = [f"{name}, {what}" for name in NETWORKS for what in ("estimated", "RTL", "apart")]
    settings = [
        (one.what, *_figures(record[one.what], before))
        for one in (Setting("as it is", DRAM), *SETTINGS)
        if one.what in record
    ]
    changes = [change for change in CHANGES if change.what in record]
    edits = [
        (
            change.what,
            "<br>".join(
                f"`{name}`: `{new.strip()}` (was `{old.split('=')[-1].strip()}`)"
                for name, old, new in change.edits
            ),
            change.depends,
            _verdict(record[change.what]),
        )
        for change in changes
    ]
    ran = [
        (change.what, *_figures(record[change.what], before))
        for change in changes
        if any(row["cycles"] for row in record[change.what]["runs"].values())
    ]
    count, largest = worst(record)
    texts = (
        TEXTS.format(count=count, largest=f"{largest:.2%}", variable=DIVIDE_VARIABLE).strip().split("\n\n")
    )
    tables = {
        "SETTINGS": table(("setting", *heads), settings),
        "EDITS": table(("change", "where", "what depends on it", "result"), edits),
        "RAN": table(("change", *heads), ran),
    }
    return "\n\n".join("\n".join(tables.get(text, [" ".join(text.split())])) for text in texts) + "\n"


TEXTS = """
# What can be changed in the RTL

Written by `python -m benchmarks.rtl_changes`. This page is for architects who want to know what another NPU
of this kind would gain: what can be changed, where, what else depends on it, and how far the rows of
`rkcosim estimate --what-if` are from the RTL with the change.

In {count} comparisons on two networks, estimate and RTL are at most {largest} apart. The networks are the
example of [Making a network faster](../howto/faster.md) and RetinaFace MobileNet 0.25 of [the zoo](zoo.md),
int8, with random weights. Percentages are those of the RK3588's cycles.

## Without a change of the source

Memory and number of cores are settings of each run (`--dram`, `--cores`); `rkcosim sweep` varies them in a
table. Cycles are those of the engine `fast`, which has the timing of the RTL; layers are divided among cores
by cycles alone (`{variable}=cycles`, [several cores](../models.md#several-cores)).

SETTINGS

## With a change of the source

Each change was made in a copy of the repository, in the line of the second column, the engine was built from
it, and both networks ran with every tensor compared with both golden models (`rkcosim run --check`). The last
column says what happened.

EDITS

Their cycles, for those that run. Estimates are those of the repository without the change, by the row of
`--what-if` or the same means; where there is none, estimates do not know the change.
Every tensor of a checked run keeps memory of its own, and the runs of the first table are not checked:
RetinaFace, which uses no floating point, differs from the first table by 284 cycles without that arithmetic.

RAN

## Only estimated

`rkcosim estimate --what-if` also has rows for twice the multiply-accumulates of the array (two weight tiles
a cycle), twice the lanes of CORE and the DPU, and six cores. There is no RTL of these, so that their error is
not known: the delays between blocks are taken to be those of today, and buffers to be large enough. Sizes of
atoms, stripes and kernel groups are written into all layouts in memory
([chapter 3](../reference/03-layouts.md) of the reference) and into registers; changing them means another
compiler and other models.
"""


def main(words: list[str] | None = None) -> int:
    """Run the command; return 0."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.rtl_changes", description=(__doc__ or "").split("\n")[0]
    )
    made.add_argument("--only", default="", metavar="TEXT", help="changes whose name contains this")
    made.add_argument("--again", action="store_true", help="try changes again that are in the record")
    made.add_argument("--record", type=Path, default=RECORD, metavar="FILE")
    made.add_argument("--page", type=Path, default=PAGE, metavar="FILE")
    made.add_argument("--folder", type=Path, default=ROOT / "build/keypoints", help="for made networks")
    made.add_argument("--inside", nargs="+", metavar="MODEL", help=argparse.SUPPRESS)
    given = made.parse_args(words)
    if given.inside:
        inside(given.inside)
        return 0
    files = models(given.folder)
    record: dict[str, Any] = {}
    if given.record.exists():
        record = json.loads(given.record.read_text(encoding="utf-8"))["changes"]
    every: list[Setting | Change] = [Setting("as it is", DRAM), *SETTINGS, *CHANGES]
    for one in every:
        if given.only not in one.what or (one.what in record and not given.again):
            continue
        print(one.what, flush=True)
        record[one.what] = set_up(one, files) if isinstance(one, Setting) else measured(one, files)
        with whole_file(given.record) as part:
            data = {"schema_version": SCHEMA_VERSION, "changes": record}
            part.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        print(" ", record[one.what], flush=True)
    with whole_file(given.page) as part:
        part.write_text(page(record), encoding="utf-8")
    if given.record == RECORD:
        count, largest = worst(record)
        write_stored(JUDGED, SCHEMA_VERSION, {"count": count, "largest": largest})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
