"""The pictures of the documentation, drawn again: `make pictures`, or `python -m tools.pictures [NAME...]`.

Most come from commands that stand on the page which shows them.  Screenshots need chromium, or GTKWave with
Xvfb and ImageMagick's `import`, or Neovim with nvim-dap and tmux (`tools/editor.py`); without these programs
they are left as they are, which is said.
`cocotb-pool.svg` is drawn by the commands of the tutorial in docs/howto/testbenches.md;
`structure_before.svg` shows a former state.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from tools import editor, interfaces, overview
from tools.timing.record import DIAGRAMS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
WIDTH = 1320
"""Pixels of a screen for GTKWave."""


class Missing(Exception):
    """A program that a picture needs is not installed."""


def run(command: str, codes: tuple[int, ...] = (0,)) -> None:
    """Run a command in the checkout, `rkcosim` and `python` with this interpreter; bounded in time."""
    words = shlex.split(command)
    start = {"rkcosim": [sys.executable, "-m", "rkcosim"], "python": [sys.executable]}
    words = start.get(words[0], [words[0]]) + words[1:]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode not in codes:
        raise RuntimeError(f"{command}\n{done.stdout}{done.stderr}")


def commands_of(page: str, kinds: str) -> list[tuple[str, int]]:
    """Commands of a page that match, with their exit codes; a backslash at a line's end joins lines."""
    found = []
    text = (DOCS / page).read_text().replace("\\\n> ", " ").replace("\\\n", " ")
    for line in re.findall(r"^(?:\$ )?(rkcosim .*)$", text, re.MULTILINE):
        command, _, remark = line.partition(" # ")
        if re.search(kinds, command):
            found.append((command, int(remark.removeprefix("exit code ")) if "exit code" in remark else 0))
    return found


def of_page(page: str, kinds: str, made: str = "") -> Callable[[Path], None]:
    """Draw with a page's commands; `made` is the file that they write, if it is not the picture itself."""

    def draw(picture: Path) -> None:
        for command, code in commands_of(page, kinds):
            run(command, (code,))
        if made:
            shutil.copy(ROOT / made, picture)

    return draw


def need(*programs: str) -> None:
    """See that programs are installed.

    Raises
    ------
    Missing
        names those that are not.
    """
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        raise Missing(f"needs {', '.join(missing)}")


def reduced(picture: Path) -> None:
    """Keep 256 colours, enough for a viewer but not for the colours of a chart."""
    with Image.open(picture) as image:
        small = image.convert("RGB").quantize(256)
    small.save(picture, optimize=True)


def page_shot(commands: tuple[tuple[str, int], ...], page: str, height: int) -> Callable[[Path], None]:
    """A picture of an HTML page in a browser."""

    def draw(picture: Path) -> None:
        need("chromium")
        for command, code in commands:
            run(command, (code,))
        address = (ROOT / page).as_uri()
        run(
            "chromium --headless --no-sandbox --disable-gpu --hide-scrollbars "
            f"--screenshot={shlex.quote(str(picture))} --window-size=1200,{height} {shlex.quote(address)}"
        )

    return draw


def gtkwave_shot(commands: tuple[tuple[str, int], ...], save: str, height: int) -> Callable[[Path], None]:
    """A picture of GTKWave with a save file, on a screen of its own."""

    def draw(picture: Path) -> None:
        need("gtkwave", "Xvfb", "import")
        for command, code in commands:
            run(command, (code,))
        display = ":97"
        screen = f"{WIDTH}x{height}x24"
        server = subprocess.Popen(["Xvfb", display, "-screen", "0", screen], stderr=subprocess.DEVNULL)
        viewer = None
        try:
            time.sleep(2)
            text = (ROOT / save).read_text()
            shot = (ROOT / save).with_name("shot.gtkw")
            shot.write_text(
                re.sub(r"^\[size\].*$", f"[size] {WIDTH} {height - 60}", text, flags=re.MULTILINE)
            )
            viewer = subprocess.Popen(
                ["gtkwave", "--rcvar", "hide_sst 1", str(shot)],
                env={**os.environ, "DISPLAY": display},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            time.sleep(8)
            crop = f"{WIDTH - 10}x{height - 60}+5+52"  # without the title, which has the file's path
            run(f"import -display {display} -window root -crop {crop} +repage {shlex.quote(str(picture))}")
        finally:
            for process in (viewer, server):
                if process is not None:
                    process.terminate()
                    process.wait(timeout=20)
        reduced(picture)

    return draw


def drawn_overview(picture: Path) -> None:
    """The picture of the project."""
    picture.write_text(overview.picture(), encoding="utf-8")


def drawn_interfaces(picture: Path) -> None:
    """Draw the interfaces."""
    picture.write_text(interfaces.picture(), encoding="utf-8")


def drawn_timing(name: str) -> Callable[[Path], None]:
    """A timing diagram, with its document."""
    return lambda picture: run(f"python -m tools.timing {name}")


def drawn_editor(picture: Path) -> None:
    """Draw the debugger in Neovim, with the stream and the reference of the story."""
    if what := editor.missing():
        raise Missing(f"{what} is missing")
    text = (DOCS / "stories/debugger.md").read_text()
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for line in re.findall(r"^\$ (.*)$", text, re.MULTILINE):
        if "--against" in line:
            break
        subprocess.run(line, shell=True, cwd=ROOT, env=os.environ | {"PATH": paths}, timeout=60, check=False)
    editor.draw(ROOT / "build/pad.json", ROOT / "build/right.npz", picture)


DIGITS = (
    "rkcosim run examples/digits/digits_int8.onnx --input examples/digits/held_back.npz --limit 1 --quiet"
)
HANG = tuple(commands_of("stories/no-interrupt.md", r"build/hang\.fst"))

PICTURES: dict[str, Callable[[Path], None]] = {
    "overview.svg": drawn_overview,
    "pictures/interfaces.svg": drawn_interfaces,
    "pictures/structure.svg": lambda picture: run(f"python -m tools.structure {picture}"),
    "pictures/pool.svg": of_page(
        "viewers.md", r"--trace build/pool\.fst|--svg build/window\.svg", "build/window.svg"
    ),
    "pictures/analyser.svg": of_page("viewers.md", r"--svg build/analyser\.svg", "build/analyser.svg"),
    "pictures/story-bank-split.svg": of_page("stories/bank-split.md", "--trace|--svg", "build/bank.svg"),
    "pictures/story-surface-stride.svg": of_page(
        "stories/surface-stride.md", "--trace|--svg", "build/stride.svg"
    ),
    "pictures/story-rknn-file.svg": of_page(
        "stories/rknn-file.md", "compile|--trace|--svg", "build/residual.svg"
    ),
    "pictures/story-debugger.svg": drawn_editor,
    **{f"pictures/timing-{name}.svg": drawn_timing(name) for name in DIAGRAMS},
    "pictures/report.png": page_shot(
        ((f"{DIGITS} --check --html build/digits.html", 0),), "build/digits.html", 1500
    ),
    "pictures/story-no-interrupt-report.png": page_shot(HANG, "build/hang.html", 1000),
    "pictures/gtkwave.png": gtkwave_shot(
        ((f"{DIGITS} --trace build/digits.fst", 0), ("rkcosim waves build/digits.fst --no-open", 0)),
        "build/digits.gtkw",
        1060,
    ),
    "pictures/story-no-interrupt-gtkwave.png": gtkwave_shot(HANG, "build/hang.gtkw", 1300),
}
"""Pictures by their path below docs/, with what draws each."""


def main() -> int:
    """Draw all pictures, or those that are named."""
    parser = argparse.ArgumentParser(prog="python -m tools.pictures", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PICTURES)}")
    names = parser.parse_args().names
    unknown = [name for name in names if name not in PICTURES]
    if unknown:
        parser.error(f"no picture is called {unknown[0]}; there are {', '.join(PICTURES)}")
    (ROOT / "build").mkdir(exist_ok=True)
    for name in names or PICTURES:
        try:
            PICTURES[name](DOCS / name)
            print(f"docs/{name}")
        except Missing as error:
            print(f"docs/{name}: left as it is, {error}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
