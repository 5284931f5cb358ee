"""Formats of numbers and names in the report, and the legend of a chart."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from rkcosim.waves.drawing import el, number

KIB = 1024
NOTHING = "\N{EN DASH}"
"""Shown instead of an unknown figure."""


def count(value: float | None) -> str:
    """Return a count with commas, a dash for None."""
    return NOTHING if value is None else f"{value:,.0f}"


def short(value: float | None) -> str:
    """Return a count in three or four digits with K, M or G."""
    if value is None:
        return NOTHING
    for unit, factor in (("G", 1e9), ("M", 1e6), ("K", 1e3)):
        if abs(value) >= factor:
            scaled = value / factor
            return f"{scaled:.{0 if scaled >= 100 else 1 if scaled >= 10 else 2}f} {unit}"
    return number(float(value))


def size(value: float | None) -> str:
    """Return a number of bytes with its unit."""
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
    """Return a share of 1 as percent."""
    return NOTHING if value is None else f"{value:.{digits}%}"


def shorten(names: Sequence[str]) -> list[str]:
    """Remove the leading folders (`folder/name`) that most names share, as long as all names stay different.

    For names of fused layers (`first;second;third`) only the first is kept if the names still differ.
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


def legend(items: Sequence[tuple[str, str, str]]) -> Markup:
    """Return a legend from (class of the colour, name, explanation) items."""
    return el(
        "div",
        *(
            el("span", el("i", " ", class_=f"key {css}"), name, class_="item", title=meaning or None)
            for css, name, meaning in items
        ),
        class_="legend",
    )
