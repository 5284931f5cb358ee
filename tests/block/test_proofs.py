"""The formal proofs of tools/proofs that take seconds: claims hold, false claims fail, faults are found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.proofs.__main__ import measured, wrong
from tools.proofs.catalog import PROOFS
from tools.proofs.plan import Fault, Proof

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


def test_a_fault_that_fits_nothing_is_an_error() -> None:
    """A fault whose text is no longer in the RTL is reported, not passed over."""
    proof = next(proof for proof in PROOFS if proof.name == "skid_buffer")
    lost = Proof(
        proof.name, proof.block, proof.where, (Fault("rkcosim.rtl.nothing", "a", "b", "No module."),)
    )
    problems = wrong(lost, measured(proof) | {"faults": [{"error": "there is no module"}]})
    assert problems == ["skid_buffer: a fault is not found: No module. there is no module"]


def test_every_proof_has_a_fault_and_stands_on_the_page() -> None:
    """The page of proofs is that of the present proofs."""
    overview = (ROOT / "docs/proofs.md").read_text().partition("## Claims")[0]
    assert all(proof.faults for proof in PROOFS)
    assert re.findall(r"^\| `(\w+)` \|", overview, re.MULTILINE) == [proof.name for proof in PROOFS]
