"""Random cases, runner, coverage, shrinking and report of conformance, on the golden model only."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from rkcosim.cli.main import app
from rkcosim.golden.task import GoldenNpu
from rkcosim.spec.regs import registers
from rkcosim.spec.types import BY_NAME, FP16, INT8
from rkcosim.verify.conformance import noise, values
from rkcosim.verify.conformance.campaign import Campaign
from rkcosim.verify.conformance.choices import Chooser, Refused
from rkcosim.verify.conformance.coverage import QUESTIONS, Coverage
from rkcosim.verify.conformance.draw_pool import reciprocal
from rkcosim.verify.conformance.groups import GROUPS, draw_case
from rkcosim.verify.conformance.runner import Runner
from rkcosim.verify.conformance.shrink import shrink
from rkcosim.verify.conformance.touched import RULES, Touched
from rkcosim.verify.streams.stream import Stream

ROOT = Path(__file__).parents[2]


def golden() -> GoldenNpu:
    return GoldenNpu(1, strict=False)


@pytest.mark.parametrize("group", GROUPS)
def test_draws_of_every_group_are_what_they_claim(group: str) -> None:
    """The golden model against itself: legal groups give no diagnostic, hangs hang, faults are detected."""
    runner = Runner(golden(), golden())
    for index in range(4):
        case = draw_case(group, 11, index)
        outcome = runner.run(case)
        if case.plan.fault:  # the golden model raises for these, and has no bus to answer
            assert "ERROR" in outcome.golden.error + str(outcome.golden.diagnostics)
        assert outcome.ok, outcome.text()


def test_there_are_at_least_24_groups() -> None:
    assert len(GROUPS) >= 24


def test_the_same_numbers_give_the_same_case() -> None:
    first, second = draw_case("chains", 4, 2), draw_case("chains", 4, 2)
    assert first.chain == second.chain and first.kick == second.kick
    assert all(np.array_equal(a[1], b[1]) for a, b in zip(first.regions, second.regions, strict=True))
    assert draw_case("chains", 4, 3).chain != first.chain


def test_one_forced_choice_leaves_the_others() -> None:
    case = draw_case("conv int8", 1, 0)
    grains = next(c for c in case.choices if c.key == "conv.grains")
    other = draw_case("conv int8", 1, 0, {"conv.grains": grains.high - grains.value}, case.refused)
    changed = [
        (a, b)
        for a, b in zip(case.choices, other.choices, strict=True)
        if (a.key, a.value) != (b.key, b.value)
    ]
    assert [a.key for a, _ in changed] == ["conv.grains"]


def test_an_unknown_group_is_named() -> None:
    with pytest.raises(ValueError, match="unknown group 'dance'"):
        draw_case("dance", 0, 0)


def test_corners_come_up() -> None:
    ch = Chooser((1,))
    drawn = [ch.corner("x", -300, 4095) for _ in range(400)]
    assert {-300, 4095} <= set(drawn) and min(drawn) == -300 and len(set(drawn)) > 100


def test_choices_outside_their_range_are_refused() -> None:
    with pytest.raises(Refused, match="nothing between 3 and 2"):
        Chooser((1,)).integer("x", 3, 2)


@pytest.mark.parametrize("name", ["fp16", "bf16", "fp32"])
def test_float_draws_hold_specials_and_ordinary_numbers(name: str) -> None:
    kind = BY_NAME[name]
    words = []
    for seed in range(300):
        raw = values.floats(Chooser((seed,)), "data", kind, 64)
        words.append(raw.view(np.uint32 if kind.bits == 32 else np.uint16))
    found = np.concatenate(words).astype(np.int64)
    exponent = {"fp16": 0x7C00, "bf16": 0x7F80, "fp32": 0x7F800000}[name]
    fraction = {"fp16": 0x3FF, "bf16": 0x7F, "fp32": 0x7FFFFF}[name]
    special = (found & exponent) == exponent
    assert (special & ((found & fraction) == 0)).any(), "no infinity"
    assert (special & ((found & fraction) != 0)).any(), "no NaN"
    assert (((found & exponent) == 0) & ((found & fraction) != 0)).any(), "no subnormal"
    assert special.mean() < 0.1, "mostly ordinary numbers"


def test_reciprocals_are_those_of_real_programs() -> None:
    assert [reciprocal(FP16, k) for k in (1, 2, 3)] == [0x7C00, 0x7800, 0x7555]
    assert reciprocal(INT8, 2) == 0x8000


def test_named_fields_exist() -> None:
    names = [*noise.INERT, *noise.RESERVED, *noise.REPEATS, *QUESTIONS]
    names += [name for switch, _, fields in noise.OFF for name in (switch, *fields)]
    for block, register, field in names:
        assert field in registers()[block][register].fields, (block, register, field)


class Wrong(GoldenNpu):
    """A device that flips a bit of the first output byte of a task with many channels."""

    def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
        raised = super().run_until_irq(core_mask, max_cycles)
        report = self.devices[0].reports[-1]
        if report.registers.get("DPU", {}).get("DATA_CUBE_CHANNEL", 0) & 0x1FFF > 6:
            self.memory.view(report.writes[0].ranges[0][0], 1)[0] ^= 1
        return raised


def failing() -> tuple[Runner, int]:
    runner = Runner(Wrong(1, strict=False), golden())
    index = next(i for i in range(20) if not runner.run(draw_case("conv int8", 5, i)).ok)
    return runner, index


def test_a_wrong_byte_is_found_named_and_shrunk(tmp_path: Path) -> None:
    runner, index = failing()
    outcome = runner.run(draw_case("conv int8", 5, index))
    assert outcome.problem == "memory" and "output + 0x0" in outcome.detail
    small = shrink(outcome, 5, index, runner)
    task = small.case.plan.tasks[0]
    assert small.problem == "memory"
    assert task.fields["DPU", "DATA_CUBE_CHANNEL"]["CHANNEL"] == 31, "one kernel group"
    assert task.fields["DPU", "DATA_CUBE_WIDTH"]["WIDTH"] == 0
    assert task.fields["CNA", "WEIGHT_SIZE2"]["WEIGHT_HEIGHT"] == 1
    assert task.fields["DPU", "BS_CFG"]["BS_BYPASS"] == 1

    path = tmp_path / "small.json"
    small.case.save(path)
    stream = Stream.load(path)
    assert stream.kick == small.case.kick and len(stream.regions) == 2
    result = CliRunner().invoke(app, ["regcmd", "run", str(path), "--engine", "golden", "--check"])
    assert result.exit_code == 0, result.output


def test_slave_mode_replays_from_a_file(tmp_path: Path) -> None:
    case = draw_case("slave mode", 1, 0)
    case.save(tmp_path / "slave.json")
    arguments = ["regcmd", "run", str(tmp_path / "slave.json"), "--engine", "golden", "--check"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert Stream.load(tmp_path / "slave.json").writes == case.plan.writes


class Silent(GoldenNpu):
    """A device that reports nothing."""

    def diagnostics(self) -> list:  # type: ignore[type-arg]
        return []

    @property
    def devices(self) -> list:  # type: ignore[type-arg]
        return self._devices

    @devices.setter
    def devices(self, value: list) -> None:  # type: ignore[type-arg]
        self._devices = value
        for device in value:
            device.findings = _Nothing()


class _Nothing(list):  # type: ignore[type-arg]
    def append(self, item: object) -> None:
        pass


def test_a_missing_diagnostic_is_a_difference() -> None:
    runner = Runner(Silent(1, strict=False), golden())
    found = [runner.run(draw_case("reserved fields", 2, i)).problem for i in range(6)]
    assert "diagnostics" in found


class Dead(GoldenNpu):
    """A device that never interrupts."""

    def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
        return 0


def test_a_hang_is_a_difference() -> None:
    outcome = Runner(Dead(1, strict=False), golden()).run(draw_case("pool int8", 1, 0))
    assert outcome.problem == "device hangs"


def test_coverage_counts_bits() -> None:
    coverage = Coverage()
    assert len(coverage.seen) == sum(len(r.fields) for block in registers() for r in block)
    key = ("CNA", "CONV_CON3", "CONV_X_STRIDE")
    register = registers()["CNA"]["CONV_CON3"]
    for stride in (1, 2):
        coverage.note("CNA", "CONV_CON3", register.encode(CONV_X_STRIDE=stride))
    assert not coverage.exercised(key)
    coverage.note("CNA", "CONV_CON3", register.encode(CONV_X_STRIDE=7))
    assert coverage.exercised(key)
    seen = coverage.seen[key]
    assert (seen.low, seen.high, seen.count) == (1, 7, 3)
    page = coverage.markdown("a test")
    assert "| CONV_CON3 | CONV_X_STRIDE | 2:0 | 3 | 0x1 | 0x7 | yes |" in page
    assert "CNA.CONV_CON3.CONV_Y_STRIDE" in page


def test_a_run_counts_groups_fields_and_failures(tmp_path: Path) -> None:
    said: list[str] = []
    campaign = Campaign(
        Runner(Wrong(1, strict=False), golden()), 5, folder=tmp_path, say=said.append, shrinking=30
    )
    report = campaign.run(["conv int8", "pool int8"], 30)
    data = json.loads(json.dumps(report.as_json()))
    assert data["schema_version"] == 1 and not data["match"]
    assert {"group", "tasks", "refused", "fields_covered", "mismatches"} <= set(data["groups"][0])
    conv, pool = data["groups"]
    assert conv["mismatches"] > 0 and pool["mismatches"] == 0
    assert pool["tasks"] >= 10 and pool["fields_covered"] > 40
    assert Path(conv["failures"][0]["stream"]).is_file()
    assert "repeat: rkcosim conformance --seed 5 --only 'conv int8' --case" in said[0]
    assert "pool" in report.support.markdown("a test")


def test_the_command_prints_a_table_and_writes_its_files(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    page = tmp_path / "docs" / "results" / "coverage.md"
    arguments = ["conformance", "--engine", "golden", "--seed", "8", "--tasks", "20", "--only", "pool "]
    result = CliRunner().invoke(
        app, [*arguments, "--json", str(out), "--coverage", str(page), "--failures", str(tmp_path)]
    )
    assert result.exit_code == 0, result.output
    assert "pool int16" in result.output and "seed 8" in result.output
    data = json.loads(out.read_text())
    assert data["seed"] == 8 and data["match"] and len(data["groups"]) == 5
    assert "POOLING_METHOD" in page.read_text()
    assert "pool max" in (page.parent / "support.md").read_text()


def test_the_command_names_groups_when_none_matches() -> None:
    result = CliRunner().invoke(app, ["conformance", "--engine", "golden", "--only", "dance"])
    assert result.exit_code == 2 and "no group matches dance" in result.output


def test_draws_reach_every_rule_of_boards() -> None:
    """A few hundred draws touch each rule of the table, and the table names places that exist."""
    touched = Touched()
    pages = (ROOT / "docs" / "reference").glob("*.md")
    numbers = {int(page.name[:2]): page.read_text() for page in pages if page.name[:2].isdigit()}
    for rule in RULES.values():
        for place in rule.place.split(", "):
            chapter, section = place.split(".")[:2]
            assert f"\n## {chapter}.{section} " in numbers[int(chapter)], place
    for group in ("ew floats, registers", "ew floats, memory", "ew integers, memory", "waits"):
        for index in range(60):
            touched.add(draw_case(group, 3, index).plan.tasks)
    for index in range(150):
        touched.add(draw_case("flying floats", 3, index).plan.tasks)
    assert not [name for name, count in touched.as_json().items() if not count], touched.as_json()
