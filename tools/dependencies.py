"""The packages that the project uses: lowest versions, exact versions for CI, licences.

    python -m tools.dependencies lowest                  # constraints: each package in its lowest version
    python -m tools.dependencies lock .ci/constraints.txt  # constraints: what is installed here, exactly
    python -m tools.dependencies licences                # name, version and licence of what is installed here

The first command needs nothing but Python, so that it can prepare an environment (`make test-lowest`).  The
others describe the environment in which they run, and of that only what `rkcosim[dev,docs]` needs, directly
or through other packages.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

NAME = re.compile(r"[A-Za-z0-9._-]+")
BOUND = re.compile(r"(?:>=|~=|==)\s*([0-9][0-9.]*?(?:\.post[0-9]+)?)(?:\.\*)?\s*(?:[,;]|$)")

BESIDE = ("pip", "setuptools", "wheel")
"""What builds and installs packages, and is needed although no package says so."""


def normal(name: str) -> str:
    """Return a project's name in the form in which names are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(project: Path = ROOT / "pyproject.toml") -> list[str]:
    """Return all requirements of the project, its extras and its build, but those for an extra of itself."""
    found = tomllib.loads(project.read_text("utf-8"))
    extras = found["project"]["optional-dependencies"].values()
    lines = [*found["build-system"]["requires"], *found["project"]["dependencies"]]
    lines += [line for extra in extras for line in extra]
    own = found["project"]["name"]
    return [line for line in dict.fromkeys(lines) if not re.match(rf"{own}\b", line)]


def lowest() -> list[str]:
    """Return a constraint for each package: the lowest version that the project allows.

    Raises
    ------
    ValueError
        for a requirement without a lower bound.
    """
    found: dict[tuple[str, str], tuple[tuple[int, ...], str]] = {}
    for line in requirements():
        wanted, _, marker = line.partition(";")
        name, bound = NAME.match(wanted), BOUND.search(wanted)
        if name is None or bound is None:
            raise ValueError(f"pyproject.toml: '{line}' has no lower bound")
        key = (normal(name[0]), marker.strip())
        version = tuple(map(int, re.findall("[0-9]+", bound[1])))
        text = f"{name[0]}=={bound[1].strip('.')}" + (f"; {marker.strip()}" if marker else "")
        found[key] = max(found.get(key, ((), "")), (version, text))  # two bounds: the higher one counts
    return [text for _, text in found.values()]


def installed(extras: tuple[str, ...] = ("dev", "docs")) -> list[metadata.Distribution]:
    """Return what is installed of what the project needs, directly or not, by name."""
    from packaging.requirements import Requirement

    every = {normal(item.metadata["Name"]): item for item in metadata.distributions()}
    seen: set[tuple[str, str]] = set()
    waiting: list[tuple[str, str]] = [("rkcosim", extra) for extra in ("", *extras)]
    waiting += [(name, "") for name in BESIDE]
    while waiting:
        name, extra = waiting.pop()
        item = every.get(name)
        if item is None or (name, extra) in seen:
            continue
        seen.add((name, extra))
        for line in item.requires or []:
            need = Requirement(line)
            if need.marker is None or need.marker.evaluate({"extra": extra}):
                waiting += [(normal(need.name), more) for more in ("", *need.extras)]
    names = sorted({name for name, _ in seen} - {"rkcosim"})
    return [every[name] for name in names]


def licence(item: metadata.Distribution) -> str:
    """Return the licence of a package as its metadata names it, in one line."""

    def members(name: str) -> list[str]:
        return [text for text in item.metadata.get_all(name) or () if text.strip()]

    marks = [m.rpartition(" :: ")[2] for m in members("Classifier") if m.startswith("License ::")]
    named = members("License-Expression") or [", ".join(marks)] * bool(marks) or members("License")
    return named[0].strip().partition("\n")[0][:90] if named else "none stated"


def lock() -> Iterator[str]:
    """Yield the constraints of a lock file."""
    yield "# Exact versions for .ci/run; written by: python -m tools.dependencies lock .ci/constraints.txt"
    for item in installed():
        if normal(item.metadata["Name"]) not in BESIDE[:1]:
            yield f"{item.metadata['Name']}=={item.version}"


def main(arguments: list[str] | None = None) -> int:
    """Run the program; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("lowest", "lock", "licences"))
    parser.add_argument("file", nargs="?", type=Path, help="file to write; default: standard output")
    given = parser.parse_args(arguments)
    if given.what == "lowest":
        lines = lowest()
    elif given.what == "lock":
        lines = list(lock())
    else:
        lines = [f"{item.metadata['Name']} {item.version}: {licence(item)}" for item in installed()]
    text = "".join(f"{line}\n" for line in lines)
    if given.file is None:
        sys.stdout.write(text)
    else:
        given.file.parent.mkdir(parents=True, exist_ok=True)
        given.file.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
