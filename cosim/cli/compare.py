"""`rkcosim compare`: compare every layer with another runtime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn, cast, get_args

from rkcosim.cli import results
from rkcosim.cli.app import command, needs, option
from rkcosim.cli.exits import MISMATCH, NOTHING, OK
from rkcosim.cli.options import DramOptions, InputOptions, Share

SHOWN = 20
"""Reasons of a difference that are printed."""


def _references() -> tuple[str, ...]:
    from rkcosim.measure.models.references import ReferenceName

    return get_args(ReferenceName)


@dataclass(frozen=True, kw_only=True)
class CompareOptions(InputOptions, DramOptions):
    """Options of `rkcosim compare`."""

    reference: str | None = option(
        "Runtime to compare with: litert, onnxruntime or naive; default: the one for the model's format.",
        metavar="NAME",
        words=_references,
    )
    plan: bool = option(
        "Compare the plan of a .rknn file with our compiler's of the same network, node by node.",
        default=False,
    )
    cores: Share = 1


@command(
    "rkcosim compare examples/digits/digits_int8.onnx --input examples/digits/held_back.npz --limit 5",
    "rkcosim compare model.tflite --input cat.png --reference litert",
    "rkcosim compare model.rknn --plan --cores 1",
)
def compare_command(asked: CompareOptions) -> None:
    """Compare every layer with another runtime.

    Each layer gets that runtime's inputs, and the golden model of networks computes it; no engine runs. The
    exit code is 1 if a layer exceeds its error bound or a class differs. Classes are those of outputs of a
    Softmax, or of the first output if the inputs have labels. With --plan both plans run on an engine:
    --engine, --exact, --fast, --dram and --cores are for it.
    """
    with asked.reading():
        _compare(asked)


def _compare(asked: CompareOptions) -> NoReturn:
    if asked.plan:
        _plans(asked)
    from rkcosim.engines.protocol import capabilities

    # A golden model computes the layers anyway.
    simulates = asked.engine is not None and capabilities(asked.engine).has_cycles
    needs("--plan", engine=simulates, exact=asked.exact, dram=asked.dram, cores=asked.cores > 1)
    from rkcosim.measure.models.compare import compare
    from rkcosim.measure.models.references import ReferenceName

    if asked.reference is not None and asked.reference not in _references():
        raise ValueError(
            f"--reference {asked.reference}: unknown runtime; use one of {', '.join(_references())}"
        )
    batch = asked.batch()
    reference = cast("ReferenceName | None", asked.reference)
    found = compare(
        asked.model,
        batch.items if batch else None,
        reference=reference,
        seed=asked.seed,
        labelled=batch is not None and batch.labels is not None,
    )
    console = results.console()
    print_comparison(console, found)
    asked.write(found.as_json(), say=True)
    if found.match and found.host.alone:
        raise SystemExit(NOTHING)
    raise SystemExit(OK if found.match else MISMATCH)


def _plans(asked: CompareOptions) -> NoReturn:
    """Print both plans of a file's network, and end."""
    from rkcosim.measure.models.rknn_plans import compare_plans

    if asked.input or asked.reference is not None:
        raise ValueError("--plan compares plans on random inputs; leave out --input and --reference")
    found = compare_plans(
        asked.model,
        engine=asked.engine,
        exact=asked.exact,
        cores=asked.cores,
        seed=asked.seed,
        dram=asked.memory,
    )
    print_plans(results.console(), found)
    asked.write(found.as_json(), say=True)
    raise SystemExit(OK)


def print_plans(console: Any, found: Any) -> None:
    """Print a table of nodes with the file's figures and ours, and their sums."""
    from rkcosim.measure.models.rknn_plans import tiles_text

    rows = []
    for node in found.nodes:
        cells: list[Any] = [results.shortened(node.name, console, 32), node.kind]
        for share in (node.theirs, node.ours):
            banks = "-" if share.banks is None else f"{share.banks[0]}/{share.banks[1]}"
            kilobytes = (share.bytes_read + share.bytes_written) / 1024
            cells += [share.tasks, tiles_text(share.tiles), banks, kilobytes, share.cycles]
        rows.append(cells)
    columns = ("tasks|", "rows x kernels", "banks", "KB|,.0f", "cycles|,")
    heads = ["node", "type", *(f"{who} {column}" for who in ("file", "our") for column in columns)]
    title = f"{found.model} on {found.cores} cores: the file's plan and our compiler's"
    console.print(results.table(title, heads, rows))
    theirs, ours = found.theirs, found.ours
    if theirs is not None and ours is not None:
        console.print(f"{theirs:,} cycles by the file's plan, {ours:,} by ours ({ours / theirs:.3f} times)")
    shared = found.activations
    console.print(f"activations: {shared[0]:,} bytes by the file's plan, {shared[1]:,} by ours")


def print_comparison(console: Any, found: Any) -> None:
    """Print the table of layers and the outputs."""
    if found.layers:
        _print_layers(console, found)
    for name in found.skipped:
        why = "the reference does not keep its result, or quantises its inputs"
        console.print(f"not compared: {name} ({why})")
    for output in found.outputs:
        tie = " (tied with others in the reference)" if output.tie else ""
        text = output.agreement.text()
        if output.unit is not None:
            text += f", {output.differing} elements differ"
        elif output.bound is not None:
            text += f" (bound {output.bound:.1%})"
        best = f"top-1 {output.top1}, reference {output.reference_top1}{tie}; " if output.classes else ""
        console.print(f"inference {output.inference}, output {output.name}: {best}whole model, {text}")
    reasons = list(found.reasons())
    for reason in reasons[:SHOWN]:
        console.print(reason)
    if len(reasons) > SHOWN:
        console.print(f"{len(reasons) - SHOWN} more (--json has all)")
    if not found.layers:
        said = "every output is within its bound" if found.match else "AN OUTPUT EXCEEDS ITS BOUND"
        if not found.match and all(output.within for output in found.outputs):
            said = "A CLASS DIFFERS"
        if found.match and found.host.alone:
            said = "NOTHING COMPARED: no layer runs on the NPU"
        console.print(f"{found.model} compared with {found.reference}: {said}, {found.inferences} inferences")
        console.print(found.host.share())
        return
    total, differing = sum(r.elements for r in found.layers), sum(r.differing for r in found.layers)
    wrong = [
        *(["A LAYER EXCEEDS ITS BOUND"] if not all(layer.good for layer in found.layers) else []),
        *(["AN OUTPUT EXCEEDS ITS BOUND"] if not all(output.within for output in found.outputs) else []),
        *(["A CLASS DIFFERS"] if not all(output.same_class for output in found.outputs) else []),
    ]
    verdict = "every layer is within its bound"
    if any(output.classes for output in found.outputs):
        verdict += ", and the classes are the same"
    verdict = ", ".join(wrong) or verdict
    counts = f"{differing:,} of {total:,} elements differ ({differing / total:.4%})"
    console.print(f"{counts}; {verdict}")
    console.print(found.host.share())


def _print_layers(console: Any, found: Any) -> None:
    """Print the table of layers."""
    title = (
        f"{found.model} compared with {found.reference}: each layer gets the reference's inputs, "
        f"{found.inferences} inferences"
    )
    heads = ("layer", "op", "elements|,", "differ|,", "share|.3%", "worst|", "bound|", "in")
    rows = []
    for row in found.layers:
        shown = sorted(((k, v) for k, v in row.histogram.items() if k), key=lambda pair: abs(pair[0]))[:6]
        histogram = ", ".join(f"{k:+}: {v:,}" for k, v in sorted(shown))
        worst = f"{row.worst}" if row.good else f"{row.worst} !"
        counts = (row.elements, row.differing, row.differing / row.elements)
        figures = (*counts, worst, row.bound, row.unit, histogram)
        rows.append((results.shortened(row.name, console, 40), row.op, *figures))
    console.print(results.table(title, (*heads, "difference: elements|"), rows))
