"""Engines that check the assertions of the RTL: what a failed one says, and that none fails in real runs."""

# No postponed annotations here: Amaranth reads the members of a component from the annotations.
import re
import subprocess
import sys
from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal

from rkcosim.engines import open_engine
from rkcosim.engines.protocol import AssertionFailed
from rkcosim.rtl import assertions
from rkcosim.rtl.core import NpuCore
from rkcosim.rtl.npu.atom_writer import AtomWriter
from rkcosim.verify.conformance.campaign import Campaign
from rkcosim.verify.conformance.groups import GROUPS
from rkcosim.verify.conformance.runner import Runner
from tests import seeds
from tests.system import toy_core as toy
from tools.mutation.faulty_ports import PortFault, plant

SEED = seeds.seed(__name__)
LIMIT = 300
ROOT = Path(__file__).resolve().parents[2]


class Counting(toy.ToyCore):
    """A core with a claim that is wrong from one cycle on."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        cycles = Signal(16)
        m.d.sync += cycles.eq(cycles + 1)
        assertions.always(m, platform, cycles != LIMIT, "Counting.cycles: the limit is reached")
        return m


@pytest.mark.parametrize("name", ["verilator", "amaranth"])
def test_a_failed_assertion_names_place_and_cycle(name: str) -> None:
    with open_engine(name, design=Counting, cores=2, progress=lambda text: None, assertions=True) as engine:
        engine.may_sleep(False)
        engine.run(100)
        with pytest.raises(AssertionFailed, match=r"Counting\.cycles: the limit is reached") as failure:
            engine.run(1000)
    cycle = 16 + LIMIT if name == "verilator" else LIMIT
    place = {"verilator": "cycle", "amaranth": "clock edge"}[name]
    found = str(failure.value)
    assert "core 0" in found and place in found, found
    assert abs(int(found.partition(place)[2].split(",")[0]) - cycle) <= 20, found


def test_engines_without_assertions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable of the environment concerns the engines that can check, and nothing fails without it."""
    monkeypatch.delenv("RKCOSIM_ASSERTIONS", raising=False)
    with open_engine("amaranth", design=Counting, cores=1, progress=lambda text: None) as engine:
        engine.may_sleep(False)
        engine.run(2 * LIMIT)
    monkeypatch.setenv("RKCOSIM_ASSERTIONS", "1")
    with open_engine("amaranth", design=Counting, cores=1, progress=lambda text: None) as engine:
        engine.may_sleep(False)
        with pytest.raises(AssertionFailed):
            engine.run(2 * LIMIT)
    with pytest.raises(ValueError, match="assertions=True needs one of the engines verilator and amaranth"):
        open_engine("cxxrtl", design=Counting, assertions=True)
    with pytest.raises(ValueError, match="exclude each other"):
        open_engine("verilator", design=Counting, assertions=True, watched=True)


def _fails(runner: Runner, tasks: int) -> int:
    """Run random tasks of every group; return the number of those that differ from the golden model."""
    campaign = Campaign(runner, SEED, shrinking=0)
    return sum(len(campaign.group(group, tasks).failures) for group in GROUPS)


@pytest.mark.heavy  # builds another model of the whole core
def test_no_assertion_of_the_core_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random tasks of all groups, and a whole network, through one checked engine."""
    with open_engine(cores=1, on_diagnostic="go on", assertions=True) as device:
        assert not _fails(Runner(device), 3)
    monkeypatch.setenv("RKCOSIM_ASSERTIONS", "1")
    command = [sys.executable, "-m", "rkcosim", "run", "examples/digits/digits_int8.onnx", "--seed", "1"]
    done = subprocess.run([*command, "--check"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "MATCH" in done.stdout, done.stdout + done.stderr


@pytest.mark.heavy  # builds another model of the whole core
def test_a_planted_fault_makes_an_assertion_of_the_core_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of the writers are also offered in single cycles in which there are none."""
    monkeypatch.setattr(AtomWriter, "elaborate", AtomWriter.elaborate)  # restored at the end
    plant(PortFault("npu.atom_writer.AtomWriter", "write__req__valid", "raised"))

    def make(*, external_cell: bool) -> NpuCore:
        return NpuCore(external_cell=external_cell)

    with open_engine(cores=1, design=make, on_diagnostic="go on", assertions=True) as device:
        result = Campaign(Runner(device), SEED, shrinking=0).group(next(iter(GROUPS)), 1)
    found = result.failures[0].text
    assert "AssertionFailed" in found, found
    place = r"in cycle \d+, core 0: [\w.]+: \w+\.write\.req\.valid: an offer ends before it is taken"
    assert re.search(place, found), found
