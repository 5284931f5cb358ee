"""Inline SVG: elements with escaped texts, round numbers for axes, and style sheets for both themes.

The pictures of waveforms and the charts of reports are made with these functions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from markupsafe import Markup, escape


def el(name: str, *children: object, **attributes: object) -> Markup:
    """Make an element.

    `_` in attribute names stands for `-`, a final `_` is dropped, None omits an attribute.
    """
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None:
            continue
        text = number(value) if isinstance(value, float) else str(value)
        parts.append(f' {key.rstrip("_").replace("_", "-")}="{escape(text)}"')
    inside = "".join(str(escape(child)) for child in children)
    return Markup("".join(parts) + (f">{inside}</{name}>" if inside else "/>"))


def svg(width: float, height: float, /, *children: object, **attributes: object) -> Markup:
    """Make a drawing that keeps its proportions."""
    return el("svg", *children, viewBox=f"0 0 {number(width)} {number(height)}", **attributes)


def title(*lines: str) -> Markup:
    """Make the text that is shown on hovering, line by line."""
    return el("title", "\n".join(lines))


def text(x: float, y: float, *words: object, **attributes: object) -> Markup:
    """Make a text at a point."""
    return el("text", *words, x=float(x), y=float(y), **attributes)


def line(x1: float, y1: float, x2: float, y2: float, *children: object, **attributes: object) -> Markup:
    """Make a straight line."""
    return el("line", *children, x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), **attributes)


def rect(x: float, y: float, width: float, height: float, *children: object, **attributes: object) -> Markup:
    """Make a rectangle."""
    places = {"x": float(x), "y": float(y), "width": float(width), "height": float(height)}
    return el("rect", *children, **places, **attributes)


def path(points: Iterable[tuple[float, float]], closed: bool = False, **attributes: object) -> Markup:
    """Make a line through points."""
    data = "M" + "L".join(f"{number(float(x))},{number(float(y))}" for x, y in points)
    return el("path", d=data + ("Z" if closed else ""), **attributes)


def number(value: float) -> str:
    """Format a number with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def clip(words: str, room: float) -> str:
    """Shorten a text to `room` characters, ending in `…`."""
    return words if len(words) <= room else f"{words[: int(room) - 1]}…"


def round_step(least: float) -> float:
    """Return the smallest of 1, 2, 5, 10, 20, ... (and 0.5, 0.2, ...) that is not below a number."""
    power = 10.0 ** math.floor(math.log10(least))
    return power * next(m for m in (1, 2, 5, 10) if m * power >= least * 0.999)


def ticks(high: float, wanted: int = 5, binary: bool = False) -> list[float]:
    """Return round numbers from 0 to `high`; `binary`: with steps that are powers of two."""
    if high <= 0:
        return [0.0]
    step = 2.0 ** math.ceil(math.log2(high / wanted) - 1e-9) if binary else round_step(high / wanted)
    return [n * step for n in range(int(high / step + 1e-9) + 1)]


def decades(low: float, high: float) -> list[float]:
    """Return the powers of ten from `low` to `high`."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    return [10.0**n for n in range(first, last + 1)]


_RULE = re.compile(r"\s*([^{}]+?)\s*\{([^{}]*)\}")
_COLOUR = re.compile(r"var\(--([\w-]+)\)")
_NAMED = re.compile(r"--([\w-]+):\s*([^;]+);")


def colours(declarations: str) -> dict[str, str]:
    """Return the colours of declarations such as ``--ink: #1f2328; --rule: #d8dee4;`` by name."""
    return {name: value.strip() for name, value in _NAMED.findall(declarations)}


def written_out(rules: str, light: Mapping[str, str], dark: Mapping[str, str]) -> str:
    """Return style rules with ``var(--NAME)`` replaced by colours, for programs without CSS variables.

    Browsers use the dark colours if the reader prefers them (`prefers-color-scheme`); other programs (word
    processors, viewers, converters) show the light ones.

    Parameters
    ----------
    rules : ``SELECTOR { DECLARATIONS }``, not nested.
    light, dark : colours by name; a name missing in `dark` has the same colour in both.

    Returns
    -------
    str
        the rules with light colours, then the differences of the dark ones in a media query.

    Raises
    ------
    KeyError
        for a name missing in `light`.
    """
    plain, other = [], []
    for selector, declarations in _RULE.findall(rules):
        shown = _COLOUR.sub(lambda found: light[found[1]], declarations)
        plain.append(f"{selector} {{{shown}}}")
        changed = [part for part in declarations.split(";") if _COLOUR.search(part)]
        inverted = [_COLOUR.sub(lambda found: {**light, **dark}[found[1]], part) for part in changed]
        if inverted:
            other.append(f"  {selector} {{{';'.join(inverted)} }}")
    media = ["@media (prefers-color-scheme: dark) {", *other, "}"] if other else []
    return "\n".join([*plain, *media])
