"""`rkcosim compile`: the plan of a model, and its container."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cosim import progress
from cosim.cli.exits import BAD_INPUT, fail, reported, write_bytes, write_json

SCHEMA_VERSION = 1


def compile_command(
    model: Path, output: Path | None, explain: bool, keep: bool, cores: int, json: Path | None
) -> None:
    """Compile, print the summary (and the plan), write the container."""
    if not model.is_file():
        fail(f"{model}: no such file", BAD_INPUT)
    with reported():
        from sw.compiler import compile_model

        with progress.step(f"compiling {model.name}"):
            compiled = compile_model(model.read_bytes(), reuse=not keep, cores=cores)
        summary = summarise(compiled)
        print_summary(model.name, summary)
        if explain:
            print(compiled.plan)
        if output:
            write_bytes(output, compiled.save())
            print(f"container: {output}, {output.stat().st_size:,} bytes")
        if json:
            write_json(json, {"model": model.name, "schema_version": SCHEMA_VERSION, **summary})
            print(f"JSON: {json}")


def summarise(compiled: Any) -> dict[str, Any]:
    """Figures of a compiled model."""
    from sw.compiler.steps import HostStep

    plan = compiled.plan
    hosted = [step for step in plan.steps if isinstance(step, HostStep)]
    every = sum(step.output.elements for step in plan.steps)
    return {
        "layers": len(plan.steps),
        "tasks": len(plan.tasks),
        "jobs": sum(segment.host is None for segment in plan.segments()),
        "cores": plan.cores,
        "weights_bytes": len(plan.weights),
        "regcmd_bytes": plan.regcmd_bytes(),
        "activation_bytes": plan.activation_bytes,
        "activation_bytes_shared": plan.shared_bytes,
        "activation_bytes_separate": plan.separate_bytes,
        "macs": sum(task.macs for task in plan.tasks),
        "formula_npu": sum(task.formula_npu for task in plan.tasks),
        "host_layers": [{"name": step.name, "op": step.kind} for step in hosted],
        "host_share": sum(step.output.elements for step in hosted) / max(every, 1),
    }


def print_summary(name: str, summary: dict[str, Any]) -> None:
    """A few lines for people."""
    print(
        f"{name}: {summary['layers']} layers, {summary['tasks']} tasks in {summary['jobs']} jobs on "
        f"{summary['cores']} cores, {summary['macs']:,} MACs, {summary['formula_npu']:,} cycles by formula"
    )
    shared, separate = summary["activation_bytes_shared"], summary["activation_bytes_separate"]
    print(
        f"memory: weights {summary['weights_bytes']:,}, commands {summary['regcmd_bytes']:,}, activations "
        f"{summary['activation_bytes']:,} bytes (sharing {shared:,}, not sharing {separate:,}: "
        f"{shared / max(separate, 1):.0%})"
    )
    for item in summary["host_layers"]:
        print(f"on the host: {item['op']} '{item['name']}'")
    print(f"share of the host: {summary['host_share']:.2%} of all elements computed")
