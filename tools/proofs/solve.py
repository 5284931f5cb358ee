"""From a proof to a verdict: RTLIL of Amaranth, an and-inverter graph of Yosys, checks of ABC.

ABC's engine `pdr` (property-directed reachability) finds an invariant that holds in all cycles, or a run that
breaks the claims; `bmc3` looks for such a run in a bounded number of cycles. Both programs are in the package
pyosys.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from amaranth.back import rtlil

from rkcosim.engines.toolchain import yosys
from tools.proofs.bench import Asserted, Bench
from tools.proofs.plan import Proof

PASSES = (
    "hierarchy -top top",
    "proc",
    "flatten",
    "opt_clean",
    "memory_map",
    "opt -keepdc -fast",
    "async2sync",
    "chformal -early",
    "opt -full",
    "simplemap",
    "techmap",
    "opt -fast",
    "dffunmap",
    "setundef -undriven -anyseq",
    "aigmap",
    "opt_clean",
)
"""Passes between the RTLIL and the graph; memories become registers."""


class ProofError(Exception):
    """A proof could not be run: a program is missing, or it failed without a verdict."""


@dataclass(frozen=True)
class Verdict:
    """Result of one check.

    Members
    -------
    holds : whether the claims hold; None: the time was not sufficient.
    text : the failed claim with its cycle, or why there is no verdict.
    cycle : the cycle in which the claims fail; -1 if they do not.
    seconds : time of the check.
    registers, gates : bits of registers and number of AND gates of the graph.
    """

    holds: bool | None
    text: str
    seconds: float
    registers: int = 0
    gates: int = 0
    cycle: int = -1


def abc_program() -> str:
    """Return the path of ABC.

    Raises
    ------
    ProofError
        If it is not installed.
    """
    spec = find_spec("pyosys")
    for place in spec.submodule_search_locations or [] if spec else []:
        if (program := Path(place, "yosys-abc")).exists():
            return str(program)
    found = shutil.which("yosys-abc") or shutil.which("berkeley-abc") or shutil.which("abc")
    if found is None:
        raise ProofError("ABC not found: pip install pyosys")
    return found


@dataclass(frozen=True)
class Claim:
    """Result of one claim.

    Members
    -------
    name : the claim as a sentence.
    holds : whether it holds; None: the time was not sufficient for any cycle.
    cycles : number of cycles for which it holds; None: all.
    text : where it fails.
    """

    name: str
    holds: bool | None
    cycles: int | None
    text: str = ""


@dataclass(frozen=True)
class Result:
    """Result of a proof: its claims, the seconds, and the size of the largest graph after simplification."""

    claims: Sequence[Claim]
    seconds: float
    registers: int
    gates: int


def prove(proof: Proof) -> Result:
    """Check the claims of a proof: together, then one by one, then those without a verdict to the depth.

    Raises
    ------
    ProofError
        If Yosys or ABC fails.
    """
    start = time.monotonic()
    limit = min(proof.together, proof.seconds)
    whole, names = _run(proof, "all", every_cycle=True, seconds=limit)
    runs = [whole]
    claims = [Claim(name, True, None) for name in names]
    if not whole.holds:
        claims = []
        for number, name in enumerate(names):
            alone, _ = _run(proof, number, every_cycle=True, seconds=proof.seconds)
            runs.append(alone)
            cycles = None
            if alone.holds is None:
                alone, _ = _run(proof, number, every_cycle=False)
                cycles = proof.depth
            claims.append(Claim(name, alone.holds, cycles, alone.text))
    registers, gates = max(run.registers for run in runs), max(run.gates for run in runs)
    return Result(claims, time.monotonic() - start, registers, gates)


def find_failure(proof: Proof) -> Verdict:
    """Look for a run that breaks the claims within the depth of the proof, and name those that it breaks.

    Raises
    ------
    ProofError
        If Yosys or ABC fails.
    """
    whole, claims = _run(proof, "all", every_cycle=False)
    if whole.holds is not False:
        return whole
    depth = whole.cycle + 1
    failed = [
        name
        for number, name in enumerate(claims)
        if _run(proof, number, every_cycle=False, depth=depth)[0].holds is False
    ]
    return replace(whole, text=f"{'; '.join(failed)} ({whole.text})")


def false_claim(proof: Proof) -> Verdict:
    """Check the claim that the states of `reach` are not all seen within the depth; it must fail.

    Raises
    ------
    ProofError
        If Yosys or ABC fails.
    """
    return _run(proof, "false", every_cycle=False)[0]


def assertions_hold(proof: Proof) -> Verdict | None:
    """Check the assertions of a proof's block in the RTL, in all cycles, or else within the proof's depth.

    Returns None if the block has none, or if the proof says why they are not checked.

    Raises
    ------
    ProofError
        If Yosys or ABC fails.
    """
    if proof.unchecked or not has_assertions(proof):
        return None
    always, _ = _run(proof, "rtl", every_cycle=True, seconds=min(proof.together, proof.seconds))
    if always.holds is not None:
        return always
    found, _ = _run(proof, "rtl", every_cycle=False)
    return replace(found, text=f"in the first {proof.depth} cycles") if found.holds else found


def has_assertions(proof: Proof) -> bool:
    """Return whether the block of a proof has assertions in the RTL about what it does."""
    bench = Bench(assertions=True)
    proof.build(bench)
    bench.top("all")
    return bench.collected is not None and bool(bench.collected.claims)


def _run(
    proof: Proof, asserted: Asserted, *, every_cycle: bool, depth: int = 0, seconds: int = 0
) -> tuple[Verdict, Sequence[str]]:
    """Check a claim; also return the names of all claims."""
    bench = Bench(assertions=asserted == "rtl")
    proof.build(bench)
    top, ports = bench.top(asserted)
    depth, limit = depth or proof.depth, seconds or proof.seconds
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="proof-") as name:
        folder = Path(name)
        source, script, graph = folder / "top.il", folder / "top.ys", folder / "top.aig"
        source.write_text(rtlil.convert(top, name="top", ports=ports))
        lines = (f"read_rtlil {source}", *PASSES, f"write_aiger -I -B -zinit -no-startoffset {graph}")
        script.write_text("\n".join(lines) + "\n")
        done = _call([*yosys().command, str(script)], proof.seconds)
        if done is None or done.returncode or not graph.exists():
            raise ProofError(f"{proof.name}: Yosys failed: {_last(done)}")
        engine = f"pdr -T {limit}" if every_cycle else f"bmc3 -F {depth + 1} -T {limit}"
        steps = f"read_aiger {graph}; fold; strash; scorr; print_stats"
        done = _call([abc_program(), "-c", f"{steps}; {engine}"], limit + 60)
        if done is not None and (
            "combinational networks" in done.stdout or "All outputs solved" in done.stdout
        ):
            # No register is left behind the simplification.
            done = _call([abc_program(), "-c", f"{steps}; iprove"], limit)
    took = time.monotonic() - start
    if done is None:
        return Verdict(None, f"no verdict within {limit} s", took), bench.claims
    return _verdict(proof, done, depth, took), bench.claims


def _call(command: Sequence[str], seconds: int) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return None


def _last(done: subprocess.CompletedProcess[str] | None) -> str:
    lines = (done.stdout + done.stderr).strip().splitlines() if done else ["it took too long"]
    return next((line for line in reversed(lines) if "ERROR" in line), lines[-1] if lines else "no output")


def _verdict(proof: Proof, done: subprocess.CompletedProcess[str], depth: int, seconds: float) -> Verdict:
    registers = gates = 0
    for line in done.stdout.splitlines():
        words = line.replace("=", " = ").split()
        if "lat" in words and "and" in words:
            registers, gates = int(words[words.index("lat") + 2]), int(words[words.index("and") + 2])
    for line in done.stdout.splitlines():
        if "was asserted in frame" in line:
            cycle = int(line.partition("in frame ")[2].split(".")[0]) - 1  # asserted one cycle later
            return Verdict(False, f"in cycle {cycle}", seconds, registers, gates, cycle)
        if "Property proved" in line:
            return Verdict(True, "", seconds, registers, gates)
        if "No output asserted in" in line:  # "... in 21 frames."
            frames = int(line.partition("asserted in ")[2].split()[0])
            if frames > depth:
                return Verdict(True, "", seconds, registers, gates)
            text = f"no failure in {frames - 1} cycles, of {depth}"
            return Verdict(None, text, seconds, registers, gates)
        if "UNSATISFIABLE" in line:
            return Verdict(True, "", seconds, registers, gates)
        if "UNDECIDED" in line or "timeout" in line.lower():
            return Verdict(None, "no verdict in time", seconds, registers, gates)
    raise ProofError(f"{proof.name}: ABC gave no verdict: {_last(done)}")
