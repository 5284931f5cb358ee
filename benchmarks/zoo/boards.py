"""Published times of boards for networks of the zoo, with the source of each.

`source` has keys of the table of sources in the hardware reference ([HW 15]).  Times of networks that
`rkcosim validate` uses come from its table; the others are listed here, as published.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from rkcosim.base import PACKAGE
from rkcosim.measure.perf.boards.table import rows

SOURCES = PACKAGE / "docs" / "reference" / "15-sources.md"


@dataclass(frozen=True)
class BoardTime:
    """A published time of one inference on one core of a board.

    Members
    -------
    low, high : milliseconds, the same for a single figure.
    quote : figure as published.
    source : keys of the sources, separated by blanks.
    note : in what the measured network differs from ours; empty if in nothing that is known.
    """

    low: float
    high: float
    quote: str
    source: str
    note: str = ""


def _rate(frames: float, note: str = "") -> BoardTime:
    """Return the time of a rate in frames a second of the vendor's table."""
    return BoardTime(1000 / frames, 1000 / frames, f"{frames:g} fps", "model-zoo", note)


def _of_table(name: str, note: str = "") -> BoardTime:
    """Return a row of `rkcosim validate`."""
    row = next(row for row in rows() if row.id == name)
    return BoardTime(row.low_us / 1000, row.high_us / 1000, row.quote, row.source, note)


BOARDS: dict[str, BoardTime] = {
    "mobilenet_v1": _of_table("MobileNetV1"),
    "mobilenet_v2": _of_table("MobileNetV2"),
    "coral_mobilenet_v2": _of_table("MobileNetV2", "other weights"),
    "resnet50": _of_table("ResNet50", "version 2 of the network"),
    "yolov5n": _rate(82.5),
    "yolov5s": _rate(48.4),
    "yolov5s_relu": _rate(66.1),
    "yolov8n": _rate(73.5),
    "yolov8s": _rate(38.0),
    "yolo11n": _rate(60.0),
    "retinaface_mobile320": _rate(227.2, "the vendor's own file"),
    "deeplab_v3_mobilenet_v2": _rate(34.0, "DeepLab v3+"),
    "ppocr_v4_det_480": _rate(50.7, "in int8, ours in fp16"),
    "ppocr_v4_rec": _rate(73.9, "the vendor's own file"),
    "ssd_mobilenet_v1": BoardTime(
        19.8, 22.9, "22.9 / 19.8 ms", "widgetii-report", "mainline driver and Mesa"
    ),
}
"""Published times by the name of the network in the zoo."""


@cache
def sources() -> dict[str, str]:
    """Return repository, commit and file of each source of the hardware reference, by its key."""
    found = {}
    for line in SOURCES.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) >= 5 and re.fullmatch(r"[\w-]+", cells[0]):
            found[cells[0]] = ", ".join(cell for cell in cells[1:4] if cell not in ("", "-"))
    return found
