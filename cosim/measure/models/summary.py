"""The summary that commands print of a model's run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rkcosim.base.tables import shortened, table

IN_FP16 = "the NPU computes the float32 operators of this model in fp16 (--float fp16, the default)"
"""Line of a summary for a model of floats."""


def fp16_lines(in_fp16: bool, layers: Sequence[str]) -> Iterator[str]:
    """Yield the lines about floats of a summary.

    Parameters
    ----------
    in_fp16
        Whether the NPU computes in fp16.
    layers
        The layers in fp16, if others are in int8.
    """
    if in_fp16:
        yield IN_FP16
    if layers:
        yield f"in fp16, between layers in int8: {', '.join(layers)}"


KEPT = (
    "no tensors shared memory, because of --check; where tensors share memory (without --check) the cycles "
    "differ a little"
)
"""Line of the summary for cycles that were measured with another memory layout than the default."""

SHOWN = 5
"""Nodes without a judgement that are named one by one."""


def print_summary(console: Any, result: Any) -> None:
    """Print the table of layers and the summary of a run (`rkcosim.measure.models.run.ModelRun`)."""
    from rkcosim.engines.settings import timing_line

    heads = ("layer", "op", "on", "tasks|", "cycles|,", "formula|,", "MACs|,")
    bounded = any(row.bound for row in result.layers if row.target != "host")
    shares = ("MAC use|.1%", "array busy|.1%", "KB|.1f", *(("bound by|",) if bounded else ()))
    rows = []
    for row in result.layers:
        figures = (row.tasks, row.cycles, row.formula_cycles, row.macs, row.utilisation, row.mac_busy)
        kilobytes = (row.bytes_read + row.bytes_written) / 1024
        name = shortened(row.name, console)
        rows.append((name, row.op, row.target, *figures, kilobytes, *((row.bound,) if bounded else ())))
    of = f"one sample of {result.samples}" if result.samples > 1 else "one inference"
    console.print(table(f"{result.model}: layers of {of}", heads + shares, rows))
    for output in result.outputs:
        print_output(console, result, output)
    if result.measured:
        per = result.cycles_each
        console.print(
            f"{result.inferences} inferences, {result.cycles:,} cycles ({per:,} each, {per / 1e6:.3f} ms "
            f"at 1 GHz); {result.engine}, {result.cell} cell: {result.cycles_per_second:,.0f} cycles/s"
        )
    else:
        console.print(f"{result.inferences} inferences, - cycles ({result.engine} does not count them)")
    if timing := timing_line(result.dram):
        console.print(timing)
    if result.measured:
        from rkcosim.measure.perf.boards.expected import published_line, time_line

        console.print(time_line(per, result.submits, hosted=len(result.host.operators)))
        if result.on_one_core:
            console.print(result.on_one_core)
        console.print(published_line())
        if result.tensors_kept:
            console.print(KEPT)
    if result.memory:
        memory = result.memory
        console.print(
            f"memory: weights {memory['weights']:,}, commands {memory['commands']:,}, activations "
            f"{memory['activations']:,} bytes (if tensors share memory "
            f"{memory['activations_shared']:,}, if not "
            f"{memory['activations_separate']:,})"
        )
    for line in result.host.lines():
        console.print(line, markup=False, highlight=False)
    for line in fp16_lines(result.floats_in_fp16, result.fp16_layers):
        console.print(line, markup=False, highlight=False)
    if result.top1 is not None:
        beside = (
            f", {result.reference} {result.reference_top1:.1%}" if result.reference_top1 is not None else ""
        )
        console.print(f"top-1: {result.top1:.1%}{beside}")
    if result.reference_agrees is not None:
        agrees = f"{result.reference_agrees} of {result.inferences}"
        console.print(f"same label as {result.reference}: {agrees}")
    match, share = result.verdict["match"], result.host.share()
    if match is None:
        console.print("not checked (--check compares with the golden models)")
    elif match and result.host.alone:
        console.print("NOTHING COMPARED: no layer runs on the NPU")
    elif match:
        gone = result.verdict.get("overwritten", 0)
        if "nodes" in result.verdict:
            console.print(nodes_line(result.verdict))
        what = f"every tensor except {gone} overwritten ones" if gone else "every tensor"
        console.print(f"MATCH: {' = '.join(result.verdict['levels'])}, {what}, bit for bit")
    else:
        number, where = result.verdict["inference"], result.verdict["first_difference"]
        console.print(f"MISMATCH at inference {number}: {where}")
    console.print(share)


def print_output(console: Any, result: Any, output: Mapping[str, Any]) -> None:
    """Print an output: its class if its elements are scores, and how far it is from the reference's."""
    line, beside = f"output {output['name']} {output['shape']}", []
    if output["top1"] is not None:
        line += f", top-1 {output['top1']}"
        beside += [f"top-1 {output['reference_top1']}"] if "reference_top1" in output else []
    if "reference_worst" in output:
        worst, mean = output["reference_worst"], output["reference_mean"]
        if output["reference_unit"] == "elements":
            beside.append(f"{mean:.3%} of the whole numbers differ" if mean else "equal whole numbers")
        elif output["reference_unit"] == "steps":
            beside.append(f"apart by at most {worst:.3g} steps, mean {mean:.3g}")
        else:
            beside.append(f"apart by at most {worst:.3%} of the largest, mean {mean:.3%}")
        beside += [f"cosine {output['reference_cosine']:.6f}"] if "reference_cosine" in output else []
    if beside:
        file = "" if result.reference_source == result.model else f" on {result.reference_source}"
        line += f"; {result.reference}{file}: {', '.join(beside)}"
    console.print(line)


def nodes_line(verdict: Mapping[str, Any]) -> str:
    """Return a line about the comparison of the nodes of a .rknn file with their mathematical values."""
    missing = verdict["nodes_not_judged"]
    text = (
        f"{verdict['nodes_right']} of {verdict['nodes']} nodes within the bound of their mathematical value"
    )
    if verdict["cancelled_elements"]:
        count = verdict["cancelled_elements"]
        text += f" ({count:,} elements beyond 2 ulp where large terms cancel, within the rounding of sums)"
    for item in missing[:SHOWN]:
        text += f"\nnot compared: {item['node']}: {item['why']}"
    text += f"\nnot compared: {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    return "\n".join([text, *unordered_lines(verdict["bytes_not_compared"])])


def unordered_lines(found: Mapping[str, Any] | None) -> list[str]:
    """Return a line about bytes whose value depends on the order of a task's reads and writes."""
    if not found:
        return []
    tasks = "; ".join(found["tasks"])
    return [
        f"not compared: {found['depend']:,} bytes of padding, {found['differ']:,} of them not the golden "
        f"model's, because a task reads memory that it writes itself, before or after its writes: {tasks}"
    ]
