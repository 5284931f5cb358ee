"""SVG files as programs without CSS variables show them."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
import resvg_py
from PIL import Image

from rkcosim.measure.perf.estimator import estimate_model
from rkcosim.measure.perf.estimator.document import as_json, as_run
from rkcosim.measure.report import roofline
from rkcosim.measure.report.rooffile import draw as draw_roofline
from rkcosim.waves.drawing import colours, written_out

REPOSITORY = Path(__file__).parents[2]
DIGITS = REPOSITORY / "examples" / "digits" / "digits_int8.onnx"


def pixels(svg: str) -> np.ndarray:
    """The picture, uint8 [height, width, 3]; transparent pixels are magenta."""
    data = resvg_py.svg_to_bytes(svg_string=svg, background="#ff00ff")
    return np.asarray(Image.open(io.BytesIO(bytes(data))).convert("RGB"))


def share(picture: np.ndarray, colour: str) -> float:
    """Fraction of the pixels that have a colour."""
    wanted = [int(colour[n : n + 2], 16) for n in (1, 3, 5)]
    return float((picture == wanted).all(axis=-1).mean())


def test_colours_are_written_out():
    light, dark = colours("--ink: #111111; --rule: #222222;"), colours("--ink: #eeeeee;")
    text = written_out(".a { fill: var(--ink); stroke-width: 2; }\n.b { stroke: var(--rule) }", light, dark)
    assert text.splitlines()[:2] == [".a { fill: #111111; stroke-width: 2; }", ".b { stroke: #222222 }"]
    assert "fill: #eeeeee" in text.split("@media")[1] and "stroke-width" not in text.split("@media")[1]
    with pytest.raises(KeyError):
        written_out(".a { fill: var(--paper) }", light, dark)


@pytest.fixture(scope="module")
def roofline_file() -> str:
    found = estimate_model(DIGITS)
    return draw_roofline(as_run(as_json("digits", found, 600, [])), 0.6, "estimated")


def test_a_roofline_is_drawn_in_its_colours(roofline_file: str):
    assert "var(" not in roofline_file
    picture = pixels(roofline_file)
    assert (
        share(picture, "#ffffff") > 0.4 and share(picture, "#ff00ff") == 0
    )  # a white background without gaps
    assert share(picture, "#000000") < 0.001
    assert share(picture, "#0869b1") > 0.0002  # marks of the first operator


def test_marks_stand_at_their_values(roofline_file: str):
    found = estimate_model(DIGITS)
    run = as_run(as_json("digits", found, 600, []))
    scale = roofline.scales(run)
    marks = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="5"', roofline_file)
    wanted = [
        (scale.px(row.macs / row.moved), scale.py(row.macs / row.cycles)) for row in roofline.shown(run)
    ]
    assert len(marks) == len(wanted) > 1
    for (x, y), (at_x, at_y) in zip(marks, wanted, strict=True):
        assert abs(float(x) - at_x) < 0.06 and abs(float(y) - at_y) < 0.06


@pytest.mark.parametrize("path", sorted((REPOSITORY / "docs").rglob("*.svg")), ids=lambda path: path.name)
def test_pictures_of_the_documentation(path: Path):
    text = path.read_text(encoding="utf-8")
    assert "var(" not in text
    picture = pixels(text)
    assert share(picture, "#000000") < 0.02 and share(picture, "#ff00ff") < 0.02
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 10
