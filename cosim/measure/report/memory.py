"""The memory map: the address of each buffer, and the layers that need its contents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from rkcosim.measure.report.data import ReportedRun
from rkcosim.measure.report.figures import count, legend, shorten, size
from rkcosim.waves.drawing import clip, el, line, path, rect, svg, text, ticks, title

WIDTH = 1000.0
LEFT, RIGHT = 96.0, 12.0
GROUPS = (
    ("activations", ("input", "tensor", "output"), 300.0),
    ("weights and constants", ("weights", "constant"), 150.0),
    ("commands", ("commands",), 60.0),
)
"""Name of a band, kinds of buffers in it, and its height."""

KINDS = {
    "input": "model input",
    "tensor": "tensor between layers",
    "output": "model output",
    "weights": "kernels and tables of a layer",
    "constant": "constant tensor",
    "commands": "register commands of a layer",
}


def chart(run: ReportedRun) -> Markup:
    """Draw address ranges over layers; bytes that are not in use are faint."""
    if not run.buffers or "first" not in run.buffers[0]:
        return Markup("")
    columns = 1 + max(int(b["last"]) for b in run.buffers)
    shapes: list[Markup] = []
    known = list(dict.fromkeys(b["name"] for b in run.buffers))
    names = dict(zip(known, shorten(known), strict=True))
    y = 8.0

    def x(column: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * column / columns

    y = _alive(run, columns, x, y, shapes)
    for name, kinds, height in GROUPS:
        mine = [b for b in run.buffers if b["kind"] in kinds]
        if not mine:
            continue
        low = min(b["address"] for b in mine)
        high = max(b["address"] + b["size"] for b in mine)
        shapes.append(text(0, y + 10, f"{name}: {size(high - low)} from 0x{low:08X}", class_="axis"))
        y += 18
        scale = height / max(high - low, 1)
        shapes.append(rect(LEFT, y, WIDTH - LEFT - RIGHT, height, class_="lane"))
        for value in ticks(high - low, max(int(height // 60), 1), binary=True):
            at = y + value * scale
            shapes.append(line(LEFT - 4, at, LEFT, at, class_="grid"))
            shapes.append(text(LEFT - 6, at + 4, f"+{size(value)}" if value else "0", class_="tick end"))
        for buffer in mine:
            top = y + (buffer["address"] - low) * scale
            shapes += _buffer(buffer, names[buffer["name"]], x, top, buffer["size"] * scale)
        y += height + 12
    step = max(1, -(-columns // 40))
    for column in range(0, columns, step):
        shapes.append(text(x(column + 0.5), y + 8, str(column), class_="tick mid"))
    shapes.append(text((LEFT + WIDTH) / 2, y + 26, f"{run.unit}", class_="axis mid"))
    label = "addresses of buffers over layers"
    return svg(WIDTH, y + 32, *shapes, class_="chart memory", role="img", aria_label=label)


def memory_legend(run: ReportedRun) -> Markup:
    """Return the legend of the colours."""
    kinds = [kind for kind in KINDS if any(b.get("kind") == kind for b in run.buffers)]
    return legend([(f"b-{kind}", KINDS[kind], "") for kind in kinds])


def table(run: ReportedRun) -> Markup:
    """Return a table of all buffers with their addresses."""
    if not run.buffers:
        return Markup("")
    whole = "first" in run.buffers[0]
    heads = ["buffer", "kind", "address", "bytes", *(["needed in", "used by"] if whole else [])]
    lines = []
    for b in run.buffers:
        cells = [
            el("td", b.get("name", ""), class_="words"),
            el("td", b.get("kind", "region")),
            el("td", f"0x{b['address']:08X}", class_="mono", data_v=b["address"]),
            el("td", count(b["size"]), data_v=b["size"], class_="num"),
        ]
        if whole:
            cells.append(el("td", f"{b['first']} to {b['last']}", data_v=b["first"], class_="num"))
            cells.append(el("td", ", ".join(map(str, b["used"])), class_="num"))
        lines.append(el("tr", *cells))
    head = el("thead", el("tr", *(el("th", name, scope="col") for name in heads)))
    return el("table", head, el("tbody", *lines), class_="sortable")


def peak_alive(buffers: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """The largest number of bytes of tensors needed at the same time, and the layer where it occurs."""
    alive = _alive_by_layer(buffers)
    most = max(alive, default=0)
    return most, alive.index(most) if alive else 0


def _alive_by_layer(buffers: Sequence[dict[str, Any]]) -> list[int]:
    tensors = [b for b in buffers if b["kind"] in GROUPS[0][1]]
    columns = 1 + max((int(b["last"]) for b in buffers), default=-1)
    return [sum(b["size"] for b in tensors if b["first"] <= n <= b["last"]) for n in range(columns)]


def _alive(run: ReportedRun, columns: int, x: Any, y: float, shapes: list[Markup]) -> float:
    alive = _alive_by_layer(run.buffers)
    most = max(alive, default=0)
    if not most:
        return y
    height = 70.0
    shapes.append(
        text(0, y + 10, f"bytes of tensors needed at the same time: {size(most)} at most", class_="axis")
    )
    y += 18
    base = y + height
    for value in ticks(most, 2, binary=True):
        at = base - height * value / most
        shapes.append(line(LEFT, at, WIDTH - RIGHT, at, class_="fine"))
        shapes.append(text(LEFT - 6, at + 4, size(value), class_="tick end"))
    tops = [base - height * value / most for value in alive]
    steps = [(x(n + end), top) for n, top in enumerate(tops) for end in (0, 1)]
    outline = [(LEFT, base), *steps, (x(columns), base)]
    shapes.append(path(outline, closed=True, class_="area b-tensor"))
    for n, value in enumerate(alive):
        said = title(f"{run.rows[n].label if n < len(run.rows) else n}", f"{count(value)} bytes of tensors")
        shapes.append(rect(x(n), y, x(1) - x(0), height, said, class_="probe"))
    return base + 14


def _buffer(buffer: dict[str, Any], name: str, x: Any, top: float, height: float) -> list[Markup]:
    first, last, kind = buffer["first"], buffer["last"], buffer["kind"]
    said = title(
        f"{buffer['name']} ({KINDS.get(kind, kind)})",
        f"0x{buffer['address']:08X}, {count(buffer['size'])} bytes",
        f"needed from {first} to {last}, used by {', '.join(map(str, buffer['used']))}",
    )
    height = max(height, 1.2)
    faint = kind in ("weights", "commands", "constant")
    left, right = x(first), x(last + 1)
    shapes = [
        rect(left, top, right - left, height, said, class_=f"buffer b-{kind}{' faint' if faint else ''}")
    ]
    if faint:
        shapes += [
            rect(x(n), top, x(n + 1) - x(n), max(height, 2.0), said, class_=f"buffer b-{kind}")
            for n in buffer["used"]
        ]
    room = int((right - left - 4) / 6.4)
    if height >= 11 and room >= 4 and not faint:
        words = clip(name, room)
        shapes.append(text(left + 4, top + min(height / 2 + 4, 14), words, class_="buffertext"))
    return shapes
