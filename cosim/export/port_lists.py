"""The checked-in port lists: `python -m cosim.export.port_lists` compares, with `--write` renews them."""

from __future__ import annotations

import sys
from pathlib import Path

from cosim.export.designs import EXPORTABLE, Exportable
from cosim.export.export import port_table, ports_of
from rtl.config import RK3588, NpuConfig

FOLDER = Path(__file__).parent / "ports"
"""A file for each module; the ports are the same in every geometry."""


def port_list(item: Exportable, config: NpuConfig = RK3588) -> str:
    """The ports of a design as they stand in its file."""
    return "\n".join([f"# {item.module}: {item.summary}", *port_table(ports_of(item, config)), ""])


def differences(config: NpuConfig = RK3588) -> list[str]:
    """What differs from the files, a line each."""
    found = []
    known = {path.stem for path in FOLDER.glob("*.txt")}
    for item in EXPORTABLE.values():
        path = FOLDER / f"{item.module}.txt"
        if item.module not in known:
            found.append(f"{path.name} is missing")
            continue
        old, new = path.read_text().splitlines(), port_list(item, config).splitlines()
        found += [f"{path.name}: no longer {line!r}" for line in old if line not in new]
        found += [f"{path.name}: now {line!r}" for line in new if line not in old]
        if old != new and sorted(old) == sorted(new):
            found.append(f"{path.name}: another order")
    modules = {item.module for item in EXPORTABLE.values()}
    found += [f"{name}.txt belongs to nothing that is exported" for name in sorted(known - modules)]
    return found


def write() -> None:
    """Renew the files."""
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.txt"):
        path.unlink()
    for item in EXPORTABLE.values():
        (FOLDER / f"{item.module}.txt").write_text(port_list(item))


def main() -> int:
    """Compare, or renew with `--write`; 1 if something differs."""
    if "--write" in sys.argv[1:]:
        write()
        return 0
    found = differences()
    print("\n".join(found) or "the port lists are those of the source")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
