"""The tables of docs/energy.md: energies and their sources, networks, and the published power.

python -m benchmarks.energy [--page FILE]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from rkcosim.base import BAD_INPUT
from rkcosim.measure.energy.estimate import RunEnergy, energy_of
from rkcosim.measure.energy.published import published
from rkcosim.measure.energy.table import LEVELS
from rkcosim.measure.energy.text import basis_page, events_page
from rkcosim.measure.perf.boards.networks import NetworkError, network_file
from rkcosim.measure.perf.estimator.files import estimate_file
from rkcosim.measure.perf.page import table, write_section
from rkcosim.measure.report.data import from_json

NETWORKS = ("mobilenet_v1", "mobilenet_v2", "resnet50", "yolov5s_relu", "yolov8n")
RANGES = 5


def network_energy(name: str, cores: int) -> RunEnergy:
    """Estimate the energy of a network of `examples/networks/make.py`.

    Raises
    ------
    NetworkError
        If it cannot be made here.
    """
    data = network_file(name).read_bytes()
    return energy_of(from_json(estimate_file(name, data, cores=cores, plans=("ours",)).document))


def networks_page(found: list[tuple[int, RunEnergy]]) -> str:
    """Return the table of networks as Markdown."""
    rows = []
    for cores, one in found:
        ranked = sorted(one.blocks().items(), key=lambda item: -item[1])[:4]
        rows.append(
            (
                f"`{one.title}`",
                cores,
                f"{one.seconds * 1e3:.2f}",
                ", ".join(f"{one.joules(level) * 1e3:.2f}" for level in LEVELS),
                ", ".join(f"{one.watts(level):.2f}" for level in LEVELS),
                ", ".join(f"{block} {part / one.joules():.0%}" for block, part in ranked),
            )
        )
    heads = ("network", "cores", "ms", "mJ: low, typical, high", "W: low, typical, high", "largest blocks")
    return "\n".join(table(heads, rows))


def ranges_page(found: list[tuple[int, RunEnergy]]) -> str:
    """Return what the range of single energies changes, as Markdown."""
    rows = []
    for _, one in found:
        whole = one.joules()
        parts = [
            f"{event} {least / whole - 1:+.0%} to {most / whole - 1:+.0%}"
            for event, least, most in one.sensitivity()[:RANGES]
        ]
        rows.append((f"`{one.title}`", *parts))
    return "\n".join(table(("network", *(f"{n + 1}." for n in range(RANGES))), rows))


def published_rows() -> Iterator[tuple[object, ...]]:
    """Yield the cells of the published figures beside the estimates."""
    for row in published():
        found = row.energy()
        yield (
            row.model,
            row.type,
            f"{row.tokens_per_second:g}",
            f"{row.bytes * row.tokens_per_second / 1e9:.1f}",
            f"{found.joules() * 1e3:,.0f}",
            ", ".join(f"{found.watts(level):.2f}" for level in LEVELS),
            f"{row.npu_watts:g} ± {row.error_watts:g}",
            f"{found.watts() / row.npu_watts:.0%}",
            f"{row.cpu_watts:g}",
        )


def main(words: list[str] | None = None) -> int:
    """Run the command; return 0."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.energy", description=(__doc__ or "").split("\n")[0]
    )
    made.add_argument("--page", type=Path, help="page to write: docs/energy.md")
    given = made.parse_args(words)
    try:
        found = [(1, network_energy(name, 1)) for name in NETWORKS]
        three = [(3, network_energy(name, 3)) for name in NETWORKS[2:]]
    except NetworkError as error:
        print(f"benchmarks.energy: {error}", file=sys.stderr)
        return BAD_INPUT
    heads = (
        *("model", "file", "tokens/s", "GB/s", "mJ a token", "estimated W: low, typical, high"),
        *("published W", "typical of published", "W of the processors alone"),
    )
    sections = {
        "energies": events_page(),
        "calculations": basis_page(),
        "networks": networks_page(found + three),
        "ranges": ranges_page(found),
        "published": "\n".join(table(heads, published_rows())),
    }
    for name, text in sections.items():
        if given.page:
            write_section(name, text, given.page)
        else:
            print(f"{name}\n\n{text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
