"""Whether `rkcosim estimate` names the right causes of cycles: the zoo on the RTL, and estimated.

    python -m benchmarks.attribution [NAME...] [--sources DIR]... [--cores N] [--details] [--page FILE]

Each network runs once on random data on the engine `fast`, which has the cycles and counters of the RTL.  The
score of a layer is the number of cycles that both attribute to the same cause: the sum over the causes of the
smaller number, divided by the measured cycles.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.zoo.measure import Job, inputs_of, job_of
from benchmarks.zoo.networks import BY_NAME
from benchmarks.zoo.sources import SourceError, folders_of
from rkcosim.base import BAD_INPUT
from rkcosim.compiler import using_cores
from rkcosim.compiler.options import using_options
from rkcosim.measure.models.run import run_model
from rkcosim.measure.perf.attribution import CAUSES
from rkcosim.measure.perf.boards.networks import NetworkError
from rkcosim.measure.perf.estimator import estimate_model
from rkcosim.measure.perf.page import table
from rkcosim.rknn_file.opening import open_model

ENGINE = "fast"
TARGET = 0.95
NETWORKS = (
    *("mobile_face_net", "squeezenet", "mobilenet_v1", "mobilenet_v2", "mobilenet_v3_large"),
    *("efficientnet_lite0", "retinaface_mobile320", "bert_mini", "clip_block", "language_model"),
)
"""Networks that are run by default: their weights are random, so nothing must be downloaded."""


@dataclass(frozen=True)
class Judged:
    """A layer of the NPU.

    Members
    -------
    name, op : of the layer.
    measured, estimated : cycles by cause (`rkcosim.measure.perf.attribution.Cause`).
    bounds : what bounds it, measured and estimated.
    """

    name: str
    op: str
    measured: dict[str, int]
    estimated: dict[str, int]
    bounds: tuple[str, str]

    @property
    def cycles(self) -> int:
        """Measured cycles."""
        return sum(self.measured.values())

    @property
    def right(self) -> int:
        """Cycles that both attribute to the same cause."""
        return sum(min(self.measured[cause], self.estimated[cause]) for cause in CAUSES)

    @property
    def share(self) -> float:
        """The score, 0 to 1."""
        return self.right / self.cycles


def score(layers: Iterable[Judged]) -> float:
    """Return the share of the cycles of all layers that are attributed to the right cause."""
    found = list(layers)
    return sum(layer.right for layer in found) / sum(layer.cycles for layer in found)


def judge(job: Job, cores: int = 1) -> list[Judged]:
    """Run and estimate a network whose large layers are divided among cores; return the layers of the NPU.

    Raises
    ------
    RunError, EngineError, ModelError
    """
    with using_options(shapes=job.shapes, outputs=job.outputs), using_cores(cores):
        data = job.path.read_bytes()
        model = open_model(data)
        run = run_model(job.path, [inputs_of(job, model.inputs)], check=False, engine=ENGINE, cores=cores)
        expected = [layer for layer in estimate_model(model).layers if layer.target == "npu" and layer.tasks]
    rows = [row for row in run.layers if row.target == "npu" and row.tasks]
    return [
        Judged(row.name, row.op, row.spent, layer.spent, (row.bound, layer.bound))
        for row, layer in zip(rows, expected, strict=True)
        if row.spent
    ]


def by_cause(layers: Sequence[Judged]) -> list[tuple[str, int, int, int]]:
    """Return (word, measured, estimated, right cycles) of each cause that occurs."""
    found = []
    for cause in CAUSES:
        pairs = [(layer.measured[cause], layer.estimated[cause]) for layer in layers]
        sums = [sum(column) for column in zip(*pairs, strict=True)]
        if any(sums):
            found.append((cause.label, *sums, sum(min(pair) for pair in pairs)))
    return found


def page(found: dict[str, list[Judged]]) -> str:
    """Return docs/results/attribution.md."""
    every = [layer for layers in found.values() for layer in layers]
    same = sum(layer.bounds[0] == layer.bounds[1] for layer in every)
    networks = [
        (
            BY_NAME[name].title,
            len(layers),
            f"{sum(layer.cycles for layer in layers):,}",
            f"{score(layers):.1%}",
            f"{sum(layer.bounds[0] == layer.bounds[1] for layer in layers)} of {len(layers)}",
        )
        for name, layers in found.items()
    ]
    cycles = sum(layer.cycles for layer in every)
    causes = [
        (word, f"{a:,}", f"{a / cycles:.1%}", f"{b:,}", f"{right / a:.1%}" if a else "-")
        for word, a, b, right in by_cause(every)
    ]
    worst = sorted(
        ((layer.cycles - layer.right, name, layer) for name, layers in found.items() for layer in layers),
        key=lambda item: -item[0],
    )[:10]
    lines = [
        "# Results: causes of cycles, estimated",
        "",
        "This page says how often `rkcosim estimate` names the right cause of a cycle. [Causes of cycles]"
        "(../counters.md#causes-of-cycles) defines them; the RTL's counters are the judge.",
        "",
        f"`python -m benchmarks.attribution --page docs/results/attribution.md`: {len(found)} networks of "
        f"[the zoo](zoo.md) with random weights on one core, {len(every)} layers, {cycles:,} cycles. "
        f"{score(every):.1%} of the cycles are attributed to the right cause (target: {TARGET:.0%}); {same} "
        "layers have the same bound.",
        "",
        "The score of a layer is the number of cycles that both attribute to the same cause, divided by the "
        "measured cycles.",
        "",
        *table(("network", "layers", "cycles", "right cause", "same bound"), networks),
        "",
        *table(("cause", "measured cycles", "share", "estimated", "of them right"), causes),
        "",
        "The layers with the most cycles of a wrong cause:",
        "",
        *table(
            ("network", "layer", "cycles", "right cause", "bound, measured", "bound, estimated"),
            [
                (name, f"{layer.name} ({layer.op})", f"{layer.cycles:,}", f"{layer.share:.1%}", *layer.bounds)
                for _, name, layer in worst
            ],
        ),
    ]
    return "\n".join(lines) + "\n"


def _details(layers: Iterable[Judged]) -> str:
    lines = []
    for layer in sorted(layers, key=lambda one: one.right - one.cycles)[:12]:
        lines.append(f"  {layer.name} ({layer.op}): {layer.share:.1%} of {layer.cycles:,}")
        for said, spent in (("measured", layer.measured), ("estimated", layer.estimated)):
            lines.append(f"    {said:9} " + ", ".join(f"{c} {n:,}" for c, n in spent.items() if n))
    return "\n".join(lines)


def main(words: list[str] | None = None) -> int:
    """Run the command; return 0 if the score of all networks reaches the target, otherwise 1."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.attribution", description=(__doc__ or "").split("\n")[0]
    )
    made.add_argument("names", nargs="*", metavar="NAME", help="networks of the zoo; default: ten of them")
    made.add_argument("--sources", type=Path, action="append", default=[], metavar="DIR", help="see the zoo")
    made.add_argument("--cores", type=int, choices=(1, 2, 3), default=1, help="cores that share large layers")
    made.add_argument("--details", action="store_true", help="show the layers with most wrong cycles")
    made.add_argument("--page", type=Path, help="page to write: docs/results/attribution.md")
    given = made.parse_args(words)
    if given.page and given.cores > 1:
        made.error("the page is about one core: leave out --cores or --page")
    names = given.names or NETWORKS
    if unknown := sorted(set(names) - set(BY_NAME)):
        made.error(f"no network {', '.join(unknown)}; python -m benchmarks.zoo --list lists them")
    found: dict[str, list[Judged]] = {}
    try:
        for name in names:
            layers = found[name] = judge(job_of(BY_NAME[name], folders_of(given.sources)), given.cores)
            cycles = sum(layer.cycles for layer in layers)
            print(f"{name:24} {len(layers):4} layers {cycles:12,} cycles {score(layers):7.2%}", flush=True)
            if given.details:
                print(_details(layers), flush=True)
    except (SourceError, NetworkError) as error:
        print(f"benchmarks.attribution: {error}", file=sys.stderr)
        return BAD_INPUT
    every = [layer for layers in found.values() for layer in layers]
    print(f"{'all':24} {len(every):4} layers {sum(layer.cycles for layer in every):12,} cycles", end=" ")
    print(f"{score(every):7.2%} (target {TARGET:.0%})")
    if given.page:
        given.page.write_text(page(found), encoding="utf-8")
    return 0 if score(every) >= TARGET else 1


if __name__ == "__main__":
    raise SystemExit(main())
