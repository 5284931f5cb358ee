"""Synthesise the NPU core and its blocks with Yosys, find their longest paths with OpenSTA, and write a page.

Results are kept in a folder, so that a run that was ended goes on where it was.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rkcosim.engines.toolchain import yosys
from rkcosim.waves.whole_file import whole_file
from tools.synthesis import netlist, timing
from tools.synthesis.blocks import blocks
from tools.synthesis.flows import LIBERTY, Bounds
from tools.synthesis.modules import Hierarchy
from tools.synthesis.page import Facts, page
from tools.synthesis.work import SynthesisError, core, key_of, measure

FOLDER = Path("build/synthesis")


def paths_of(
    hierarchy: Hierarchy, modules: Sequence[str], folder: Path, jobs: int, bounds: Bounds
) -> dict[str, dict[str, Any]]:
    """Return the longest path of each module with its submodules, or why there is none."""
    place = folder / "paths"
    place.mkdir(parents=True, exist_ok=True)

    def one(top: str) -> dict[str, Any]:
        digest = hashlib.sha256(timing.COMMANDS.encode() + Path(netlist.__file__).read_bytes())
        for module in hierarchy.below(top):
            same = hierarchy.representative(module)
            digest.update(f"{module} {key_of('cells', hierarchy.source(same))}".encode())
        digest.update(str((folder / "netlists").is_dir()).encode())
        kept, key = place / f"{top}.json", digest.hexdigest()
        if kept.is_file():
            found: dict[str, Any] = json.loads(kept.read_text())
            if found["key"] == key and ("error" not in found or not jobs):
                return found
        if not jobs:
            return {"error": "not run"}
        try:
            found = timing.longest(hierarchy, top, folder / "netlists", bounds)
        except timing.TimingError as error:
            found = {"error": str(error)}
        found["key"] = key
        with whole_file(kept) as part:
            part.write_text(json.dumps(found, indent=1) + "\n")
        text = found.get("error") or f"{found['nanoseconds']} ns"
        print(f"paths {top:60} {text}", flush=True)
        return found

    with ThreadPoolExecutor(max(jobs, 1)) as pool:
        return dict(zip(modules, pool.map(one, modules), strict=True))


def versions() -> list[str]:
    """Names and versions of the programs."""
    program = shutil.which("sta")
    found = [yosys().version, f"the Liberty file {LIBERTY.name}"]
    if program:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
        found.append(f"OpenSTA {done.stdout.split()[0]}" if done.stdout.split() else "OpenSTA")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.synthesis", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="modules to synthesise; default: all")
    parser.add_argument("--page", type=Path, help="write the page to this file")
    parser.add_argument(
        "--folder", type=Path, default=FOLDER, help=f"where results are kept (default: {FOLDER})"
    )
    parser.add_argument(
        "--flow", choices=["fpga", "cells", "paths"], action="append", help="only these steps"
    )
    parser.add_argument(
        "--jobs", type=int, default=2, help="processes at the same time; 0: only what is known (default: 2)"
    )
    parser.add_argument("--seconds", type=int, default=1200, help="bound of one process (default: 1200)")
    parser.add_argument("--memory", type=int, default=8, help="bound of one process in GiB (default: 8)")
    given = parser.parse_args(arguments)
    bounds = Bounds(given.seconds, given.memory)
    if not LIBERTY.is_file() or shutil.which("sta") is None:
        parser.error("needs the distribution packages qflow-tech-osu018 and opensta")
    try:
        hierarchy = core(given.folder)
    except SynthesisError as error:
        print(error)
        return 1
    unknown = set(given.modules) - set(hierarchy.units)
    if unknown:
        parser.error(f"no module is called {', '.join(sorted(unknown))}")
    names = given.modules or list(hierarchy.units)
    steps = given.flow or ["fpga", "cells", "paths"]
    results: dict[str, dict[str, Any]] = {}

    def told(name: str, found: dict[str, Any]) -> None:
        text = found.get("error") or f"{found['seconds']} s"
        print(f"{flow:5} {name:60} {text}", flush=True)

    for flow in ("fpga", "cells"):
        if flow in steps:
            results[flow] = measure(
                hierarchy, flow, names, given.folder, jobs=given.jobs, bounds=bounds, told=told
            )
    shown = blocks(hierarchy)
    if "paths" in steps:
        tops = [block.module for block in shown if not given.modules or block.module in given.modules]
        found = paths_of(hierarchy, list(dict.fromkeys(tops)), given.folder, given.jobs, bounds)
        if given.page:
            facts = Facts(hierarchy, shown, results, found, versions())
            given.page.write_text(page(facts))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
