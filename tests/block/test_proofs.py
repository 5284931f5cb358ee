"""The formal proofs of tools/proofs that take seconds: claims hold, false claims fail, faults are found."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rkcosim.rtl.bus import SkidBuffer
from tools.mutation import faulty_ports
from tools.proofs import solve
from tools.proofs.__main__ import main, measured, wrong
from tools.proofs.bench import Bench
from tools.proofs.catalog import PROOFS
from tools.proofs.faults import FaultError, plant
from tools.proofs.plan import Fault, Proof
from tools.proofs.solve import abc_program

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("proof", [p for p in PROOFS if not p.slow], ids=lambda proof: proof.name)
def test_proof(proof: Proof) -> None:
    """The claims hold, the states that must be reachable are reached, and every planted fault is found."""
    assert wrong(proof, measured(proof)) == []


@pytest.mark.heavy
@pytest.mark.parametrize("proof", [p for p in PROOFS if p.slow], ids=lambda proof: proof.name)
def test_slow_proof(proof: Proof) -> None:
    """The same for the proofs that take minutes."""
    assert wrong(proof, measured(proof)) == []


def test_a_claim_that_does_not_hold_is_named() -> None:
    """A proof whose block is wrong fails with the name of the claim and the cycle."""
    proof = next(proof for proof in PROOFS if proof.name == "fill_turn")
    (found,) = measured(proof)["faults"]
    assert found["holds"] is False
    assert re.fullmatch(r"the \w+ loader waits at most one fill.* \(in cycle \d+\)", found["text"])


def test_assertions_of_the_rtl_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """They hold; with an offer that comes and goes they do not, and the proof says so."""
    proof = next(proof for proof in PROOFS if proof.name == "skid_buffer")
    holds = solve.assertions_hold(proof)
    assert holds is not None and holds.holds
    monkeypatch.setattr(SkidBuffer, "elaborate", SkidBuffer.elaborate)  # restored at the end
    faulty_ports.plant(faulty_ports.PortFault("bus.SkidBuffer", "o__valid", "raised"))
    fails = solve.assertions_hold(proof)
    assert fails is not None and fails.holds is False
    found = measured(proof) | {"asserted": {"holds": False, "text": "in cycle 3"}}
    assert wrong(proof, found) == ["skid_buffer: an assertion of the RTL fails in cycle 3"]
    without = {name: next(p for p in PROOFS if p.name == name) for name in ("fill_turn", "pc_words")}
    assert not any(solve.assertions_hold(one) for one in without.values())


def test_a_fault_that_is_not_found_is_reported() -> None:
    """A proof that passes in spite of a fault, or whose fault cannot be planted, is wrong."""
    proof = next(proof for proof in PROOFS if proof.name == "fill_turn")
    found = measured(proof)
    assert wrong(proof, found) == []
    fault = proof.faults[0].meaning
    assert wrong(proof, found | {"faults": [{"holds": True}]}) == [
        f"fill_turn: a fault is not found: {fault} "
    ]
    assert wrong(proof, found | {"faults": [{"error": "no text"}]}) == [
        f"fill_turn: a fault is not found: {fault} no text"
    ]


def test_faults_change_the_text_of_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault is in the module that is imported next; a fault that fits nothing is an error."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name in ("planted_block", "other_block"):
        (tmp_path / f"{name}.py").write_text("WIDTH = 8\n")
    plant(Fault("planted_block", "= 8", "= 9", "The width is wrong."))
    plant(Fault("other_block", "= 7", "= 9", "The text is no longer there."))
    try:
        assert importlib.import_module("planted_block").WIDTH == 9
        with pytest.raises(FaultError, match=r"other_block\.py: there is no '= 7'"):
            importlib.import_module("other_block")
        with pytest.raises(FaultError, match="planted_block has been imported before"):
            plant(Fault("planted_block", "= 8", "= 9", "Too late."))
    finally:
        sys.modules.pop("planted_block")
    with pytest.raises(FaultError, match=r"there is no module rkcosim\.rtl\.nothing"):
        plant(Fault("rkcosim.rtl.nothing", "a", "b", "No module."))


def test_every_proof_has_a_fault_and_stands_on_the_page() -> None:
    """The page of proofs is that of the present proofs."""
    overview = (ROOT / "docs/results/proofs.md").read_text().partition("## Claims")[0]
    assert all(proof.faults for proof in PROOFS)
    assert re.findall(r"^\| `(\w+)` \|", overview, re.MULTILINE) == [proof.name for proof in PROOFS]


def test_proofs_for_symbiyosys(tmp_path: Path) -> None:
    """Each claim is an assertion with its text, and ABC proves the exported graph by itself."""
    assert main(["--export", str(tmp_path), "skid_buffer", "axi_lite_rules"]) == 0
    proofs, kinds = ("skid_buffer", "axi_lite_rules"), ("il", "sby", "smt2", "aig")
    names = {f"{name}.{kind}" for name in proofs for kind in kinds}
    assert {path.name for path in tmp_path.iterdir()} == names
    bench = Bench()
    next(proof for proof in PROOFS if proof.name == "axi_lite_rules").build(bench)
    bench.apart()  # a block has to be used
    design = (tmp_path / "axi_lite_rules.il").read_text()
    assert all(claim in design for claim in bench.claims) and str(ROOT) not in design
    settings = (tmp_path / "skid_buffer.sby").read_text()
    assert "[tasks]\nprove\nbmc\ncover\n" in settings and "read_rtlil skid_buffer.il" in settings
    assert "check-sat" not in (tmp_path / "skid_buffer.smt2").read_text()  # yosys-smtbmc asks
    graph = tmp_path / "skid_buffer.aig"
    assert graph.read_bytes().startswith(b"aig ")
    done = subprocess.run(
        [abc_program(), "-c", f"read_aiger {graph}; fold; strash; pdr -T 60"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Property proved" in done.stdout
