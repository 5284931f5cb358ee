"""Many changed files of all kinds in processes that are replaced only if one dies or has done its share.

`python -m tools.file_fuzz_many --minutes 30 --json counts.json` gives each kind the same time in turn, with a
new seed for each share, and adds the counts up. A process that a file ends (a fault, a kill for lack of
memory) is counted as one wrong input of its kind, with the seed that shows it again.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tools.file_fuzz import KINDS, fuzz_files

CHUNK, MOST = 10, 5000
"""Number of files after which a share looks at its time: at first, and at most."""

LONG = 2.0
"""Seconds of a chunk up to which the next one is twice as large."""

LIMIT = 120.0
"""Seconds after its share in which a process must have ended."""


def share(kind: str, seed: int, seconds: float) -> None:
    """Change files of a kind until the time is over, and print a line of JSON for each chunk of them."""
    end, chunk = time.monotonic() + seconds, CHUNK
    while time.monotonic() < end:
        began = time.monotonic()
        report = fuzz_files(seed, chunk, [kind])[kind]
        found = {
            "seed": seed,
            "inputs": report.inputs,
            "taken": report.taken,
            "refused": dict(report.refused),
            "wrong": report.wrong,
            "slowest": report.slowest,
            "seconds": time.monotonic() - began,
        }
        print(json.dumps(found), flush=True)
        seed += 1
        if time.monotonic() - began < LONG:
            chunk = min(2 * chunk, MOST)


def run_share(kind: str, seed: int, seconds: float, into: dict[str, Any]) -> int:
    """Run a share in a process of its own and add its counts; return the next seed."""
    words = [sys.executable, "-m", "tools.file_fuzz_many", "--share", kind, "--seed", str(seed)]
    words += ["--seconds", str(seconds)]
    done = seed
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as child:
        assert child.stdout is not None
        try:
            out, _ = child.communicate(timeout=seconds + LIMIT)
            ended = f"ended with {child.returncode}" if child.returncode else ""
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            out, _ = child.communicate()
            ended = "did not end"
    for line in out.splitlines():
        found = json.loads(line)
        done = found["seed"] + 1
        into["inputs"] += found["inputs"]
        into["taken"] += found["taken"]
        for name, count in found["refused"].items():
            into["refused"][name] = into["refused"].get(name, 0) + count
        into["wrong"] += [f"seed {found['seed']}: {text}" for text in found["wrong"]]
        into["slowest"] = max(into["slowest"], found["slowest"])
        into["seconds"] += found["seconds"]
    if ended:
        into["inputs"] += 1
        into["wrong"].append(f"seed {done}: the process {ended}")
        done += 1
    return done


def main() -> int:
    """Run shares of all kinds in turn and print a table; the exit code is 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tools.file_fuzz_many", description=main.__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="time of all kinds (%(default)s)")
    parser.add_argument("--seconds", type=float, default=20.0, help="time of a share (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="first seed of each kind (%(default)s)")
    parser.add_argument("--kinds", nargs="*", choices=list(KINDS), default=list(KINDS), help="kinds; all")
    parser.add_argument("--json", type=Path, help="file for the counts, written after each share")
    parser.add_argument("--share", choices=list(KINDS), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.share:
        share(asked.share, asked.seed, asked.seconds)
        return 0
    counts: dict[str, Any] = {
        kind: {"inputs": 0, "taken": 0, "refused": {}, "wrong": [], "slowest": 0.0, "seconds": 0.0}
        for kind in asked.kinds
    }
    seeds = dict.fromkeys(asked.kinds, asked.seed)
    end = time.monotonic() + 60 * asked.minutes
    while time.monotonic() < end:
        for kind in asked.kinds:
            seeds[kind] = run_share(kind, seeds[kind], asked.seconds, counts[kind])
            if asked.json:
                asked.json.write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")
            if time.monotonic() >= end:
                break
    print("| kind | inputs | read | refused | wrong | slowest |\n| --- | --- | --- | --- | --- | --- |")
    for kind, found in counts.items():
        refused = sum(found["refused"].values())
        print(
            f"| {kind} | {found['inputs']:,} | {found['taken']:,} | {refused:,} | {len(found['wrong'])} "
            f"| {found['slowest']:.1f} s |"
        )
    for kind, found in counts.items():
        for text in found["wrong"][:20]:
            print(f"{kind}: {text}")
    return 1 if any(found["wrong"] for found in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
