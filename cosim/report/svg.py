"""Small helpers for inline SVG and numbers for people; all text is escaped here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

KIB = 1024
NOTHING = "\N{EN DASH}"
"""Shown where there is no figure."""


def el(name: str, *children: object, **attributes: object) -> Markup:
    """An element; `_` in attribute names stands for `-`, a last `_` is dropped, None leaves one out."""
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None:
            continue
        text = number(value) if isinstance(value, float) else str(value)
        parts.append(f' {key.rstrip("_").replace("_", "-")}="{escape(text)}"')
    inside = "".join(str(escape(child)) for child in children)
    return Markup("".join(parts) + (f">{inside}</{name}>" if inside else "/>"))


def svg(width: float, height: float, *children: object, **attributes: object) -> Markup:
    """A drawing that keeps its proportions."""
    return el("svg", *children, viewBox=f"0 0 {number(width)} {number(height)}", **attributes)


def title(*lines: str) -> Markup:
    """What is shown on hovering, line by line."""
    return el("title", "\n".join(lines))


def text(x: float, y: float, words: str, **attributes: object) -> Markup:
    """Text at a point."""
    return el("text", words, x=float(x), y=float(y), **attributes)


def line(x1: float, y1: float, x2: float, y2: float, **attributes: object) -> Markup:
    """A straight line."""
    return el("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), **attributes)


def rect(x: float, y: float, width: float, height: float, *children: object, **attributes: object) -> Markup:
    """A rectangle."""
    return el(
        "rect", *children, x=float(x), y=float(y), width=float(width), height=float(height), **attributes
    )


def path(points: Iterable[tuple[float, float]], closed: bool = False, **attributes: object) -> Markup:
    """A line through points."""
    data = "M" + "L".join(f"{number(x)},{number(y)}" for x, y in points)
    return el("path", d=data + ("Z" if closed else ""), **attributes)


def number(value: float) -> str:
    """Shortest text with two decimals at most."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def count(value: float | None) -> str:
    """A count with commas, a dash for none."""
    return NOTHING if value is None else f"{value:,.0f}"


def short(value: float | None) -> str:
    """A count in three or four digits with K, M or G."""
    if value is None:
        return NOTHING
    for unit, factor in (("G", 1e9), ("M", 1e6), ("K", 1e3)):
        if abs(value) >= factor:
            scaled = value / factor
            return f"{scaled:.{0 if scaled >= 100 else 1 if scaled >= 10 else 2}f} {unit}"
    return number(float(value))


def size(value: float | None) -> str:
    """Bytes with their unit."""
    if value is None:
        return NOTHING
    if value < KIB:
        return f"{value:,.0f} B"
    for unit, factor in (("KiB", KIB), ("MiB", KIB**2), ("GiB", KIB**3)):
        if value < 1000 * factor or unit == "GiB":
            scaled = value / factor
            return f"{scaled:,.{0 if scaled >= 100 else 1}f} {unit}"
    raise AssertionError


def percent(value: float | None, digits: int = 1) -> str:
    """A share of 1 as percent."""
    return NOTHING if value is None else f"{value:.{digits}%}"


def clip(words: str, room: int) -> str:
    """The start of long names, then `…`."""
    return words if len(words) <= room else f"{words[: room - 1]}…"


def shorten(names: Sequence[str]) -> list[str]:
    """Names without the leading folders (`folder/name`) that most of them have, still all different.

    Of names of fused layers (`first;second;third`) the first is kept where that tells them apart.
    """
    result = [name.split(";", 1)[0] or name for name in names]
    if len(set(result)) < len(set(names)):
        result = list(names)
    while True:
        heads = [name.split("/", 1)[0] if "/" in name else None for name in result]
        known = [head for head in heads if head]
        most = max(set(known), key=known.count) if known else None
        if most is None or known.count(most) * 2 <= len(result) or len(result) < 2:
            return result
        cut = [
            name.split("/", 1)[1] if head == most else name for name, head in zip(result, heads, strict=True)
        ]
        if len(set(cut)) < len(set(result)) or not all(cut):
            return result
        result = cut


def ticks(high: float, wanted: int = 5, binary: bool = False) -> list[float]:
    """Round numbers from 0 up to `high`; `binary`: powers of two apart."""
    if high <= 0:
        return [0.0]
    if binary:
        step = 2.0 ** math.ceil(math.log2(high / wanted) - 1e-9)
        return [n * step for n in range(int(high / step + 1e-9) + 1)]
    raw = high / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = power * next(m for m in (1, 2, 5, 10) if m * power >= raw * 0.999)
    return [n * step for n in range(int(high / step + 1e-9) + 1)]


def decades(low: float, high: float) -> list[float]:
    """Powers of ten from `low` to `high`."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    return [10.0**n for n in range(first, last + 1)]


def legend(items: Sequence[tuple[str, str, str]]) -> Markup:
    """A row of (class of the colour, name, explanation)."""
    return el(
        "div",
        *(
            el("span", el("i", " ", class_=f"key {css}"), name, class_="item", title=meaning or None)
            for css, name, meaning in items
        ),
        class_="legend",
    )
