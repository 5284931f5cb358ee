"""The roofline as a self-contained SVG file: both themes, TOPS on the right, legend included."""

from __future__ import annotations

import re

from markupsafe import Markup

from rkcosim.measure.report import roofline
from rkcosim.measure.report.data import ReportedRun, ReportError
from rkcosim.measure.report.page import content
from rkcosim.measure.report.roofline import BOTTOM, HEIGHT, RIGHT, TOP, WIDTH
from rkcosim.waves.drawing import clip, colours, decades, el, line, rect, text, written_out

MARGIN = 62.0
"""Width of the axis on the right."""
HEAD = 64.0
"""Height of title and legend."""


def draw(run: ReportedRun, clock: float, subtitle: str = "") -> str:
    """Return the file as text.

    Parameters
    ----------
    run
        Run with MACs, bytes and cycles of its rows.
    clock
        Clock in GHz, for TOPS and GB/s.
    subtitle
        Text below the title.

    Raises
    ------
    ReportError
        If no row can be drawn.
    """
    if not roofline.shown(run):
        raise ReportError(f"{run.title}: no layer has MACs, so there is no roofline to draw")
    width, height = WIDTH + MARGIN, HEIGHT + HEAD
    chart = roofline.chart(run, clock, width=WIDTH, height=HEIGHT)
    return str(
        el(
            "svg",
            el("style", Markup(_style())),
            rect(0, 0, width, height, class_="paper"),
            text(16, 26, run.title, class_="axis head"),
            text(16, 44, subtitle),
            *_legend(run),
            el("g", chart, *_right(run, clock), transform=f"translate(0 {HEAD})"),
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {width:.0f} {height:.0f}",
            width=width,
            height=height,
            class_="chart roofline",
            role="img",
            aria_label=f"roofline of {run.title}",
        )
    )


def _style() -> str:
    """Return the style of the page's charts with the colours of both themes and of the operators inlined."""
    sheet = content("style.css")
    light, dark = (
        colours(sheet.split(f"{head} {{", 1)[1].split("}", 1)[0])
        for head in (":root", ':root[data-theme="dark"]')
    )
    rules = [
        rule
        for rule in sheet.splitlines()
        if rule.startswith(".chart ") and ":hover" not in rule and "var(--c)" not in rule
    ]
    for name, colour in re.findall(r"\.(o-\d) \{ --c: (var\([^)]*\)); \}", sheet):
        rules.append(f".chart .badge.{name}, .chart .key.{name} {{ fill: {colour}; }}")
    fonts = 'system-ui, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif'
    rules += [
        ".paper { fill: var(--card); }",
        f".chart text {{ font-family: {fonts}; }}",
        ".chart text.head { font-size: 16px; }",
    ]
    return written_out("\n".join(rules), light, dark)


def _legend(run: ReportedRun) -> list[Markup]:
    """Draw the colours of the operators in a row below the title."""
    ops = roofline.operators(run)
    names = [clip(op, 24) for op in ops[: roofline.KINDS]]
    if len(ops) > roofline.KINDS:
        names.append("others")
    shapes, x = [], 16.0
    for number, name in enumerate(names):
        shapes.append(rect(x, HEAD - 10, 11, 11, class_=f"key o-{number}", rx=2))
        shapes.append(text(x + 16, HEAD, name))
        x += 34 + 6.4 * len(name)
    return shapes


def _right(run: ReportedRun, clock: float) -> list[Markup]:
    """Draw the axis of TOPS."""
    scale = roofline.scales(run)
    one = roofline.tops(1, clock)
    x, middle = WIDTH - RIGHT, (TOP + HEIGHT - BOTTOM) / 2
    shapes = [line(x, TOP, x, HEIGHT - BOTTOM, class_="grid")]
    for value in decades(one * scale.y_low, one * scale.y_high):
        y = scale.py(value / one)
        shapes += [line(x, y, x + 5, y, class_="grid"), text(x + 9, y + 4, f"{value:g}", class_="tick")]
    turned = f"rotate(-90 {WIDTH + 46} {middle})"
    return [*shapes, text(WIDTH + 46, middle, "TOPS", class_="axis mid", transform=turned)]
