"""One wrong field in a chain of 100 tasks is found by `regcmd lint`, or by `diff` with a good copy."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from rkcosim.golden.task import GoldenNpu
from rkcosim.regcmd.diff import diff_programs
from rkcosim.regcmd.lint import Finding, lint
from rkcosim.regcmd.program import Program
from rkcosim.verify.crosscheck.kick import run_kick
from rkcosim.verify.differences.streams import first_byte
from rkcosim.verify.streams.capture import Expected, save
from rkcosim.verify.streams.programs import program_of_stream
from rkcosim.verify.streams.stream import Region, Stream
from tests.makers.long_stream import Plant, long_stream, plant
from tests.system.test_cli import rkcosim

Known = set[tuple[int, str, str]]
SEEDS = (1, 2)
PLANTS = 8
STRUCTURE = frozenset(
    f"{register}.{field}"
    for register, fields in {
        "CNA.CONV_CON1": ("IN_PRECISION", "PROC_PRECISION", "CONV_MODE"),
        "CNA.DATA_SIZE0": ("DATAIN_WIDTH", "DATAIN_HEIGHT"),
        "CNA.DATA_SIZE1": ("DATAIN_CHANNEL",),
        "CNA.DATA_SIZE2": ("DATAOUT_WIDTH",),
        "CNA.DATA_SIZE3": ("DATAOUT_ATOMICS",),
        "CNA.WEIGHT_SIZE0": ("WEIGHT_BYTES",),
        "CNA.WEIGHT_SIZE2": ("WEIGHT_WIDTH", "WEIGHT_HEIGHT", "WEIGHT_KERNELS"),
        "CNA.CBUF_CON0": ("DATA_BANK", "WEIGHT_BANK"),
        "CNA.CBUF_CON1": ("DATA_ENTRIES",),
        "CNA.DMA_CON1": ("LINE_STRIDE",),
        "CORE.MISC_CFG": ("PROC_PRECISION", "DW_EN"),
        "DPU.DATA_CUBE_WIDTH": ("WIDTH",),
        "DPU.DATA_CUBE_HEIGHT": ("HEIGHT",),
        "DPU.DATA_CUBE_CHANNEL": ("CHANNEL",),
        "DPU.DST_SURF_STRIDE": ("DST_SURF_STRIDE",),
        "DPU.DATA_FORMAT": ("IN_PRECISION", "PROC_PRECISION"),
        "DPU.FEATURE_MODE_CFG": ("FLYING_MODE", "CONV_MODE", "OUTPUT_MODE"),
        "DPU_RDMA.DATA_CUBE_WIDTH": ("WIDTH",),
        "DPU_RDMA.DATA_CUBE_HEIGHT": ("HEIGHT",),
        "DPU_RDMA.FEATURE_MODE_CFG": ("MRDMA_DISABLE", "CONV_MODE"),
        "DPU_RDMA.ERDMA_CFG": ("ERDMA_DISABLE",),
        "PPU.DATA_CUBE_IN_WIDTH": ("DATA_CUBE_IN_WIDTH",),
        "PPU.DATA_CUBE_IN_HEIGHT": ("DATA_CUBE_IN_HEIGHT",),
        "PPU.DST_SURF_STRIDE": ("DST_SURF_STRIDE",),
        "PPU_RDMA.CUBE_IN_WIDTH": ("CUBE_IN_WIDTH",),
        "PPU_RDMA.DATA_FORMAT": ("IN_PRECISION",),
    }.items()
    for field in fields
)
"""Fields that say which data are moved and to which address; programmers often get these wrong."""


@pytest.fixture(scope="module")
def good() -> Stream:
    return long_stream(1)


def _new(program: Program, known: Known) -> list[Finding]:
    """Findings of a stream that the good one does not have."""
    return [f for f in lint(program) if (f.task, f.rule, f.path) not in known]


@pytest.fixture(scope="module")
def known(good: Stream) -> Known:
    """Return the findings for the good stream; none is an error."""
    found = lint(program_of_stream(good))
    assert not [str(f) for f in found if f.severity == "error"]
    return {(f.task, f.rule, f.path) for f in found}


def _names(finding: Finding, what: Plant) -> bool:
    """True if a finding names the register, as the wrong one or as the other side of a contradiction."""
    return any(path.startswith(what.command.name) for path in (finding.path, *finding.also))


def _diff_names(good: Stream, bad: Program, what: Plant) -> bool:
    """True if the side-by-side diff shows this field and no other."""
    pairs = diff_programs(program_of_stream(good), bad)
    words = [(p.left, w) for p in pairs for w in p.words if w.state != "same"]
    (task, word), *more = words
    return (
        not more
        and task == what.task
        and word.name == what.command.name
        and list(word.fields) == [what.field]
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_diff_names_every_plant_and_lint_many(good: Stream, known: Known, seed: int):
    print(f"seed {seed}")
    rng = Random(seed)
    alone = task_only = 0
    for _ in range(PLANTS):
        stream, what = plant(good, rng)
        bad = program_of_stream(stream)
        assert _diff_names(good, bad, what), str(what)
        found = [f for f in _new(bad, known) if f.task == what.task]
        named = any(_names(f, what) for f in found)
        alone, task_only = alone + named, task_only + (bool(found) and not named)
        print(f"  {what}: {'lint names it' if named else 'lint names the task' if found else 'diff only'}")
    print(f"any field: lint alone names {alone} of {PLANTS}, only the task of {task_only} more")
    assert alone >= PLANTS // 4


def test_lint_alone_finds_what_moves_data(good: Stream, known: Known):
    rng = Random(11)
    found = 0
    count = 12
    for _ in range(count):
        stream, what = plant(good, rng, STRUCTURE)
        bad = program_of_stream(stream)
        mine = [f for f in _new(bad, known) if f.task == what.task]
        found += any(_names(finding, what) for finding in mine)
        print(f"  {what}: {mine[0] if mine else '-'}")
        assert _diff_names(good, bad, what), str(what)
    print(f"seed 11, fields that say what is moved where: lint alone names {found} of {count}")
    assert found >= 0.7 * count


def test_without_a_good_copy_the_expected_outputs_name_the_task(good: Stream):
    golden = GoldenNpu(1)
    good.load_into(golden.memory)
    assert run_kick(golden, good.kick).done
    outputs = [
        Region(r.name, r.address, golden.memory.view(r.address, r.data.size).copy())
        for r in good.regions[:-1]
    ]
    rng, named, ran = Random(5), 0, 0
    for _ in range(6):
        bad, what = plant(good, rng, frozenset({"DPU.OUT_CVT_OFFSET.OUT_CVT_OFFSET", "CNA.PAD_CON0.PAD_TOP"}))
        device = GoldenNpu(1, strict=False)
        bad.load_into(device.memory)
        if not run_kick(device, bad.kick).done:
            continue
        finding = first_byte(bad, device.memory, Expected(outputs), "golden", "expected")
        ran += finding is not None
        named += finding is not None and finding.data.get("task") == what.task
        print(f"  {what}: {finding.text if finding else 'no effect'}")
    assert ran and named == ran


def test_three_commands(good: Stream, tmp_path: Path):
    """The user's commands: lint, diff with the good stream, and the lines side by side."""
    bad, what = plant(good, Random(42), STRUCTURE)
    ours, theirs = tmp_path / "bad.json", tmp_path / "good.json"
    save(bad, Expected(), ours)
    save(good, Expected(), theirs)
    print(f"seed 42: {what}")
    code, text = rkcosim("regcmd", "lint", ours, "--json", tmp_path / "lint.json")
    findings = json.loads((tmp_path / "lint.json").read_text())["findings"]
    paths = [[f"{f['block']}.{f['register']}", *f["also"]] for f in findings if f["task"] == what.task]
    by_lint = any(path.startswith(what.command.name) for group in paths for path in group)
    assert code in (0, 1) and "100 tasks" in text
    code, text = rkcosim("diff", ours, theirs, "--engine", "golden")
    assert code == 1 and f"task {what.task}, {what.command.name}" in text and what.field in text
    code, text = rkcosim("regcmd", "dump", ours, "--diff", theirs)
    assert code == 1 and what.command.name in text and what.field in text
    print(f"lint alone: {by_lint}")
    assert by_lint
