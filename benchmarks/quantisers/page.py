"""docs/results/quantisation.md, written from the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.quantisers.networks import ENTRIES, PICTURES, Entry, origin
from benchmarks.zoo.sources import Made
from rkcosim.base import PACKAGE
from rkcosim.compiler.quantization.scores import CHANCE, standard_errors
from rkcosim.measure.perf.page import table
from rkcosim.waves.whole_file import whole_file

PAGE = PACKAGE / "docs" / "results" / "quantisation.md"

HEAD = f"""# int8 beside onnxruntime's

How far int8 models of this project are from their float originals, beside those of onnxruntime's static
quantisation. `python -m benchmarks.quantisers --sources DIR` measures the networks and writes this page;
`--list` names them and where their files come from, and `benchmarks/quantisers/record.json` keeps the
numbers of each sample. Pictures and files are those of {PICTURES[0]} (commit {PICTURES[1][:12]}).

Both quantisers learn from the same samples and are measured on the same others. *Ours* is
`rkcosim quantize --method auto` ([ranges](../quantize.md#what-is-written)), computed in the NPU's arithmetic
by the graph-level golden model, which equals the RTL bit for bit. *onnxruntime* is `quantize_static` behind
`quant_pre_process`: QDQ form, int8, weights with a scale for each channel, extreme values as ranges;
onnxruntime computes it, with exact integer sums; a model whose optimised form `quantize_static` refuses is
quantised as it is. The reference of both is the float model in onnxruntime.

| column | meaning |
| --- | --- |
| samples | for the calibration, for the measurement |
| ranges | the method that `auto` chose on the samples for the calibration; with minmax both models have the \
same scales |
| same class | share of the samples with the class of the float model, in percent (text recognition: of the \
places of a line) |
| error | norm of the error of the output over the norm of the output, over all samples, in percent |
| ours in onnxruntime | the error of our model if onnxruntime computes it: what is left of the difference \
from *ours* is the rounding of two arithmetics, which has both signs |
| difference | mean over the samples of our error minus onnxruntime's, in percentage points, with the \
standard error of this mean |

A difference is beyond the noise if a difference of 0 would give one as large with a chance below {CHANCE:.0%}
in each direction (Student's t). Networks with random weights end before their Softmax, since random weights
make all probabilities nearly equal.
"""

LARGE = 0.5
"""Error from which on a network is named."""

HEADS = (
    *("network", "weights", "samples", "ranges", "same class: onnxruntime", "ours"),
    *("error: onnxruntime", "ours", "ours in onnxruntime", "difference", "beyond the noise"),
)


def write_page(record: Mapping[str, Any], path: Path = PAGE) -> None:
    """Replace the page atomically."""
    with whole_file(path) as part:
        part.write_text(page(record), encoding="utf-8")


def page(record: Mapping[str, Any]) -> str:
    """Return the page of a record; networks that have no row yet are left out."""
    rows = [(entry, record[entry.name]) for entry in ENTRIES if entry.name in record]
    lines = [HEAD, *_summary(rows), ""]
    lines += table(HEADS, [_cells(entry, row) for entry, row in rows])
    return "\n".join([*lines, "", *_chosen(rows)]).rstrip() + "\n"


def difference(row: Mapping[str, Any]) -> tuple[float, float, int]:
    """Return the mean of our error minus onnxruntime's, its standard error, and the sign beyond the noise."""
    apart = np.array(row["ours"]["relatives"]) - np.array(row["theirs"]["relatives"])
    mean, noise = float(apart.mean()), float(apart.std(ddof=1) / np.sqrt(len(apart)))
    sure = abs(mean) > standard_errors(len(apart)) * noise
    return mean, noise, int(np.sign(mean)) if sure else 0


def _cells(entry: Entry, row: Mapping[str, Any]) -> list[str]:
    mean, noise, sign = difference(row)
    agreement = [
        "" if row[who]["agreement"] is None else f"{100 * row[who]['agreement']:.1f}"
        for who in ("theirs", "ours")
    ]
    errors = [f"{100 * row[who]['relative']:.2f}" for who in ("theirs", "ours", "ours_in_onnxruntime")]
    return [
        entry.title,
        origin(entry),
        f"{row['calibrated']}, {row['measured']}",
        row["method"],
        *agreement,
        *errors,
        f"{100 * mean:+.2f} ± {100 * noise:.2f}",
        {-1: "ours is better", 0: "no", 1: "**ours is worse**"}[sign],
    ]


def _summary(rows: Sequence[tuple[Entry, Mapping[str, Any]]]) -> list[str]:
    if not rows:
        return ["No network was measured yet."]
    signs = [difference(row)[2] for _, row in rows]
    classes = [row for _, row in rows if row["ours"]["agreement"] is not None]
    means = [100 * float(np.mean([row[who]["agreement"] for row in classes])) for who in ("theirs", "ours")]
    real = sum(not isinstance(entry.source, Made) for entry, _ in rows)
    return [
        f"Of {len(rows)} networks, {real} of them with their authors' weights, our error is smaller beyond "
        f"the noise in {signs.count(-1)}, larger in {signs.count(1)}, and no different in {signs.count(0)}. "
        f"Over the {len(classes)} networks with classes, onnxruntime's models keep the class of "
        f"{means[0]:.1f} % of the samples, ours of {means[1]:.1f} %."
    ]


def _chosen(rows: Sequence[tuple[Entry, Mapping[str, Any]]]) -> list[str]:
    """Return the part about errors that are large with both."""

    def large(figure: str) -> list[str]:
        return [entry.title for entry, row in rows if min(row["ours"][figure], row["theirs"][figure]) > LARGE]

    whole = large("relative")
    channels = [name for name in large("channels") if name not in whole]
    if not whole and not channels:
        return []
    lines = ["## Large errors", ""]
    if whole:
        lines += [
            f"int8 with one step for each tensor loses more than {LARGE:.0%} of the output of "
            f"{', '.join(whole)} with both quantisers; `--float-only` leaves the whole model in fp16.",
            "",
        ]
    if channels:
        lines += [
            f"The output of {', '.join(channels)} has a small error as a whole, but its channels have a "
            f"mean relative error of more than {LARGE:.0%} with both quantisers: channels of very different "
            "ranges share one step ([codes in use](../quantize.md#codes-in-use)).",
            "",
        ]
    return lines
