"""The roofline as an SVG file of its own: colours for light and dark, TOPS on the right, legend inside."""

from __future__ import annotations

from markupsafe import Markup

from cosim.report import roofline
from cosim.report.data import ReportError, Run
from cosim.report.roofline import BOTTOM, HEIGHT, RIGHT, TOP, WIDTH
from cosim.report.svg import clip, decades, el, line, rect, text

MARGIN = 62.0
"""Room for the axis on the right."""
HEAD = 64.0
"""Room for title and legend above."""


def draw(run: Run, clock: float, subtitle: str = "") -> str:
    """The file as text.

    Parameters
    ----------
    run
        rows with MACs, bytes and cycles.
    clock
        GHz, for TOPS and GB/s.
    subtitle
        said beside the title.

    Raises
    ------
    ReportError
        where no row has a place.
    """
    if not roofline.shown(run):
        raise ReportError(f"{run.title}: no layer has MACs, so there is no roofline to draw")
    width, height = WIDTH + MARGIN, HEIGHT + HEAD
    inner = el("g", roofline.chart(run, clock), _right(run, clock), transform=f"translate(0 {HEAD})")
    sized = str(inner).replace("<svg ", f'<svg width="{WIDTH:.0f}" height="{HEIGHT:.0f}" ', 1)
    return str(
        el(
            "svg",
            el("style", Markup(_style())),
            rect(0, 0, width, height, class_="paper"),
            text(16, 26, run.title, class_="axis head"),
            text(16, 44, subtitle),
            *_legend(run),
            Markup(sized),
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
    """The page's colours, both themes, and what its charts look like."""
    from cosim.report.page import content

    lines = content("style.css").splitlines()
    colours = lines[: next(n for n, line in enumerate(lines) if line.startswith("* {"))]
    charts = [line for line in lines if line.startswith((".chart ", ".o-"))]
    own = [
        ".paper { fill: var(--card); }",
        ".roofline { font-family: system-ui, sans-serif; }",
        ".chart text.head { font-size: 16px; }",
        ".chart .key { fill: var(--c); }",
    ]
    return "\n".join([*colours, *charts, *own])


def _legend(run: Run) -> list[Markup]:
    """Colours of the operators, in a row below the title."""
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


def _right(run: Run, clock: float) -> Markup:
    """The axis of TOPS."""
    scale = roofline.scales(run)
    low, high = roofline.tops(scale.y_low, clock), roofline.tops(scale.y_high, clock)
    x = WIDTH - RIGHT
    shapes = [line(x, TOP, x, HEIGHT - BOTTOM, class_="grid")]
    for value in decades(low, high):
        y = scale.py(value / roofline.tops(1, clock))
        shapes += [line(x, y, x + 5, y, class_="grid"), text(x + 9, y + 4, f"{value:g}", class_="tick")]
    middle = (TOP + HEIGHT - BOTTOM) / 2
    shapes.append(
        text(WIDTH + 46, middle, "TOPS", class_="axis mid", transform=f"rotate(-90 {WIDTH + 46} {middle})")
    )
    return el("g", *shapes)
