"""What the compiler decides by estimates, and what other divisions of layers would save: a page of results.

    python -m benchmarks.divisions [NAME...] [--record FILE] [--page FILE]

The networks are compiled as they are, without the decision to leave tables in tasks of their own, and with
every convolution divided in other ways; all of them are estimated.  Networks in which the decision about
tables changes something run on the engine `fast`, which has the cycles of the RTL, both ways.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.zoo.measure import job_of
from benchmarks.zoo.networks import BY_NAME
from rkcosim.compiler import fusion, tiling, using_cores
from rkcosim.compiler.batch import one_of
from rkcosim.compiler.options import using_options
from rkcosim.compiler.sharing import DIVIDE_VARIABLE
from rkcosim.measure.models.run import run_model
from rkcosim.measure.perf.boards.expected import board_milliseconds
from rkcosim.measure.perf.estimator.estimate import Estimate, estimate_model
from rkcosim.measure.perf.page import table
from rkcosim.rknn_file.opening import open_model
from rkcosim.spec.submit import SUBMIT_US
from rkcosim.waves.whole_file import whole_file

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "docs/results/divisions.json"
PAGE = ROOT / "docs/results/divisions.md"
SCHEMA_VERSION = 1

NETWORKS = (
    *("keypoints", "mobile_face_net", "squeezenet", "retinaface_mobile320", "mobilenet_v1", "mobilenet_v2"),
    *("efficientnet_lite0", "mobilenet_v3_large", "ssd_mobilenet_v1", "resnet18", "clip_block", "bert_mini"),
)
"""The example of docs/howto/faster.md, and networks of the zoo that need nothing but this repository."""

CORES = 3
"""Cores among which layers are divided."""

OTHERS = 7
"""Other divisions of each layer that are tried: those that move the fewest bytes."""


@contextmanager
def divided(place: int) -> Iterator[None]:
    """Divide each convolution inside in the way that moves the fewest bytes, without `place` better ones."""

    def chosen(shape: Any, rows: int, kernels: int, splits: range) -> Any:
        found: dict[Any, Any] = {}
        for count in tiling._kernel_tiles(shape, group := tiling._group(shape)):
            for banks in splits if count <= kernels else ():
                choice = tiling._try(shape, count, banks, min(count, group), rows)
                if choice is not None:
                    key = choice.kernels, choice.rows, choice.resident
                    known = found.setdefault(key, choice)
                    if (choice.cost, choice.tasks) < (known.cost, known.tasks):
                        found[key] = choice
        ranked = sorted(found.values(), key=lambda choice: (choice.cost, choice.tasks))
        return ranked[min(place, len(ranked) - 1)] if ranked else None

    with mock.patch.object(tiling, "_cheapest", chosen):
        yield


@contextmanager
def tables_joined() -> Iterator[None]:
    """Compute tables in the tasks of the convolutions before them wherever that is possible."""
    with mock.patch.object(fusion, "apart_is_faster", lambda *_: False):
        yield


def measure(path: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of a network."""
    with using_options(**options):
        data = path.read_bytes()
        now = estimate_model(open_model(data))
        with tables_joined():
            joined = estimate_model(open_model(data))
        row = {"now": now.cycles, "joined": joined.cycles, "saved": _best_of_others(data, now)}
        if joined.cycles != now.cycles:
            row["run"] = run_model(path, check=False, engine="fast").cycles_each
            with tables_joined():
                row["run_joined"] = run_model(path, check=False, engine="fast").cycles_each
    return row


def on_cores(path: Path, options: dict[str, Any]) -> dict[str, list[int]]:
    """Return estimated cycles and submits on one core, and on `CORES` by what a division has to save."""
    found, data = {}, path.read_bytes()
    for name, cores in (("alone", 1), *((name, CORES) for name in HOW)):
        variable = {DIVIDE_VARIABLE: name} if name in HOW else {}
        with using_options(**options), using_cores(cores), mock.patch.dict(os.environ, variable):
            one = estimate_model(open_model(data))
        found[name] = [one.cycles, len(one.jobs)]
    return found


def _best_of_others(data: bytes, now: Estimate) -> dict[str, int]:
    """Return what the best of all divisions would save of each convolution that has a better one."""
    best = {layer.index: layer.cycles for layer in now.layers if layer.cycles is not None}
    names = {}
    for place in range(1, OTHERS + 1):
        with divided(place):
            model = open_model(data)
        for layer in estimate_model(model).layers:
            if layer.cycles is not None and layer.index in one_of(model).plan.tiles:
                names[layer.index] = layer.name
                best[layer.index] = min(best[layer.index], layer.cycles)
    cycles = {layer.index: layer.cycles or 0 for layer in now.layers}
    return {name: cycles[n] - best[n] for n, name in names.items() if best[n] < cycles[n]}


def page(record: dict[str, Any]) -> str:
    """Return the page."""
    rows = []
    for name, row in record.items():
        run = f"{row['run_joined']:,} to {row['run']:,}" if "run" in row else ""
        saved = sum(row["saved"].values())
        best = f"{saved:,} ({saved / row['now']:.3%})" if saved else "0"
        change = row["now"] / row["joined"] - 1
        rows.append((f"`{name}`", f"{row['joined']:,}", f"{row['now']:,}", f"{change:+.2%}", run, best))
    heads = (
        *("network", "tables joined", "as compiled", "apart", "the same on the RTL"),
        "saved by other divisions",
    )
    worse = [name for name, row in record.items() if row["now"] > row["joined"]]
    slower = f"slower: {', '.join(worse)}" if worse else "no network is slower"
    largest = max(sum(row["saved"].values()) / row["now"] for row in record.values())
    best = f"at most {largest:.3%} of a network, less than an estimate is off" if largest else "no cycle"
    text = TEXT.format(count=len(record), slower=slower, best=best, others=OTHERS)
    parts = [" ".join(part.split()) for part in text.strip().split("\n\n")]
    cores = [
        (f"`{name}`", f"{board_milliseconds(*row['cores']['alone']):.3f}", *_figures(row["cores"]))
        for name, row in record.items()
        if "cores" in row
    ]
    several = ("network", "ms on one core", *(f"{what}, {how}" for how in HOW.values() for what in WHAT))
    tables = ["\n".join(table(heads, rows)), " ".join(ON_CORES.split()), "\n".join(table(several, cores))]
    return "\n\n".join([*parts, *tables, " ".join(ORDERS.split())]) + "\n"


HOW = {"cycles": "cycles only", "time": "as compiled"}
"""Names of the two ways to divide layers, by the value of `DIVIDE_VARIABLE`."""

WHAT = ("cycles", "submits", "ms with a driver")


def _figures(found: dict[str, list[int]]) -> Iterator[str]:
    for cycles, submits in (found[name] for name in HOW):
        yield from (f"{cycles:,}", str(submits), f"{board_milliseconds(cycles, submits):.3f}")


ON_CORES = f"""
Each layer that is divided among cores is a submit of its own, and so are the layers before and behind it on
one core; a driver takes {SUBMIT_US:g} microseconds for a submit. The compiler divides the layers with which
an inference takes the shortest time by its estimates, including the submits. "Cycles only" divides every
layer that saves {tiling.JOB_CYCLES:,} cycles (`{DIVIDE_VARIABLE}=cycles`): inferences take fewer cycles, and
most of them more time. The table is for {CORES} cores.
"""

ORDERS = """
The order of operators stays that of the file, so that each tensor keeps its name and can be compared with
other runtimes; `rkcosim advise --only orders` proposes other orders.
"""


TEXT = """
# What the compiler decides by estimates

Written by `python -m benchmarks.divisions`: estimated cycles of {count} networks on one core, int8, random
weights.

A table behind a convolution is a task of its own where that takes fewer cycles ([tables
apart](../models.md#tables-apart)): "tables joined" are the cycles without this decision; {slower}. Networks
that it changes were run both ways on the engine `fast`, which has the cycles of the RTL.

A convolution is divided into tasks so that the fewest bytes are moved, and not by estimates. The last column
says what estimates would save: each convolution was also divided in the {others} next best ways (other
kernels a task, rows a task, and banks of CBUF), and the shortest estimate of each layer was taken. That would
save {best}, so that the compiler does not try them. This table is older than the time of poolings on boards
([HW 9.10]), which the one below has.
"""


def main(words: list[str] | None = None) -> int:
    """Run the command; return 0."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.divisions", description=(__doc__ or "").split("\n")[0]
    )
    made.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NETWORKS)}; default: all")
    made.add_argument("--again", action="store_true", help="measure networks again that are in the record")
    made.add_argument("--record", type=Path, default=RECORD, metavar="FILE")
    made.add_argument("--page", type=Path, default=PAGE, metavar="FILE")
    made.add_argument("--folder", type=Path, default=ROOT / "build/keypoints", help="for made networks")
    given = made.parse_args(words)
    if unknown := sorted(set(given.names) - set(NETWORKS)):
        made.error(f"no network {', '.join(unknown)}")
    record: dict[str, Any] = {}
    if given.record.exists():
        record = json.loads(given.record.read_text(encoding="utf-8"))["networks"]
    for name in given.names or NETWORKS:
        if name in record and "cores" in record[name] and not given.again:
            continue
        path, options = _file(name, given.folder)
        if name not in record or given.again:
            record[name] = measure(path, options)
        record[name]["cores"] = on_cores(path, options)
        print(name, record[name], flush=True)
        with whole_file(given.record) as part:
            data = {"schema_version": SCHEMA_VERSION, "networks": record}
            part.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    with whole_file(given.page) as part:
        part.write_text(page(record), encoding="utf-8")
    return 0


def _file(name: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    """Return the file of a network, and the options with which it is read."""
    if name in BY_NAME:
        job = job_of(BY_NAME[name], [])
        return job.path, {"shapes": job.shapes, "outputs": job.outputs}
    path = folder / f"{name}_int8.onnx"
    if not path.exists():
        command: Sequence[str] = [sys.executable, str(ROOT / "examples/networks/keypoints.py"), str(folder)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return path, {}


if __name__ == "__main__":
    raise SystemExit(main())
