"""The picture of the whole project: `python -m tools.overview docs/overview.svg`.

Every shape carries its own colours and sizes, without style sheets, markers or fonts of its own, so that the
file looks the same in a browser, in a PDF and in an image viewer.  Numbers come from `rkcosim.spec.config`.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from html import escape
from pathlib import Path

from rkcosim.spec.config import AXI_BYTES, RK3588

WIDTH, HEIGHT = 1000, 596

INK, GREY, LINE = "#1c2b39", "#4a5b6b", "#33506b"

SOFTWARE, KERNEL, HARDWARE, MEMORY, CHECK = "#eaf2fb", "#fff7d6", "#fdf1e3", "#eaf6ea", "#f5ecf8"
"""Fill of a box by what it stands for."""


@dataclass(frozen=True)
class Box:
    """A rectangle with a title and lines of smaller text.

    Members
    -------
    x, y, width, height : place and size in pixels of the drawing.
    title, lines : texts, centred; long ones are not broken.
    fill : colour.
    """

    x: int
    y: int
    width: int
    height: int
    title: str
    lines: tuple[str, ...] = ()
    fill: str = "#ffffff"

    def svg(self) -> str:
        """Elements of the box."""
        middle = self.x + self.width / 2
        top = self.y + self.height / 2 - 8 * len(self.lines) + 5
        parts = [
            f'<rect x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}" rx="6" '
            f'fill="{self.fill}" stroke="{LINE}" stroke-width="1.4"/>',
            text(middle, top, self.title, 14, INK),
        ]
        parts += [text(middle, top + 17 + 15 * n, line, 11.5, GREY) for n, line in enumerate(self.lines)]
        return "\n".join(parts)


def text(x: float, y: float, words: str, size: float, colour: str, anchor: str = "middle") -> str:
    """One line of text."""
    weight = ' font-weight="bold"' if anchor == "start" else ""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{colour}" '
        f'text-anchor="{anchor}"{weight}>{escape(words)}</text>'
    )


def group(x: int, y: int, width: int, height: int, title: str) -> str:
    """A dashed frame with a heading above it."""
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="none" '
        f'stroke="#9aa8b5" stroke-dasharray="5 4"/>\n' + text(x + 4, y - 9, title, 13, GREY, "start")
    )


def arrow(*points: tuple[int, int], colour: str = LINE) -> str:
    """A line along the points with a head at its end; segments are horizontal or vertical."""
    (x0, y0), (x1, y1) = points[-2:]
    dx, dy = (x1 > x0) - (x1 < x0), (y1 > y0) - (y1 < y0)
    path = " ".join(f"{x},{y}" for x, y in (*points[:-1], (x1 - 6 * dx, y1 - 6 * dy)))
    back = [(x1 - 8 * dx + 4 * dy * side, y1 - 8 * dy + 4 * dx * side) for side in (1, -1)]
    head = " ".join(f"{x},{y}" for x, y in ((x1, y1), *back))
    return (
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>\n'
        f'<polygon points="{head}" fill="{colour}"/>'
    )


def picture() -> str:
    """The drawing as SVG."""
    config = RK3588
    banks = f"{config.cbuf_banks} x {config.cbuf_bank_bytes // 1024} KiB"
    red = "#b3452c"
    cores = [
        f'<rect x="{446 + 10 * n}" y="{40 + 10 * n}" width="300" height="400" rx="8" '
        f'fill="#fbfcfd" stroke="{LINE}" stroke-width="1.2"/>'
        for n in range(config.cores)
    ]
    boxes = [
        Box(30, 50, 170, 66, "model files", ("TFLite, ONNX (int8, float)", ".rknn of the vendor"), SOFTWARE),
        Box(30, 146, 170, 52, "compiler", ("tiles, cores, CBUF banks",), SOFTWARE),
        Box(30, 228, 170, 52, "rknn_api", ("rknn_init ... rknn_run",), SOFTWARE),
        Box(30, 310, 170, 66, "programs", ("C, Python, any language,", "unmodified"), SOFTWARE),
        Box(30, 406, 170, 52, "stream files", ("register writes + memory",), SOFTWARE),
        Box(246, 130, 150, 66, "rknpu", ("vendor's driver 0.9.8", "/dev/dri/card1"), KERNEL),
        Box(246, 228, 150, 66, "rocket", ("mainline driver", "/dev/accel/accel0"), KERNEL),
        Box(246, 326, 150, 66, "scheduler", ("jobs, queues, fences,", "time-outs, resets"), KERNEL),
        Box(482, 84, 110, 52, "PC", ("fetch, chain, start",), HARDWARE),
        Box(482, 176, 110, 52, "registers", ("two groups a block",), HARDWARE),
        Box(482, 390, 110, 52, "interrupts", ("raw, mask, status",), HARDWARE),
        Box(620, 84, 76, 40, "CNA", (), HARDWARE),
        Box(620, 144, 76, 50, "CBUF", (banks,), HARDWARE),
        Box(620, 214, 76, 64, "CORE", (f"{config.macs_int8} int8", "MACs/cycle"), HARDWARE),
        Box(620, 298, 76, 50, "DPU", ("DPU_RDMA",), HARDWARE),
        Box(620, 390, 76, 52, "PPU", ("PPU_RDMA",), HARDWARE),
        Box(712, 84, 42, 358, "DMA", ("AXI", f"{8 * AXI_BYTES} bit"), HARDWARE),
        Box(
            826,
            50,
            150,
            82,
            "DRAM model",
            ("latency, bandwidth,", "faults; pages shared", "with programs"),
            MEMORY,
        ),
        Box(826, 176, 150, 66, "task-level model", ("numpy, memory to", "memory, bit for bit"), CHECK),
        Box(826, 272, 150, 66, "graph-level model", ("numpy, each layer,", "bit for bit"), CHECK),
        Box(
            826,
            368,
            150,
            82,
            "what happened",
            ("waveforms, event log,", "counters, report,", "first difference"),
            CHECK,
        ),
    ]
    arrows = [
        arrow((115, 116), (115, 144)),
        arrow((115, 198), (115, 226)),
        arrow((200, 254), (222, 254), (222, 163), (244, 163)),
        arrow((200, 335), (232, 335), (232, 261), (244, 261)),
        arrow((200, 335), (232, 335), (232, 180), (244, 180)),
        arrow((396, 163), (412, 163), (412, 345), (398, 345)),
        arrow((321, 294), (321, 324)),
        arrow((200, 432), (428, 432), (428, 214), (480, 214)),
        arrow((396, 359), (428, 359), (428, 202), (480, 202)),
        arrow((482, 416), (321, 416), (321, 394), colour=red),
        arrow((537, 136), (537, 174)),
        arrow((592, 202), (606, 202), (606, 104), (618, 104)),
        arrow((658, 124), (658, 142)),
        arrow((658, 194), (658, 212)),
        arrow((658, 278), (658, 296)),
        arrow((658, 348), (658, 388)),
        arrow((712, 104), (698, 104)),
        arrow((696, 323), (710, 323)),
        arrow((696, 416), (710, 416)),
        arrow((754, 86), (824, 86)),
        arrow((826, 106), (756, 106)),
        arrow((901, 132), (901, 174)),
        arrow((901, 242), (901, 270)),
    ]
    engines = (
        Box(446, 506, 126, 46, "Verilator", ("default",), HARDWARE),
        Box(592, 506, 126, 46, "CXXRTL", ("the same cycles",), HARDWARE),
        Box(738, 506, 126, 46, "Amaranth", ("the same cycles",), HARDWARE),
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="Helvetica, Arial, sans-serif">',
        "<title>Models, programs and streams reach three cores of RTL through two kernel drivers</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        group(14, 38, 202, 436, "on the host"),
        group(234, 110, 174, 298, "kernel drivers"),
        text(450, 29, f"cycle-accurate RTL: {config.cores} cores", 13, GREY, "start"),
        *cores,
        group(812, 38, 176, 436, "memory and checks"),
        *(box.svg() for box in (*boxes, *engines)),
        *arrows,
        text(655, 578, "one design in three simulators; the golden model runs without cycles", 12, GREY),
    ]
    return "\n".join((*parts, "</svg>")) + "\n"


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(prog="python -m tools.overview", description=__doc__)
    parser.add_argument("output", type=Path, help="SVG file to write")
    parser.parse_args().output.write_text(picture())


if __name__ == "__main__":
    main()
