"""Proofs as files for SymbiYosys, and for every program that reads SMT-LIB 2 or AIGER."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from amaranth.back import rtlil

from rkcosim.engines.toolchain import yosys
from rkcosim.waves.whole_file import whole_file
from tools.proofs.bench import Bench
from tools.proofs.plan import Proof
from tools.proofs.solve import ProofError

PASSES = (
    "hierarchy -top top",
    "proc",
    "flatten",
    "memory_map",
    "async2sync",
    "opt -keepdc",
    "chformal -lower",
)
"""Passes of the script that SymbiYosys runs; the last one turns checks with messages into assertions."""

GRAPHS = (
    "formalff -clk2ff -ff2anyinit",
    "setundef -undriven -anyseq",
    "opt -fast",
    "write_smt2 -wires {name}.smt2",
    "chformal -cover -remove",
    "simplemap",
    "techmap",
    "dffunmap",
    "aigmap",
    "opt_clean",
    "write_aiger -I -B -zinit -no-startoffset {name}.aig",
)
"""Further passes, for files that need no Yosys."""


def sby_file(proof: Proof) -> str:
    """Return the file that SymbiYosys reads: tasks `prove`, `bmc` and `cover`."""
    passes = "\n".join(PASSES)
    return f"""# {proof.block}: {proof.text()}
# `prove` shows the claims for all cycles where the engine can, `bmc` for {proof.depth} cycles; `cover` shows
# that the states that must be reachable are reached.

[tasks]
prove
bmc
cover

[options]
prove: mode prove
bmc: mode bmc
cover: mode cover
prove: timeout {proof.seconds}
depth {proof.depth}

[engines]
prove: abc pdr
bmc: smtbmc z3
cover: smtbmc z3

[script]
read_rtlil {proof.name}.il
{passes}

[files]
{proof.name}.il
"""


def write(proof: Proof, folder: Path, *, graphs: bool = False) -> list[Path]:
    """Write a proof into a folder, which exists, and return the files.

    Parameters
    ----------
    proof : the proof; its claims are assertions with the claims as messages.
    folder : gets NAME.il (RTLIL) and NAME.sby.
    graphs : also write NAME.smt2 (SMT-LIB 2, as `yosys-smtbmc` reads it) and NAME.aig (AIGER 1.9).

    Raises
    ------
    ProofError
        if Yosys refuses the design.
    OSError
        if a file cannot be written.
    """
    bench = Bench()
    proof.build(bench)
    top, ports = bench.apart()
    texts = {
        f"{proof.name}.il": rtlil.convert(top, name="top", ports=ports, emit_src=False),
        f"{proof.name}.sby": sby_file(proof),
    }
    files = []
    for name, text in texts.items():
        with whole_file(folder / name) as part:
            part.write_text(text)
        files.append(folder / name)
    if graphs:
        files += _graphs(proof.name, folder)
    return files


def _graphs(name: str, folder: Path) -> Sequence[Path]:
    lines = (f"read_rtlil {name}.il", *PASSES, *(line.format(name=name) for line in GRAPHS))
    with tempfile.TemporaryDirectory(prefix="proof-") as work:
        script = Path(work) / "graphs.ys"
        script.write_text("\n".join(lines) + "\n")
        command = [*yosys().command, str(script)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
        raise ProofError(f"{name}: Yosys failed: {said[-1]}")
    return [folder / f"{name}{suffix}" for suffix in (".smt2", ".aig")]
