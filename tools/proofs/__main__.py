"""Prove blocks of the RTL, find the planted faults, and write the page of proofs.

    python -m tools.proofs                        # all proofs
    python -m tools.proofs skid_buffer bs         # some
    python -m tools.proofs --page docs/results/proofs.md  # all, and the page
    python -m tools.proofs --export build/proofs  # only files for SymbiYosys, SMT-LIB 2, AIGER

Every proof and every fault runs in a process of its own, because a fault changes a module before it is
imported. The record (build/proofs.json) keeps what is known of these sources, so that a run that was stopped
goes on where it was. The exit code is 1 if a claim fails, a false claim holds, or a fault is not found.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rkcosim.base import version
from rkcosim.waves.whole_file import whole_file
from tools.proofs.catalog import PROOFS
from tools.proofs.faults import plant
from tools.proofs.page import page
from tools.proofs.plan import Proof

ROOT = Path(__file__).resolve().parents[2]
RECORD = Path("build/proofs.json")


def one(name: str, fault: int | None) -> dict[str, Any]:
    """Run a proof with its false claim, or look for one of its faults, in this process.

    Raises
    ------
    ProofError, FaultError
        If there is no verdict, or the fault cannot be planted.
    """
    proof = next(proof for proof in PROOFS if proof.name == name)
    if fault is not None:
        plant(proof.faults[fault])
    from tools.proofs import solve  # behind the fault

    if fault is not None:
        return asdict(solve.find_failure(proof))
    result, asserted = solve.prove(proof), solve.assertions_hold(proof)
    return asdict(result) | {
        "false": asdict(solve.false_claim(proof)),
        "asserted": asserted and asdict(asserted),
        "text": proof.text(),
    }


def _apart(proof: Proof, fault: int | None) -> dict[str, Any]:
    """Run `one` in another process."""
    command = [sys.executable, "-W", "ignore", "-m", "tools.proofs", "--one", proof.name]
    command += [] if fault is None else ["--fault", str(fault)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return {"error": lines[-1] if lines else f"exit code {done.returncode}"}
    return dict(json.loads(done.stdout))


def measured(proof: Proof) -> dict[str, Any]:
    """Return everything about a proof: its result, its false claim and its faults."""
    found = _apart(proof, None)
    found["faults"] = [_apart(proof, number) for number in range(len(proof.faults))]
    return found


def wrong(proof: Proof, found: dict[str, Any]) -> list[str]:
    """Return what is wrong with a proof, as sentences; nothing if it is as it should be."""
    if "error" in found:
        return [f"{proof.name}: {found['error']}"]
    failed = [claim for claim in found["claims"] if not claim["holds"]]
    out = [f"{proof.name}: the claim {claim['name']!r} fails {claim['text']}" for claim in failed]
    if found["false"]["holds"] is not False:
        out.append(f"{proof.name}: the states that must be reachable are not all reached")
    if found["asserted"] and found["asserted"]["holds"] is not True:
        out.append(f"{proof.name}: an assertion of the RTL fails {found['asserted']['text']}")
    for fault, result in zip(proof.faults, found["faults"], strict=True):
        if result.get("holds") is not False:
            out.append(f"{proof.name}: a fault is not found: {fault.meaning} {result.get('error', '')}")
    return out


def _sources() -> str:
    digest = hashlib.sha256(version().encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _known(record: Path) -> dict[str, Any]:
    if record.is_file():
        kept = json.loads(record.read_text(encoding="utf-8"))
        if kept.get("sources") == _sources():
            return dict(kept["proofs"])
    return {}


def _exported(proofs: Sequence[Proof], folder: Path) -> int:
    """Write proofs for other programs; return the exit code."""
    from tools.proofs.solve import ProofError
    from tools.proofs.symbiyosys import write

    folder.mkdir(parents=True, exist_ok=True)
    for proof in proofs:
        try:
            files = write(proof, folder, graphs=True)
        except ProofError as error:
            print(error, file=sys.stderr)
            return 1
        print(", ".join(str(file) for file in files))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.proofs", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="proofs; default: all")
    parser.add_argument("--page", type=Path, help="write the page of proofs to this file")
    parser.add_argument(
        "--record", type=Path, default=RECORD, help=f"what is known already (default: {RECORD})"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes at the same time (default: 2)")
    parser.add_argument(
        "--export", type=Path, metavar="DIR", help="only write the proofs as RTLIL, .sby, .smt2 and .aig"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--fault", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one:
        print(json.dumps(one(given.one, given.fault)))
        return 0
    unknown = set(given.names) - {proof.name for proof in PROOFS}
    if unknown:
        parser.error(f"no proof is called {', '.join(sorted(unknown))}")
    chosen = [proof for proof in PROOFS if not given.names or proof.name in given.names]
    if given.export:
        return _exported(chosen, given.export)
    known = _known(given.record)
    missing = [proof for proof in chosen if proof.name not in known]
    sources = _sources()
    given.record.parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(given.jobs) as pool:
        running = {pool.submit(measured, proof): proof for proof in missing}
        for done in as_completed(running):
            known[running[done].name] = done.result()
            with whole_file(given.record) as part:
                part.write_text(json.dumps({"sources": sources, "proofs": known}, indent=1) + "\n")
    problems = []
    for proof in chosen:
        found = known[proof.name]
        bad = wrong(proof, found)
        problems += bad
        print(f"{'FAILED' if bad else 'ok':6} {proof.name:26} {found.get('seconds', 0):7.1f} s")
    print(
        "\n".join(problems) or f"{len(chosen)} proofs hold; every false claim fails and every fault is found"
    )
    if given.page and not problems:
        given.page.write_text(page(chosen, known))
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
