"""Rules of `regcmd lint`: no findings for legal tasks, right ones for faulty tasks; every rule can fire."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rkcosim.golden.task import GoldenNpu
from rkcosim.golden.task.errors import GoldenError
from rkcosim.regcmd import (
    TaskBuilder,
    build_task_list,
    op_enable_word,
    pack_word,
    register_word,
    words_from_bytes,
    words_to_bytes,
)
from rkcosim.regcmd.lint import RULES, SEVERITIES, Finding, flow, lint
from rkcosim.regcmd.machine import task_count
from rkcosim.regcmd.program import ListedTask, Program, fetch_from, program_of_chain, program_of_words
from rkcosim.spec.regs import registers
from rkcosim.verify.conformance.groups import GROUPS, draw_case
from rkcosim.verify.crosscheck.kick import run_kick
from rkcosim.verify.streams.programs import program_of_stream, programs_of_model
from rkcosim.verify.streams.stream import Stream
from tests.makers.long_stream import long_stream

ROOT = Path(__file__).parents[2]
FAULTY = (
    *("reserved fields", "contradictory sizes", "reserved codes", "contradictions", "hangs", "waits"),
    *("writer waits", "unmapped addresses", "malformed lists", "unknown compression"),
    "unknown headers",
)
LEGAL = [name for name in GROUPS if name not in (*FAULTY, "registers", "field limits")]
BASE = 0x10_0000


@pytest.mark.parametrize("seed", (3, 4))
def test_legal_draws_have_no_error(seed: int) -> None:
    print(f"seed {seed}")
    warnings = 0
    for group in LEGAL:
        program = program_of_stream(draw_case(group, seed, seed).stream())
        found = lint(program)
        assert not [str(f) for f in found if f.severity == "error"], f"{group} {seed}/{seed}"
        warnings += sum(f.severity == "warning" for f in found)
    assert warnings <= len(LEGAL) // 4


def test_chains_at_their_limits_have_no_error() -> None:
    for index in range(12):
        case = draw_case("field limits", 1, index)
        assert not [str(f) for f in lint(program_of_stream(case.stream())) if f.severity == "error"]


@pytest.mark.parametrize("group", FAULTY)
def test_what_the_golden_model_reports_is_named(group: str) -> None:
    """Each diagnostic's register is in a finding, and every hang has an error."""
    seed, total, named = 7, 0, 0
    print(f"seed {seed}")
    for index in range(14):
        case = draw_case(group, seed, index)
        stream = case.stream()
        golden = GoldenNpu(1, strict=False)
        stream.load_into(golden.memory)
        truth, ended = set(), False
        try:
            ended = run_kick(golden, stream.kick, 0, writes=stream.writes).done
        except GoldenError as error:
            truth.add((error.block, error.name.split(".")[0]))
        truth |= {(f.block, f.register.split(".")[0]) for f in golden.diagnostics()}
        found = lint(program_of_stream(stream))
        if not truth and ended:
            assert not [str(f) for f in found if f.severity == "error"], case.text()
            continue
        total += 1
        errors = [f for f in found if f.severity == "error"]
        paths = {(f.block, f.register) for f in found}
        good = (not truth or truth <= paths) and (ended or bool(errors)) and bool(found)
        named += good
        if not good:
            print(f"  {case.name} {case.plan.note}: {truth - paths}, {[str(f) for f in found][:3]}")
    print(f"{group}: {named} of {total} named")
    assert total and named >= 0.9 * total


def test_compiled_models_and_the_example_have_nothing() -> None:
    from rkcosim.compiler import compile_model
    from rkcosim.verify.streams.stream import Stream

    model = ROOT / "examples" / "digits" / "digits_int8.onnx"
    for program in programs_of_model(compile_model(model.read_bytes(), reuse=True), "digits"):
        assert [str(f) for f in lint(program)] == []
    pool = Stream.load(ROOT / "examples" / "streams" / "pool.json")
    assert lint(program_of_stream(pool)) == []


def test_the_vendors_plans_have_nothing() -> None:
    check_plans(ROOT / "tests" / "makers" / "vendor_plans", 5)


@pytest.mark.shared
def test_all_of_the_vendors_plans_have_nothing(shared: Path) -> None:
    check_plans(shared / "vendor_plans", 40)


def check_plans(folder: Path, step: int) -> None:
    """Lint finds nothing in every `step`-th plan of a folder."""
    from rkcosim.driver import Driver
    from rkcosim.verify.conformance.plan_tables import read_plans
    from rkcosim.verify.conformance.plans import PlanJob

    plans = read_plans(folder)[::step]
    assert len(plans) >= 12
    for plan in plans:
        device = GoldenNpu(3)
        case = PlanJob(plan, Driver(device), 1)
        parts = [
            (base, device.memory.view(base, size).tobytes()) for base, size in device.memory.ranges.items()
        ]
        ranges = [(base, len(data)) for base, data in parts]
        for core in case.job.cores:
            first, count = case.job.range_of(core)
            records = case.job.tasks[first : first + count]
            first, mask = records[0], records[-1].int_mask
            start = first.regcmd_addr, first.amount, len(records)
            settings = {"mask": mask, "core": core, "ranges": ranges}
            program = program_of_chain(plan.name, fetch_from(parts), *start, **settings)
            # The DPU's part of these programs was added here: its cube may end inside a kernel group.
            found = [f for f in lint(program) if f.rule != "dpu.whole-groups"]
            assert [str(f) for f in found] == []
        case.close()


# -- single rules ------------------------------------------------------------------------------------


def _pool(address: int = 0x20_0000, to: int = 0x21_0000) -> TaskBuilder:
    """A max pool of 2 x 2 over 4 x 4 x 16, one of the smallest tasks."""
    task = TaskBuilder("pool").enable("PPU", "PPU_RDMA")
    for block in ("PPU", "PPU_RDMA"):
        task.set(block, "S_POINTER", POINTER_PP_MODE=1, EXECUTER_PP_EN=1, POINTER_PP_EN=1)
    for name, value in (("IN_WIDTH", 3), ("IN_HEIGHT", 3), ("IN_CHANNEL", 15), ("OUT_CHANNEL", 15)):
        task.set("PPU", f"DATA_CUBE_{name}", **{f"DATA_CUBE_{name}": value})
    for name in ("OUT_WIDTH", "OUT_HEIGHT"):
        task.set("PPU", f"DATA_CUBE_{name}", **{f"DATA_CUBE_{name}": 1})
    task.set("PPU", "OPERATION_MODE_CFG", FLYING_MODE="RDMA", POOLING_METHOD="MAX")
    shape = {"KERNEL_HEIGHT": 1, "KERNEL_WIDTH": 1, "KERNEL_STRIDE_HEIGHT": 1, "KERNEL_STRIDE_WIDTH": 1}
    task.set("PPU", "POOLING_KERNEL_CFG", **shape)
    task.set_word("PPU", "DST_BASE_ADDR", to)
    task.set("PPU", "DST_SURF_STRIDE", DST_SURF_STRIDE=4)
    task.set("PPU", "DATA_FORMAT", PROC_PRECISION="INT8")
    for name, value in (("WIDTH", 3), ("HEIGHT", 3), ("CHANNEL", 15)):
        task.set("PPU_RDMA", f"CUBE_IN_{name}", **{f"CUBE_IN_{name}": value})
    task.set_word("PPU_RDMA", "SRC_BASE_ADDR", address)
    task.set("PPU_RDMA", "SRC_LINE_STRIDE", SRC_LINE_STRIDE=4)
    task.set("PPU_RDMA", "SRC_SURF_STRIDE", SRC_SURF_STRIDE=16)
    task.set("PPU_RDMA", "DATA_FORMAT", IN_PRECISION="BITS8")
    return task


def _program(tasks: list[TaskBuilder], number: int | None = None, amount: int | None = None) -> Program:
    placed = build_task_list(tasks, BASE)
    first = placed.tasks[0]
    return program_of_chain(
        "chain",
        fetch_from([(BASE, placed.data + bytes(256))]),
        BASE,
        first.amount if amount is None else amount,
        len(tasks) if number is None else number,
        mask=0xC00,
        core=0,
        ranges=[(BASE, 1 << 16), (0x20_0000, 1 << 16), (0x21_0000, 1 << 16)],
    )


def _found(program: Program, rule: str) -> list[Finding]:
    return [f for f in lint(program) if f.rule == rule]


def test_amounts_of_vendor_lists_are_known() -> None:
    """Lists for several cores carry 1 and 2 from bit 16 on; files of the toolkit 1.6 have bit 30, those of
    2.0 and 2.1 bits 29 and 30 (tyt2727617798-png/elf_elder_brain bd4d502: 0x20000040, 0x60000226)."""
    amounts = registers()["PC"]["REGISTER_AMOUNTS"]
    known = (1 << 16, 2 << 16, 1 << 30, 1 << 29, 3 << 29)
    for bits, told in (*((bits, False) for bits in known), (1 << 20, True), (1 << 28, True)):
        pool = _pool()
        pool.raw(register_word(amounts, 0x40 | bits))
        assert bool(_found(_program([pool]), "word.reserved-bits")) == told, hex(bits)


def test_the_small_task_is_clean() -> None:
    assert lint(_program([_pool()])) == []


def test_words_that_are_none() -> None:
    pool = _pool()
    pool.raw(register_word(registers()["PPU"]["DATA_FORMAT"], 0xFFFF_0000 | 1 << 3) & ~(1 << 48))
    assert _found(_program([pool]), "word.undefined")
    pool = _pool()
    pool.raw(register_word(registers()["PPU"]["DATA_CUBE_IN_WIDTH"], 3 | 1 << 20))
    (finding,) = _found(_program([pool]), "word.reserved-bits")
    assert (finding.block, finding.register, finding.value) == ("PPU", "DATA_CUBE_IN_WIDTH", 3 | 1 << 20)
    entry = registers()["DPU"]["LUT_ACCESS_DATA"]
    for value, told in ((0xFFFF_FFC1, False), (0xFFFF_0041, True), (0x1_FFC1, True), (0xFFC1, False)):
        pool = _pool()  # entries of tables as the vendor's compiler writes them: sign-extended
        pool.raw(register_word(entry, value))
        assert bool(_found(_program([pool]), "word.reserved-bits")) == told, hex(value)
    pool = _pool()
    pool.set("PPU", "S_POINTER", POINTER_PP_MODE=1, EXECUTER_PP_EN=1, POINTER_PP_EN=1, EXECUTER=1)
    assert _found(_program([pool]), "word.read-only")[0].field == "EXECUTER"
    pool = _pool()
    pool.raw(register_word(registers()["PC"]["INTERRUPT_MASK"], 1))
    assert _found(_program([pool]), "word.pc")
    words = [*_pool().words()[:-1], op_enable_word(0)]
    assert _found(Program("p", [ListedTask(tuple(words))]), "word.op-enable")
    words = [*_pool().words()[:-1], op_enable_word(0x60 | 1 << 9)]
    assert _found(Program("p", [ListedTask(tuple(words))]), "word.op-enable")[0].severity == "warning"
    words = [*_pool().words()[:-1], pack_word(0x0081, 0x60, 0x10)]
    assert _found(Program("p", [ListedTask(tuple(words))]), "word.op-enable")


def test_chains() -> None:
    long = _program([_pool(), _pool()], amount=_pool().amount + 20)
    assert _found(long, "word.late") and _found(long, "chain.amount")[0].task == -1
    loop = _program([_pool(), _pool()])
    placed = build_task_list([_pool().link(BASE, _pool().amount), _pool()], BASE)
    words = words_from_bytes(placed.data)
    pc = registers()["PC"]["BASE_ADDRESS"]
    at = next(n for n, w in enumerate(words) if w == register_word(pc, placed.tasks[1].address))
    words[at] = register_word(pc, BASE)
    loop = program_of_chain("loop", fetch_from([(BASE, words_to_bytes(words))]), BASE, _pool().amount, 9)
    assert _found(loop, "chain.loop")[0].value == BASE
    short = _program([_pool(), _pool()], number=1)
    assert _found(short, "chain.number")
    missing = _program([_pool()], number=3)
    assert _found(missing, "chain.link")[0].message.startswith("no link, but 2 of 3")
    words = [word for word in _pool().words() if word != pack_word(0x0041, 0, 0)]
    assert _found(Program("p", [ListedTask(tuple(words))]), "chain.tail")


def test_pointers() -> None:
    alone = _pool()
    alone.set("PPU", "S_POINTER", POINTER_PP_MODE=1, POINTER_PP_EN=1)
    assert _found(_program([alone]), "group.toggle")[0].field == "EXECUTER_PP_EN"
    second = _pool(to=0x21_8000)
    (finding, *_) = _found(_program([alone, second]), "group.other")
    assert finding.task == 1 and finding.path.startswith("PPU.S_POINTER") and finding.severity == "error"


def test_the_wrong_group_follows_from_the_task_before() -> None:
    """EXECUTER_PP_EN 0 in task 0: its warning is the error, and what task 1 gets wrong follows from it."""
    alone = _pool()
    alone.set("PPU", "S_POINTER", POINTER_PP_MODE=1, POINTER_PP_EN=1)
    found = lint(_program([alone, _pool(to=0x21_8000)]))
    cause = next(f for f in found if f.rule == "group.toggle")
    assert cause.severity == "error" and cause.follows is None and found.index(cause) == 0
    rest = [f for f in found[1:] if f.severity == "error"]
    assert rest and all(f.task == 1 and f.follows == (0, cause.word) for f in rest)
    assert f", follows from task 0, word {cause.word} [group.other]" in str(rest[0])
    assert rest[0].as_json()["follows"] == [0, cause.word]


def _entered(stream: Stream, task: int, words: int) -> list[Finding]:
    """Findings of a stream whose link to a task leads to a number of words behind its beginning."""
    program = program_of_stream(stream)
    before, following = program.tasks[task - 1], program.tasks[task].address
    link = next(c for c in before.commands if c.name == "PC.BASE_ADDRESS")
    region = next(r for r in stream.regions if r.address <= before.address < r.address + r.data.size)
    at = before.address - region.address + link.index * 8
    wrong = words_to_bytes([register_word(link.register, following + words * 8)])
    region.data[at : at + 8] = np.frombuffer(wrong, np.uint8)
    return lint(program_of_stream(stream))


def test_a_link_behind_the_beginning_of_a_list_is_the_cause() -> None:
    """Eight registers of a pool are skipped: everything else follows from the link."""
    found = _entered(Stream.load(ROOT / "examples" / "streams" / "digits.json"), 3, 8)
    (cause,) = [f for f in found if f.rule == "chain.beginning"]
    assert (cause.task, cause.severity) == (2, "error") and "8 register writes" in cause.message
    assert {f.rule for f in found} > {"chain.amount", "group.never-set", "pool.cube", "group.toggle"}
    assert all(f.follows == (2, cause.word) for f in found if f is not cause and f.severity != "note")


def test_positions_that_overlap_the_values_they_belong_to() -> None:
    pool = _pool()
    pool.set("PPU", "OPERATION_MODE_CFG", FLYING_MODE="UPSTREAM", POOLING_METHOD="MAX", INDEX_EN=1)
    pool.set("PPU", "DATA_FORMAT", INDEX_ADD=0)
    (finding,) = _found(_program([pool]), "pool.surfaces")
    assert finding.field == "INDEX_ADD" and finding.severity == "error"


def test_blocks_that_are_set_up_in_vain() -> None:
    pool = _pool()
    pool.set("DPU", "DATA_CUBE_WIDTH", WIDTH=3)
    assert _found(_program([pool]), "start.not-started")[0].block == "DPU"
    fed = _pool()
    fed.set("PPU", "OPERATION_MODE_CFG", FLYING_MODE="UPSTREAM", POOLING_METHOD="MAX")
    assert _found(_program([fed]), "start.unused") and _found(_program([fed]), "start.partners")


def _element(*changes: tuple[str, str, dict[str, int]]) -> Program:
    """A flying sum of fp16 with an operand of ERDMA, and the given changes."""
    task = TaskBuilder("element").enable("DPU", "DPU_RDMA")
    values: dict[tuple[str, str], dict[str, int]] = {}
    ew = {"EW_OP_SRC": 1, "EW_ALU_ALGO": 2, "EW_LUT_BYPASS": 1, "EW_RELU_BYPASS": 1}
    for block, register, fields in (
        ("DPU", "FEATURE_MODE_CFG", {"FLYING_MODE": 1, "OUTPUT_MODE": 2}),
        ("DPU", "DATA_FORMAT", {"IN_PRECISION": 2, "PROC_PRECISION": 2, "OUT_PRECISION": 2}),
        ("DPU", "BS_OW_CFG", {"OD_BYPASS": 1}),
        ("DPU", "EW_CFG", ew),
        ("DPU", "EW_CVT_SCALE_VALUE", {"EW_OP_CVT_SCALE": 1}),
        ("DPU", "OUT_CVT_SCALE", {"OUT_CVT_SCALE": 1, "FP32TOFP16_EN": 1}),
        ("DPU_RDMA", "FEATURE_MODE_CFG", {"FLYING_MODE": 1, "MRDMA_FP16TOFP32_EN": 1}),
        ("DPU_RDMA", "FEATURE_MODE_CFG", {"IN_PRECISION": 2, "PROC_PRECISION": 2}),
        ("DPU_RDMA", "ERDMA_CFG", {"ERDMA_DATA_MODE": 1, "ERDMA_DATA_SIZE": 2}),
        *changes,
    ):
        values.setdefault((block, register), {}).update(fields)
    for (block, register), fields in values.items():
        task.set(block, register, **fields)
    return Program("element", [ListedTask(tuple(task.words()))])


INTEGERS = [
    ("DPU", "DATA_FORMAT", {"IN_PRECISION": 0, "PROC_PRECISION": 0, "OUT_PRECISION": 1}),
    ("DPU_RDMA", "FEATURE_MODE_CFG", {"IN_PRECISION": 0, "PROC_PRECISION": 0}),
]


@pytest.mark.parametrize(
    ("rule", "register", "severity", "changes"),
    [
        ("dpu.live-product", "EW_CFG", "error", [("DPU", "EW_CFG", {"EW_OP_TYPE": 1})]),
        (
            "dpu.surfaces",
            "SURFACE_ADD",
            "error",
            [("DPU", "DATA_CUBE_CHANNEL", {"CHANNEL": 15}), ("DPU", "WDMA_SIZE_0", {"CHANNEL_WDMA": 15})],
        ),
        (
            "dpu.surfaces",  # two packets of eight atoms, one atom apart
            "DST_SURF_STRIDE",
            "error",
            [
                ("DPU", "DATA_FORMAT", {"IN_PRECISION": 1, "PROC_PRECISION": 1, "OUT_PRECISION": 1}),
                ("DPU", "FEATURE_MODE_CFG", {"TP_EN": 1}),
                ("DPU", "BS_OW_CFG", {"SIZE_E_1": 7}),
                ("DPU", "WDMA_SIZE_0", {"TP_PRECISION": 1}),
                ("DPU", "WDMA_SIZE_1", {"WIDTH_WDMA": 1}),
                ("DPU", "EW_CFG", {"EW_BYPASS": 1}),
                ("DPU", "DATA_CUBE_WIDTH", {"WIDTH": 15}),
                ("DPU", "DST_SURF_STRIDE", {"DST_SURF_STRIDE": 1}),
            ],
        ),
        ("dpu.sum", "EW_CFG", "warning", [("DPU", "EW_CFG", {"EW_OP_CVT_BYPASS": 1, "EDATA_SIZE": 2})]),
        ("dpu.sum", "EW_CFG", "warning", [*INTEGERS, ("DPU", "EW_CFG", {"EDATA_SIZE": 3})]),
        ("dpu.operand-never-set", "EW_OP_VALUE_0", "warning", [("DPU", "EW_CFG", {"EW_OP_SRC": 0})]),
        ("dpu.operand-never-set", "BS_ALU_CFG", "warning", [("DPU", "BS_CFG", {"BS_MUL_BYPASS": 1})]),
        ("rdma.element", "ERDMA_CFG", "warning", [("DPU", "EW_CFG", {"EW_OP_BYPASS": 1})]),
        ("rdma.type", "FEATURE_MODE_CFG", "error", [("DPU_RDMA", "FEATURE_MODE_CFG", {"COMB_USE": 5})]),
        (
            "rdma.operands",
            "BS_OW_CFG",
            "error",
            [*INTEGERS, ("DPU", "BS_OW_CFG", {"OW_SRC": 1, "OD_BYPASS": 0})],
        ),
        (
            "rdma.operands",
            "BN_CFG",
            "error",
            [
                *INTEGERS,
                ("DPU", "BN_CFG", {"BN_BYPASS": 0, "BN_ALU_SRC": 1, "BN_MUL_BYPASS": 1}),
                ("DPU_RDMA", "NRDMA_CFG", {"NRDMA_DATA_USE": 3}),
            ],
        ),
    ],
)
def test_operands_of_the_dpu(rule: str, register: str, severity: str, changes: list) -> None:
    assert not _found(_element(), rule)
    assert (register, severity) in {(f.register, f.severity) for f in _found(_element(*changes), rule)}


def test_the_switch_of_a_reader_is_named() -> None:
    """BRDMA is off by its switch, or because nothing is asked of it."""
    for use, also in ((1, "BRDMA_DISABLE"), (0, "BRDMA_DATA_USE")):
        changes = [("DPU", "BS_CFG", {"BS_ALU_SRC": 1})]
        changes += [("DPU_RDMA", "BRDMA_CFG", {"BRDMA_DISABLE": use, "BRDMA_DATA_USE": use})]
        (finding, *_) = _found(_element(*changes), "rdma.operands")
        assert finding.also == (f"DPU_RDMA.BRDMA_CFG.{also}",)


def test_memory() -> None:
    assert _found(_program([_pool(to=BASE)]), "memory.commands")
    assert _found(_program([_pool(address=0x20_0008)]), "pool.address")
    assert _found(_program([_pool(address=0xFFFF_FFF0)]), "memory.wrap")
    assert (
        _found(_program([_pool(address=0x30_0000)]), "memory.unmapped")[0].path
        == "PPU_RDMA.SRC_BASE_ADDR.SRC_BASE_ADDR"
    )
    lost = _program([_pool(to=0x21_0000), _pool(to=0x21_0010)])
    (finding,) = _found(lost, "memory.overwritten")
    assert finding.task == 1 and "task 0" in finding.message
    # The second reads what the first wrote, and more.
    (finding,) = _found(
        _program([_pool(to=0x21_0000), _pool(address=0x21_0000, to=0x21_8000)]), "memory.half-written"
    )
    assert finding.task == 1 and "12 of 16 atoms" in finding.message


def test_memory_of_the_host_is_in_use() -> None:
    """What the host or other kicks read and write is neither lost when it is overwritten nor a gap: LPRNet of
    swdee/go-rknnlite-data computes Pow and ReduceMean on the host between its jobs."""
    lost = _program([_pool(to=0x21_0000), _pool(to=0x21_0010)])
    lost.held = [(0x21_0000, 0x40)]
    assert not _found(lost, "memory.overwritten")
    lost.held = [(0x21_8000, 0x40)]
    assert _found(lost, "memory.overwritten")
    read = _program([_pool(to=0x21_0000), _pool(address=0x21_0000, to=0x21_8000)])
    read.held = [(0x21_0000, 0x100)]
    assert not _found(read, "memory.half-written")
    read.held = [(0x21_0000, 0xF0)]
    assert "1 of 16 atoms" in _found(read, "memory.half-written")[0].message


def _with_unknown_header() -> Program:
    """A convolution with compressed weights, the header of one of whose segments is unknown."""
    for index in range(20):
        program = program_of_stream(draw_case("unknown headers", 7, index).stream())
        if _found(program, "conv.weight-code"):
            return program
    raise AssertionError("no such draw")


def test_compressed_weights_are_checked_where_they_are_known() -> None:
    """Not if nobody knows the memory, or if a task writes there: it may mend what is wrong."""
    program = _with_unknown_header()
    (finding,) = _found(program, "conv.weight-code")
    assert finding.severity == "error" and finding.register.startswith("DCOMP_AMOUNT")
    contents = program.contents
    program.contents = []
    assert not _found(program, "conv.weight-code")
    program.contents = contents
    (task,) = program.tasks
    commands = {c.register.path: c for c in task.commands if c.register is not None}
    words = list(task.words)
    place, at = commands["CNA.DCOMP_ADDR0"].value, commands["DPU.DST_BASE_ADDR"].index
    words[at] = words[at] & ~(0xFFFF_FFFF << 16) | place << 16
    program.tasks = [replace(task, words=tuple(words))]
    assert not _found(program, "conv.weight-code")


def test_the_time_for_compressed_weights_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks whose segments overlap can request more bytes than the memory has."""
    program = _with_unknown_header()
    monkeypatch.setattr(flow, "MOST_DECODED", 0)
    (finding,) = _found(program, "conv.weight-code")
    assert finding.severity == "warning" and "not checked" in finding.message


def test_surfaces_of_padding_channels_may_be_overwritten() -> None:
    """A convolution of 16 channels writes the 32 of its group, and the next tensor may begin in the second
    half, where only lanes without a kernel are."""

    def copy(original: int, to: int) -> TaskBuilder:
        task = TaskBuilder("copy").enable("DPU", "DPU_RDMA")
        for block in ("DPU", "DPU_RDMA"):
            task.set(block, "S_POINTER", POINTER_PP_MODE=1, EXECUTER_PP_EN=1, POINTER_PP_EN=1)
            task.set(block, "DATA_CUBE_WIDTH", WIDTH=3)
        task.set("DPU", "FEATURE_MODE_CFG", FLYING_MODE=1, OUTPUT_MODE=2, BURST_LEN=15)
        task.set("DPU", "DATA_CUBE_CHANNEL", CHANNEL=31, ORIG_CHANNEL=original - 1)
        task.set("DPU", "WDMA_SIZE_0", CHANNEL_WDMA=31)
        task.set("DPU", "WDMA_SIZE_1", WIDTH_WDMA=3)
        task.set_word("DPU", "DST_BASE_ADDR", to)
        task.set("DPU", "SURFACE_ADD", SURF_ADD=4)
        task.set("DPU", "DST_SURF_STRIDE", DST_SURF_STRIDE=4)
        task.set("DPU_RDMA", "DATA_CUBE_CHANNEL", CHANNEL=31)
        task.set("DPU_RDMA", "FEATURE_MODE_CFG", FLYING_MODE=1, BURST_LEN=15)
        task.set_word("DPU_RDMA", "SRC_BASE_ADDR", 0x20_0000)
        return task

    for original, said in ((16, 0), (17, 1)):
        found = _found(_program([copy(original, 0x21_0000), copy(32, 0x21_0040)]), "memory.overwritten")
        assert len(found) == said, (original, found)


def test_reuse_of_what_nobody_loaded() -> None:
    case = draw_case("weight reuse", 1, 0)
    program = program_of_stream(case.stream())
    assert not _found(program, "cbuf.reuse")
    only = Program("second", program.tasks[1:])
    assert _found(only, "cbuf.reuse") or _found(only, "group.never-set")


def test_a_finding_says_where(capsys: pytest.CaptureFixture[str]) -> None:
    stream = long_stream(2, 3)
    program = program_of_stream(stream)
    task = program.tasks[0]
    words = list(task.words)
    at = next(c.index for c in task.commands if c.name == "CNA.CBUF_CON0")
    words[at] = register_word(
        registers()["CNA"]["CBUF_CON0"], registers()["CNA"]["CBUF_CON0"].encode(DATA_BANK=7, WEIGHT_BANK=9)
    )
    program.tasks[0] = ListedTask(tuple(words), task.address, task.amount)
    finding = next(f for f in lint(program) if f.rule == "cbuf.bank-sum")
    assert (finding.task, finding.word, finding.path) == (0, at, "CNA.CBUF_CON0.WEIGHT_BANK")
    assert str(finding).startswith(f"error: task 0, word {at}: CNA.CBUF_CON0.WEIGHT_BANK = 9: ")
    assert finding.as_json()["rule"] == "cbuf.bank-sum"
    with pytest.raises(ValueError, match="no such rule: nonsense"):
        lint(program, ["nonsense"])


SETTABLE = [r for b in registers() if b.target for r in b if r.shadowed or r.name == "S_POINTER"]


@given(
    st.lists(
        st.one_of(
            st.builds(register_word, st.sampled_from(SETTABLE), st.integers(0, 2**32 - 1)),
            st.builds(register_word, st.sampled_from(SETTABLE), st.integers(0, 40)),
            st.builds(op_enable_word, st.integers(0, 127)),
            st.integers(0, 2**64 - 1),
        ),
        max_size=120,
    )
)
@settings(max_examples=100, deadline=None, print_blob=True)
def test_anything_can_be_asked(words: list[int]) -> None:
    program = program_of_words(words)
    program.ranges, program.core, program.mask, program.number = [(0, 1 << 20)], 0, 0x300, len(program.tasks)
    for finding in lint(program):
        assert finding.rule in RULES and str(finding)


def test_the_greatest_sizes_take_no_time() -> None:
    """All registers of all blocks at their greatest values."""
    words = [register_word(r, r.mask & ~(1 << 31)) for r in SETTABLE if r.name != "S_POINTER"]
    begun = time.process_time()
    for mask in (0x0D, 0x1D, 0x18, 0x60, 0x7D):
        assert lint(Program("most", [ListedTask((*words, op_enable_word(mask)))], ranges=[(0, 4096)], core=0))
    assert time.process_time() - begun < 10


def test_tasks_that_the_host_starts_are_counted() -> None:
    """Slave mode: there is no chain, and the summary says one task."""
    regs = registers()
    writes = [(regs[block]["OPERATION_ENABLE"].offset, 1) for block in ("PPU", "PPU_RDMA")]
    program = Program("slave", [], 1, slave=True, writes=writes)
    assert task_count(program) == 1 and task_count(_program([_pool(), _pool()])) == 2


def test_the_table_of_rules() -> None:
    regs = registers()
    assert len(RULES) > 60
    for rule in RULES.values():
        assert rule.severity in SEVERITIES and rule.why.endswith(".") and rule.source
        assert rule.whole or set(rule.blocks) <= {block.name for block in regs}


# -- what boards did and the model does not ----------------------------------------------------------


def _convolution(kind: int, out: int, width: int = 8, **fields: dict[str, int]) -> TaskBuilder:
    """As many registers of a 64-channel convolution as the notes look at."""
    task = TaskBuilder("convolution").enable("CNA", "CORE", "DPU")
    task.set("DPU", "S_POINTER", POINTER_PP_MODE=1, EXECUTER_PP_EN=1, POINTER_PP_EN=1)
    task.set("CNA", "CONV_CON1", IN_PRECISION=kind, PROC_PRECISION=kind)
    task.set("CORE", "MISC_CFG", PROC_PRECISION=kind)
    task.set("DPU", "DATA_FORMAT", IN_PRECISION=kind, PROC_PRECISION=kind, OUT_PRECISION=out)
    task.set("DPU", "DATA_CUBE_CHANNEL", CHANNEL=63)
    for axis in ("WIDTH", "HEIGHT"):
        task.set("DPU", f"DATA_CUBE_{axis}", **{axis: width - 1})
    for place, values in fields.items():
        task.set(*place.split("__"), **values)
    return task


def _noted(*tasks: TaskBuilder) -> dict[str, Finding]:
    program = Program("p", [ListedTask(tuple(task.words())) for task in tasks])
    found = [f for f in lint(program) if f.rule.startswith("silicon.")]
    assert all(f.severity == "note" for f in found)
    return {f.rule: f for f in found}


@pytest.mark.board("13.40", source="precision-change", place="precision-change")
def test_large_halves_behind_words_are_noted() -> None:
    """139 KiB of fp16 behind an int8 job with int32 output hung, 128 KiB did not."""
    whole, above = _convolution(2, 2, width=32), _convolution(2, 2, width=33)
    assert _noted(_convolution(0, 4), above)["silicon.int32-output"].task == 1
    assert not _noted(_convolution(0, 4), whole)
    assert not _noted(_convolution(0, 0), above)
    assert not _noted(above, _convolution(0, 4))


def test_a_depthwise_convolution_at_the_end_is_noted() -> None:
    depthwise = _convolution(2, 2, DPU__FEATURE_MODE_CFG={"CONV_MODE": 3})
    assert _noted(depthwise, _pool())["silicon.depthwise-last"].task == 0
    assert not _noted(depthwise, _convolution(2, 2))


@pytest.mark.board("13.41", source="ork-driver", place="OPS_REGISTRY.md, one weight bank")
def test_a_ring_of_one_bank_is_noted() -> None:
    """K 1024 with 16 or 32 kernels and one weight bank hung; two banks, or more groups, ran."""

    def product(kernels: int, banks: int) -> TaskBuilder:
        return _convolution(
            2,
            2,
            CNA__CBUF_CON0={"DATA_BANK": 12 - banks, "WEIGHT_BANK": banks},
            CNA__WEIGHT_SIZE0={"WEIGHT_BYTES": 2048 * kernels},
            CNA__WEIGHT_SIZE2={"WEIGHT_KERNELS": kernels, "WEIGHT_WIDTH": 1, "WEIGHT_HEIGHT": 1},
        )

    for kernels, banks, noted in ((16, 1, True), (32, 1, True), (32, 4, False), (3584, 1, False)):
        assert ("silicon.one-bank-ring" in _noted(product(kernels, banks))) == noted


@pytest.mark.board("13.42", source="sliding-probe", place="pools of 1 x 8 and 1 x 16")
def test_a_window_of_16_columns_is_noted() -> None:
    for columns, noted in ((8, False), (16, True)):
        pool = _pool()
        pool.set("PPU", "DATA_FORMAT", PROC_PRECISION=2)
        pool.set("PPU", "POOLING_KERNEL_CFG", KERNEL_WIDTH=columns - 1)
        assert ("silicon.wide-window" in _noted(pool)) == noted
