"""Performance of the last run as text, in the form of the vendor's table (vendor guide 8.2).

The cycles are measured by the device. If it measures none (the golden model), the larger one of
the two formula figures is used instead.
"""

from __future__ import annotations

from typing import Any

from rkcosim.compiler.steps import layer_names
from rkcosim.rknn_api.state import CLOCK_MHZ, Context

DDR_BYTES_PER_CYCLE = 23.65
"""The vendor's figure of the DRAM bandwidth at the nominal clock [HW 12.6]."""

MACS_PER_CYCLE = 1024
"""int8 multiply-accumulates of a core per cycle [HW 6.1]."""

COLUMNS = (
    ("ID", 0),
    ("OpType", 5),
    ("DataType", 24),
    ("Target", 33),
    ("InputShape", 40),
    ("OutputShape", 81),
    ("Cycles(DDR/NPU/Total)", 104),
    ("Time(us)", 129),
    ("MacUsage(%)", 142),
    ("WorkLoad(0/1/2)", 163),
    ("RW(KB)", 184),
    ("FullName", 197),
)
RANKING = (
    ("OpType", 0),
    ("CallNumber", 21),
    ("CPUTime(us)", 33),
    ("GPUTime(us)", 46),
    ("NPUTime(us)", 59),
    ("TotalTime(us)", 72),
    ("TimeRatio(%)", 87),
)
UNTIMED = "-"
"""Replaces times and cycles that the device does not measure (the golden engine)."""
WIDTH = 240
MAX_SHAPES = 38


def detail_text(state: Context) -> str:
    """Text of RKNN_QUERY_PERF_DETAIL for the last run; empty before it."""
    if state.report is None:
        return ""
    rows = _rows(state)
    rule = "-" * WIDTH
    lines = [rule, "Network Layer Information Table".center(WIDTH).rstrip(), rule]
    lines += [_line(COLUMNS, [name for name, _ in COLUMNS]), rule]
    lines += [_line(COLUMNS, row["cells"]) for row in rows]
    timed = all(layer.cycles is not None for layer in state.report.layers if layer.target == "npu")
    total = sum(row["us"] for row in rows)
    moved = sum(row["kb"] for row in rows)
    lines += [
        rule,
        f"Total Operator Elapsed Per Frame Time(us): {total if timed else UNTIMED}",
        f"Total Memory Read/Write Per Frame Size(KB): {moved:.2f}",
        rule,
        rule,
        "Operator Time Consuming Ranking Table".center(WIDTH).rstrip(),
        rule,
        _line(RANKING, [name for name, _ in RANKING]),
        rule,
        *_ranking(rows, total, timed),
        rule,
    ]
    return "\n".join(lines) + "\n"


def _rows(state: Context) -> list[dict[str, Any]]:
    report, model = state.report, state.model
    shares = _shares(state)
    rows: list[dict[str, Any]] = []
    for info in model.inputs:
        cells = ["InputOperator", _type(info.dtype), "CPU", "\\", _shapes(info.shape)]
        rows.append(_row(len(rows), cells, f"InputOperator:{info.name}"))
    every = getattr(getattr(model, "plan", None), "steps", [])
    steps = dict(zip(layer_names(every), every, strict=True))
    for layer in report.layers:
        ddr = round((layer.bytes_read + layer.bytes_written) / DDR_BYTES_PER_CYCLE)
        cycles = layer.cycles if layer.cycles is not None else max(ddr, layer.formula_npu)
        npu = layer.target == "npu"
        shapes = _shapes(layer.input_shape, *_operands(steps.get(layer.name)))
        half = getattr(layer, "itemsize", 1) == 2
        cells = [
            layer.op,
            ("FLOAT16" if half else "INT8") if npu else "FLOAT32",
            layer.target.replace("host", "cpu").upper(),
        ]
        cells += [shapes, _shapes(layer.output_shape)]
        row = _row(len(rows), cells, f"{layer.op}:{layer.name}")
        row["us"] = -(-cycles // CLOCK_MHZ)
        row["kb"] = (layer.bytes_read + layer.bytes_written) / 1024
        if npu:
            rate = MACS_PER_CYCLE // (2 if half else 1)
            usage = 100 * layer.macs / (cycles * rate) if cycles else 0.0
            parts = shares.get(layer.name, [1.0, 0.0, 0.0])
            row["cells"][6:11] = [
                f"{ddr}/{layer.formula_npu}/{UNTIMED if layer.cycles is None else cycles}",
                UNTIMED if layer.cycles is None else str(row["us"]),
                "/".join(f"{usage * part:.2f}" for part in parts)
                if layer.macs and layer.cycles is not None
                else "\\",
                "/".join(f"{100 * part:.1f}%" for part in parts),
                f"{row['kb']:.2f}",
            ]
        rows.append(row)
    for info in model.outputs:
        cells = ["OutputOperator", _type(info.dtype), "CPU", _shapes(info.shape), "\\"]
        rows.append(_row(len(rows), cells, f"OutputOperator:{info.name}"))
    return rows


def _row(number: int, cells: list[str], name: str) -> dict[str, Any]:
    filled = [str(number), *cells, "0/0/0", "0", "\\", "0.0%/0.0%/0.0%", "0.00", name]
    return {"op": cells[0], "target": cells[2], "us": 0, "kb": 0.0, "cells": filled}


def _type(dtype: Any) -> str:
    return {"int8": "INT8", "uint8": "UINT8", "float16": "FLOAT16"}.get(
        getattr(dtype, "name", str(dtype)), "FLOAT32"
    )


def _operands(step: Any) -> list[tuple[int, ...]]:
    """Shapes of a layer's weights and bias."""
    weights = getattr(step, "weights", None)
    return [] if weights is None else [tuple(weights.shape), (weights.shape[0],)]


def _shapes(*shapes: tuple[int, ...]) -> str:
    parts = ["(" + ",".join(str(n) for n in shape) + ")" for shape in shapes]
    text = parts[0]
    for part in parts[1:]:
        if len(text) + len(part) + 1 > MAX_SHAPES:
            return text + ",..."
        text += "," + part
    return text


def _shares(state: Context) -> dict[str, list[float]]:
    """By layer, the share of each core in the work."""
    plan = getattr(state.model, "plan", None)
    names = layer_names(getattr(plan, "steps", []))
    found: dict[str, list[float]] = {}
    for task in getattr(plan, "tasks", []):
        name = names[task.layer]
        core = getattr(task, "core", 0) or state.loaded.core
        found.setdefault(name, [0.0, 0.0, 0.0])[core] += task.macs or 1
    return {name: [part / sum(parts) for part in parts] for name, parts in found.items()}


def _line(columns: tuple[tuple[str, int], ...], cells: list[str]) -> str:
    """Cells at their column offsets, or after the previous cell and a space if that is too long."""
    text = ""
    for (_, start), cell in zip(columns, cells, strict=True):
        text = text.ljust(start) if len(text) < start or not text else text + " "
        text += cell
    return text


def _ranking(rows: list[dict[str, Any]], total: int, timed: bool) -> list[str]:
    """Times by operator type, longest first, and their sum; without times if none were measured."""
    groups: dict[str, dict[str, int]] = {}
    for row in rows:
        group = groups.setdefault(row["op"], {"calls": 0, "CPU": 0, "NPU": 0})
        group["calls"] += 1
        group[row["target"]] += row["us"]
    lines = []
    for name, group in sorted(groups.items(), key=lambda item: -(item[1]["CPU"] + item[1]["NPU"])):
        time = group["CPU"] + group["NPU"]
        share = f"{100 * time / total:.2f}%" if total else "0.00%"
        times = [str(group["CPU"]), "0", str(group["NPU"]), str(time), share]
        cells = [name, str(group["calls"]), *(times if timed else [UNTIMED] * len(times))]
        lines.append(_line(RANKING, cells))
    cpu = sum(group["CPU"] for group in groups.values())
    npu = sum(group["NPU"] for group in groups.values())
    lines.append("-" * WIDTH)
    sums = [str(cpu), "0", str(npu), str(cpu + npu)]
    lines.append(_line(RANKING[:1] + RANKING[2:6], ["Total", *(sums if timed else [UNTIMED] * len(sums))]))
    return lines
