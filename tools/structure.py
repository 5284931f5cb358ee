"""The structure of the package: its modules, their imports, and a picture of its rooms.

    python -m tools.structure docs/structure.svg            # rooms of this checkout, in their order
    python -m tools.structure before.svg --root DIR --rooms rtl,sw.regcmd,...

The picture is a dependency matrix: rooms in their order as rows and columns, and in each cell the number
of import statements in the row's room for the column's room.  Imports against the order are right of the
diagonal, in red.  The rooms down to `cli` are the core of the package; those of `apis` are the programming
interfaces of others, which the core never imports.
"""

from __future__ import annotations

import argparse
import ast
import os
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "rkcosim"
BESIDE = ("benchmarks", "tools")
"""Folders of programs beside the package, which no room of it imports."""

ORDER = (
    ("base",),
    ("spec",),
    ("hostops",),
    ("rtl",),
    ("golden",),
    ("regcmd",),
    ("waves",),
    ("engines",),
    ("compiler",),
    ("rknn_file",),
    ("driver",),
    ("rknn_api",),
    ("running",),
    ("verify",),
    ("devices",),
    ("measure",),
    ("model",),
    ("debug",),
    ("export",),
    ("cocotb",),
    ("cli", "__main__"),
    ("apis.link",),
    *(
        (f"apis.{name}",)
        for name in ("custom_operators", "litert", "ort", "nnapi", "hexagon", "tnn", "diopi")
    ),
    ("benchmarks",),
    ("tools",),
)
"""Rooms in their order: each imports only rooms of its own line and of lines above it."""

ROOMS = tuple(name for names in ORDER for name in names)
CORE = frozenset(ROOMS[: ROOMS.index("apis.link")])
"""The rooms of the package without the interfaces of `apis`."""

CELL, LEFT, TOP = 30, 190, 120


@cache
def modules(root: Path = ROOT, package: str = PACKAGE) -> dict[str, Path]:
    """Return the modules below `root / package` with their files, by name without the package.

    Those of the folders `BESIDE` are among them, by their whole names.  Links are followed; pages and
    examples are excluded.
    """
    found = {}
    for start, beside in ((package, ""), *((name, name) for name in BESIDE if package)):
        for folder, names, files in os.walk(root / start, followlinks=True):
            names[:] = sorted(set(names) - {"docs", "examples", "tests", "benchmarks", "build"})
            place = tuple(filter(None, (beside, *Path(folder).relative_to(root / start).parts)))
            for path in (Path(folder, file) for file in sorted(files) if file.endswith(".py")):
                found[".".join(place if path.stem == "__init__" else (*place, path.stem))] = path
    return found


def room_of(module: str, rooms: Sequence[str] = ROOMS) -> str:
    """Return the room of a module, empty if it is in none."""
    return max((one for one in rooms if f"{module}.".startswith(f"{one}.")), key=len, default="")


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file, which is parsed once."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def imported(path: Path) -> tuple[str, ...]:
    """Return the names that a file imports anywhere: at its top, within functions, or only for types."""
    names: list[str] = []
    left: list[ast.AST] = [parsed(path)]
    while left:  # like ast.walk, but not into expressions, which hold no import
        for node in ast.iter_child_nodes(left.pop()):
            if isinstance(node, ast.Import):
                names += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{path}: a relative import"
                names += [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
                left.append(node)
    return tuple(names)


@cache
def graph(root: Path = ROOT, package: str = PACKAGE) -> dict[str, Counter[str]]:
    """Return module -> imported modules with the number of imports; a module's names count as the module."""
    known, start = modules(root, package), f"{package}." if package else ""
    edges = {}
    for name, path in known.items():
        own = [
            one.removeprefix(start)
            for one in imported(path)
            if one.startswith((start, *(f"{folder}." for folder in BESIDE)))
        ]
        homes = (one if one in known else one.rpartition(".")[0] for one in own)
        edges[name] = Counter(home for home in homes if home in known and home not in (name, ""))
    return edges


def matrix(rooms: Sequence[str], edges: dict[str, Counter[str]]) -> Counter[tuple[str, str]]:
    """Return the imports between rooms: (importer, imported) -> number."""
    found: Counter[tuple[str, str]] = Counter()
    for module, others in edges.items():
        for other, count in others.items():
            pair = room_of(module, rooms), room_of(other, rooms)
            if all(pair) and pair[0] != pair[1]:
                found[pair] += count
    return found


def picture(rooms: Sequence[str], lines: dict[str, int], imports: Counter[tuple[str, str]]) -> str:
    """Return the matrix as SVG."""
    size = CELL * len(rooms)
    against = sum(n for (a, b), n in imports.items() if rooms.index(b) > rooms.index(a))
    title = f"{sum(imports.values()) - against} imports along the order of rooms, {against} against it"
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + size + 20} {TOP + size + 30}" '
        'font-family="sans-serif" font-size="12">',
        f'<title>{title}</title><rect width="100%" height="100%" fill="white"/>',
    ]
    for y, room in enumerate(rooms):
        place = TOP + CELL * y
        out.append(f'<text x="{LEFT - 8}" y="{place + 19}" text-anchor="end">{room} ({lines[room]:,})</text>')
        out.append(f'<text transform="translate({LEFT + CELL * y + 19} {TOP - 8}) rotate(-60)">{room}</text>')
        for x, other in enumerate(rooms):
            count, left = imports[room, other], LEFT + CELL * x
            fill = "#444" if x == y else "#fff" if not count else "#cfe3f7" if x < y else "#f4a9a0"
            out.append(
                f'<rect x="{left}" y="{place}" width="{CELL}" height="{CELL}" fill="{fill}" stroke="#bbb"/>'
            )
            if count:
                out.append(f'<text x="{left + 15}" y="{place + 19}" text-anchor="middle">{count}</text>')
    out.append(f'<text x="{LEFT}" y="{TOP + size + 20}">{title}</text></svg>')
    return "\n".join(out) + "\n"


def main() -> None:
    """Draw the rooms of a checkout."""
    parser = argparse.ArgumentParser(prog="python -m tools.structure", description=__doc__)
    parser.add_argument("output", type=Path, help="SVG file to write")
    parser.add_argument("--root", type=Path, default=ROOT, help="checkout (default: this one)")
    parser.add_argument("--rooms", help="rooms of another layout in their order, with commas, from its root")
    given = parser.parse_args()
    rooms = given.rooms.split(",") if given.rooms else list(ROOMS)
    package = "" if given.rooms else PACKAGE
    lines = {
        room: sum(
            len(path.read_text().splitlines())
            for name, path in modules(given.root, package).items()
            if f"{name}.".startswith(f"{room}.")
        )
        for room in rooms
    }
    given.output.write_text(picture(rooms, lines, matrix(rooms, graph(given.root, package))))


if __name__ == "__main__":
    main()
