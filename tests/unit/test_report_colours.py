"""Colours of the HTML report: distinguishable with any colour vision; both ways to dark mode are equal."""

from __future__ import annotations

import re

import numpy as np
import pytest

from rkcosim.measure.report.page import content

SIGHT = {
    "all colours": np.eye(3),
    "deuteranopia": [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]],
    "protanopia": [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]],
    "tritanopia": [[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]],
}
"""Linear RGB as seen with a colour deficiency (Machado, Oliveira, Fernandes 2009, severity 1)."""


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIELAB of linear sRGB."""
    matrix = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = matrix @ np.clip(rgb, 0, 1) / [0.9505, 1, 1.089]
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_stay_apart_for_everyone(scheme):
    start = 0 if scheme == "light" else 1
    css = content("style.css").split("}")[start]
    found = dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6})", css))
    named = re.findall(r"\.p-[a-z]+ \{ --c: var\(--([a-z]+)\)", content("style.css"))
    names = [*(name for name in named if name != "plain"), "card"]
    for sight, matrix in SIGHT.items():
        seen = {}
        for name in names:
            srgb = np.array([int(found[name][n : n + 2], 16) for n in (1, 3, 5)]) / 255
            linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
            seen[name] = lab(np.array(matrix) @ linear)
        for n, a in enumerate(names):
            for b in names[:n]:
                assert np.linalg.norm(seen[a] - seen[b]) > 15, (scheme, sight, a, b)


def test_the_dark_scheme_is_the_same_by_choice_and_by_system():
    def values(text: str) -> dict[str, str]:
        return dict(re.findall(r"--([a-z-]+): ([^;]+);", text))

    chosen, system = content("style.css").split("}")[1:3]
    assert values(chosen) == values(system) and len(values(chosen)) > 20
