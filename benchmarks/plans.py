"""Why times of whole networks differ from boards: this compiler's plan and RKNN's, layer by layer.

    python -m benchmarks.plans [ROW...] [--layers] [--page FILE]

Every published whole network (`rkcosim validate`) is estimated three times: divided as this compiler divides
it, divided as RKNN divides it with both run as the RTL runs them, and RKNN's with the order in which boards
load (`rkcosim.measure.perf.estimator.features.LoadedFirst`, cores in lock step).  The differences are times
of the division alone, and of the order alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rkcosim.base import BAD_INPUT
from rkcosim.compiler.rknn_tiling import rknn_plans
from rkcosim.measure.perf.attribution import CAUSES
from rkcosim.measure.perf.boards.networks import NetworkError, network_file
from rkcosim.measure.perf.boards.runs import NETWORKS
from rkcosim.measure.perf.boards.table import BoardRow, rows
from rkcosim.measure.perf.estimator.estimate import Estimate, LayerEstimate, estimate_model
from rkcosim.measure.perf.page import table
from rkcosim.rknn_file.opening import open_model
from rkcosim.spec.submit import SUBMIT_US
from rkcosim.waves.whole_file import whole_file

SHOWN = 4
"""Layers of a network that are shown in each direction."""


@dataclass(frozen=True)
class LayerPlans:
    """A layer of the NPU with both plans.

    Members
    -------
    name, kind : of the layer; `kind` is what decides how it is divided.
    ours, theirs : this compiler's and RKNN's division, as the RTL runs them.
    ordered : cycles of RKNN's division in the order of boards.
    """

    name: str
    kind: str
    ours: LayerEstimate
    theirs: LayerEstimate
    ordered: int

    @property
    def gain(self) -> int:
        """Cycles that RKNN's division saves on the RTL; negative if it takes more."""
        return (self.ours.cycles or 0) - (self.theirs.cycles or 0)

    @property
    def why(self) -> str:
        """The cause of which the two divisions have the most different numbers of core cycles."""
        cause = max(CAUSES, key=lambda one: abs(self.ours.spent.get(one, 0) - self.theirs.spent.get(one, 0)))
        pair = self.ours.spent.get(cause, 0), self.theirs.spent.get(cause, 0)
        return f"{cause.label} {pair[0]:,} to {pair[1]:,}"


@dataclass(frozen=True)
class NetworkPlans:
    """A published network with both plans.

    Members
    -------
    row : what a board took.
    cycles : of one inference with this compiler's division, with RKNN's, and with RKNN's order as well.
    submits : with this compiler's division and with RKNN's.
    layers : the layers of the NPU.
    """

    row: BoardRow
    cycles: tuple[int, int, int]
    submits: tuple[int, int]
    layers: list[LayerPlans]

    @property
    def gain(self) -> int:
        """Cycles saved if each layer were divided in the way that takes fewer."""
        return sum(max(layer.gain, 0) for layer in self.layers)

    def parts(self) -> dict[str, float]:
        """Microseconds of a board by what explains them; they add up to the board's time."""
        ours, theirs, ordered = (cycles / self.row.clock_mhz for cycles in self.cycles)
        parts = {
            "this compiler's plan": ours + self.submits[0] * SUBMIT_US,
            "division": theirs - ours,
            "order of loading": ordered - theirs,
            "submits": (self.submits[1] - self.submits[0]) * SUBMIT_US,
        }
        return parts | {"not explained": self.row.measured_us - sum(parts.values())}


def measure(row: BoardRow) -> NetworkPlans:
    """Estimate a published network with both plans.

    Raises
    ------
    NetworkError
        If the network cannot be made here.
    """
    data = network_file(NETWORKS[row.id]).read_bytes()
    ours = estimate_model(data, cores=row.cores)
    with rknn_plans():
        model = open_model(data, cores=row.cores)
    theirs, ordered = estimate_model(model), estimate_model(model, as_boards=True)
    return NetworkPlans(
        row,
        (ours.cycles, theirs.cycles, ordered.cycles),
        (len(ours.jobs), model.plan.chains),
        list(_layers(ours, theirs, ordered)),
    )


def _layers(ours: Estimate, theirs: Estimate, ordered: Estimate) -> Iterator[LayerPlans]:
    first = True
    for mine, other, board in zip(ours.layers, theirs.layers, ordered.layers, strict=True):
        if not mine.cycles:
            continue
        kind = mine.op.partition("+")[0]
        if mine.op.endswith("Sigmoid"):
            kind = "convolution with a table"
        elif kind == "Conv":
            kind = "first layer" if first else "convolution"
        elif kind == "DepthwiseConv":
            kind = "depthwise"
        else:
            kind = "other"
        first = False
        yield LayerPlans(mine.name, kind, mine, other, board.cycles or 0)


def page(found: Sequence[NetworkPlans]) -> str:
    """Return docs/results/plans.md."""
    lines = [
        "# Results: two plans of a network",
        "",
        "This page divides the difference between a board's time and this compiler's, for every published "
        "whole network, into parts: the vendor's compiler (RKNN) divides layers into tasks in another way, "
        "its tasks load all rows and weights before they work, and it needs fewer submits. [How far cycles "
        "are from boards](../board_times.md#rknns-division-of-layers) explains both rules. Written by "
        "`python -m benchmarks.plans --page docs/results/plans.md`; all times are estimates.",
        "",
        "## Whole networks",
        "",
        *table(
            ("network", "cores", "board, us", *found[0].parts()),
            [
                (
                    one.row.id,
                    one.row.cores,
                    f"{one.row.measured_us:,.0f}",
                    *(
                        f"{us:,.0f}" if n == 0 else f"{us:+,.0f} ({us / one.row.measured_us:+.1%})"
                        for n, us in enumerate(one.parts().values())
                    ),
                )
                for one in found
            ],
        ),
        "",
        f"The first part includes {SUBMIT_US:g} us for each submit. *Division*: RKNN's tasks instead of this "
        "compiler's, both as the RTL runs them. *Order of loading*: the same tasks, each of which loads "
        "before it works, with cores in lock step. *Not explained* is what is missing to the board's time; "
        "it is negative where the estimate is longer. Per cents are of the board's time.",
        "",
        "## What RKNN's division would save",
        "",
        "If each layer were divided in the way of the two that takes fewer cycles on the RTL:",
        "",
        *table(
            (
                "network",
                "cores",
                "cycles, this compiler",
                "RKNN's division",
                "layers RKNN's is shorter in",
                "saved",
            ),
            [
                (
                    one.row.id,
                    one.row.cores,
                    f"{one.cycles[0]:,}",
                    f"{one.cycles[1]:,}",
                    f"{sum(layer.gain > 0 for layer in one.layers)} of {len(one.layers)}",
                    f"{one.gain:,} ({one.gain / one.cycles[0]:.2%})",
                )
                for one in found
            ],
        ),
        "",
        "## Kinds of layers",
        "",
        *table(
            ("network", "kind", "layers", "tasks", "KB moved", "cycles", "division", "order of loading"),
            [row for one in found for row in _kinds(one)],
        ),
        "",
        "*Tasks* and *KB moved*: this compiler's, then RKNN's. On several cores the cycles of a layer are "
        "those of the core that takes longest.",
        "",
        "## The layers that differ most",
        "",
        "Cycles on the RTL, this compiler's division and RKNN's; the last column is the cause of which the "
        "cores spend the most different numbers of cycles ([the words](../counters.md#causes-of-cycles)).",
        "",
        *table(
            ("network", "layer", "tasks", "KB moved", "cycles", "difference", "cause"),
            [row for one in found for row in _extremes(one)],
        ),
    ]
    return "\n".join(lines) + "\n"


def _moved(layer: LayerEstimate) -> int:
    return layer.bytes_read + layer.bytes_written


def _kinds(one: NetworkPlans) -> Iterator[tuple[object, ...]]:
    for kind in dict.fromkeys(layer.kind for layer in one.layers):
        some = [layer for layer in one.layers if layer.kind == kind]
        ours = sum(layer.ours.cycles or 0 for layer in some)
        theirs = sum(layer.theirs.cycles or 0 for layer in some)
        yield (
            one.row.id,
            kind,
            len(some),
            f"{sum(layer.ours.tasks for layer in some)}, {sum(layer.theirs.tasks for layer in some)}",
            f"{sum(_moved(layer.ours) for layer in some) / 1024:,.0f}, "
            f"{sum(_moved(layer.theirs) for layer in some) / 1024:,.0f}",
            f"{ours:,}",
            f"{theirs - ours:+,}",
            f"{sum(layer.ordered for layer in some) - theirs:+,}",
        )


def _extremes(one: NetworkPlans) -> Iterator[tuple[object, ...]]:
    ranked = sorted((layer for layer in one.layers if layer.gain), key=lambda layer: -layer.gain)
    shorter = [layer for layer in ranked if layer.gain > 0][:SHOWN]
    longer = [layer for layer in ranked if layer.gain < 0][-SHOWN:]
    for layer in [*shorter, *longer]:
        yield (
            one.row.id,
            f"{layer.name} ({layer.ours.op})",
            f"{layer.ours.tasks}, {layer.theirs.tasks}",
            f"{_moved(layer.ours) / 1024:,.0f}, {_moved(layer.theirs) / 1024:,.0f}",
            f"{layer.ours.cycles:,}, {layer.theirs.cycles:,}",
            f"{-layer.gain:+,}",
            layer.why,
        )


def _all_layers(one: NetworkPlans) -> Iterable[str]:
    heads = ("layer", "kind", "tasks", "KB moved", "cycles", "division", "order of loading")
    return table(
        heads,
        [
            (
                layer.name,
                layer.kind,
                f"{layer.ours.tasks}, {layer.theirs.tasks}",
                f"{_moved(layer.ours) / 1024:,.1f}, {_moved(layer.theirs) / 1024:,.1f}",
                f"{layer.ours.cycles:,}",
                f"{-layer.gain:+,}",
                f"{layer.ordered - (layer.theirs.cycles or 0):+,}",
            )
            for layer in one.layers
        ],
    )


def main(words: list[str] | None = None) -> int:
    """Run the command; return 0."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.plans", description=(__doc__ or "").split("\n")[0]
    )
    made.add_argument("names", nargs="*", metavar="ROW", help=f"of {', '.join(NETWORKS)}; default: all")
    made.add_argument("--layers", action="store_true", help="print every layer")
    made.add_argument("--page", type=Path, help="page to write: docs/results/plans.md")
    given = made.parse_args(words)
    if unknown := sorted(set(given.names) - set(NETWORKS)):
        made.error(f"no published network {', '.join(unknown)}; there are {', '.join(NETWORKS)}")
    if given.page and given.names:
        made.error("the page is about all networks: leave out the names or --page")
    found = []
    for row in rows():
        if row.id not in (given.names or NETWORKS):
            continue
        try:
            one = measure(row)
        except NetworkError as error:
            print(f"benchmarks.plans: {error}", file=sys.stderr)
            return BAD_INPUT
        found.append(one)
        parts = ", ".join(f"{name} {us:+,.0f}" for name, us in one.parts().items())
        print(f"{row.id}: board {row.measured_us:,.0f} us = {parts}", flush=True)
        if given.layers:
            print("\n".join(_all_layers(one)), flush=True)
    if given.page:
        with whole_file(given.page) as part:
            part.write_text(page(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
