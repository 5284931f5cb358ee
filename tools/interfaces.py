"""The picture of the interfaces: `python -m tools.interfaces docs/pictures/interfaces.svg`.

Each row is an interface: what a user has, the code that takes it, and where it joins the common stack.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tools.overview import (
    CHECK,
    GREY,
    HARDWARE,
    KERNEL,
    MEMORY,
    SOFTWARE,
    Box,
    arrow,
    group,
    text,
)

WIDTH, HEIGHT = 1000, 640

ROWS = (
    ("rknn_api programs", "C, Python, rknnlite", "sw/rknn_api", "librknnrt.so, server"),
    (".rknn files", "of the vendor's compiler", "sw/rknn_file", "lists, patches, plan"),
    ("LiteRT scripts", "delegate", "apis/link", "parts of graphs"),
    ("onnxruntime scripts", "execution provider", "apis/link", "parts of graphs"),
    ("NNAPI programs", "libneuralnetworks.so", "apis/nnapi", "runs of operations"),
    ("Hexagon NN programs", "libhexagon_nn.so", "apis/hexagon", "chains of nodes"),
    ("TNN networks", ".tnnproto, classes", "apis/tnn", "ONNX nodes of layers"),
    ("DIOPI programs", "diopilib", "apis/diopi", "one operator a call"),
)
"""What users have, and what takes it."""

TOP, STEP = 44, 70


def picture() -> str:
    """The drawing as SVG."""
    boxes, arrows = [], []
    for number, (name, form, room, what) in enumerate(ROWS):
        y = TOP + STEP * number
        boxes.append(Box(20, y, 190, 52, name, (form,), SOFTWARE))
        boxes.append(Box(254, y, 190, 52, room, (what,), CHECK))
        arrows.append(arrow((210, y + 26), (252, y + 26)))
        if number == 1:  # a file has its plan already
            arrows.append(arrow((444, y + 26), (640, y + 26), (640, 298)))
        else:
            arrows.append(arrow((444, y + 26), (466, y + 26), (466, 326), (486, 326)))
    boxes += [
        Box(488, 300, 110, 52, "compiler", ("network to plan",), MEMORY),
        Box(622, 300, 96, 52, "run time", ("loads, packs",), MEMORY),
        Box(742, 300, 96, 52, "driver", ("jobs, DRAM",), KERNEL),
        Box(862, 300, 120, 52, "engine", ("RTL, or golden",), HARDWARE),
        Box(622, 420, 96, 66, "host", ("numpy, LiteRT,", "onnxruntime"), MEMORY),
        Box(
            742,
            420,
            240,
            66,
            "account",
            ("cycles, places and reasons,", "--check with both golden models"),
            CHECK,
        ),
    ]
    arrows += [
        arrow((598, 326), (620, 326)),
        arrow((718, 326), (740, 326)),
        arrow((838, 326), (860, 326)),
        arrow((670, 352), (670, 418)),
        arrow((922, 352), (922, 418)),
    ]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="Helvetica, Arial, sans-serif">',
        "<title>Eight interfaces share the compiler, the run time, the driver and the engines</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        text(20, 29, "what a user has", 13, GREY, "start"),
        text(254, 29, "what takes it", 13, GREY, "start"),
        group(478, 268, 512, 240, "what all share"),
        *(box.svg() for box in boxes),
        *arrows,
    ]
    return "\n".join((*parts, "</svg>")) + "\n"


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(prog="python -m tools.interfaces", description=__doc__)
    parser.add_argument("output", type=Path, help="SVG file to write")
    parser.parse_args().output.write_text(picture())


if __name__ == "__main__":
    main()
