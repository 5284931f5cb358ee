"""The register description: spot checks against the reference, encode and decode, cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rkcosim.spec.regs import registers, table
from rkcosim.spec.regs.groups import field_arrays, fields_of, register_arrays, stage
from rkcosim.spec.weight_code import SEGMENTS
from tools.pages.registers import markdown

ALL = [register for block in registers() for register in block]
ROOT = Path(__file__).parents[2]


def test_offsets_are_unique_and_blocks_in_their_windows() -> None:
    assert len({register.offset for register in ALL}) == len(ALL)
    for block in registers():
        for register in block:
            assert register.offset == block.base + register.local
            assert registers().at(register.offset) is register
            assert registers().block_at(register.offset) is block
    assert registers().at(0x2000) is None


def test_fields_do_not_overlap_and_fit() -> None:
    for register in ALL:
        seen = 0
        for field in register.fields.values():
            assert not seen & field.mask, f"{register.path}.{field.name}"
            seen |= field.mask
            assert field.msb < register.width
            assert 0 <= field.reset < 1 << field.width
        assert register.fields


@pytest.mark.parametrize(
    ("block", "register", "offset", "field", "msb", "lsb"),
    [
        ("PC", "TASK_CON", 0x0030, "TASK_NUMBER", 11, 0),
        ("PC", "INTERRUPT_MASK", 0x0020, "int_mask", 16, 0),
        ("CNA", "CONV_CON2", 0x1010, "NN_MODE", 31, 28),
        ("CNA", "CBUF_CON1", 0x1044, "DATA_ENTRIES", 14, 0),
        ("CNA", "CVT_CON0", 0x104C, "CVT_TRUNCATE_3", 27, 22),
        ("CNA", "DCOMP_AMOUNT15", 0x117C, "DCOMP_AMOUNT15", 31, 0),
        ("CNA", "PAD_CON1", 0x1184, "PAD_VALUE", 31, 0),
        ("CORE", "CLIP_TRUNCATE", 0x301C, "CLIP_TRUNCATE", 4, 0),
        ("DPU", "SURFACE_ADD", 0x40C0, "SURF_ADD", 31, 4),
        ("DPU", "EW_OP_VALUE_7", 0x40AC, "EW_OPERAND_7", 31, 0),
        ("DPU", "LUT_LO_SLOPE_SHIFT", 0x412C, "OFLOW_SHIFT", 9, 5),
        ("DPU_RDMA", "BRDMA_CFG", 0x501C, "BRDMA_DATA_USE", 4, 1),
        ("PPU", "POOLING_KERNEL_CFG", 0x6034, "KERNEL_STRIDE_HEIGHT", 23, 20),
        ("PPU_RDMA", "SRC_SURF_STRIDE", 0x7028, "SRC_SURF_STRIDE", 31, 4),
        ("SDMA", "CFG_STATUS", 0x9030, "IDEL", 8, 8),
        ("GLOBAL", "OPERATION_ENABLE", 0xF008, "PPU_RDMA_OP_EN", 6, 6),
    ],
)
def test_places_of_the_reference(block, register, offset, field, msb, lsb) -> None:
    described = registers()[block][register]
    assert described.offset == offset
    assert (described.fields[field].msb, described.fields[field].lsb) == (msb, lsb)


@pytest.mark.parametrize(
    ("block", "register", "value", "expected"),
    [
        # Whole words that the reference decodes ([HW 2.4] to [HW 2.6], [HW 14.7]).
        (
            "DPU",
            "BS_CFG",
            0x20150,
            {"BS_ALU_ALGO": 2, "BS_ALU_SRC": 1, "BS_RELU_BYPASS": 1, "BS_MUL_BYPASS": 1},
        ),
        ("DPU", "FEATURE_MODE_CFG", 0x1E5, {"BURST_LEN": 15, "OUTPUT_MODE": 2, "FLYING_MODE": 1}),
        ("DPU", "FEATURE_MODE_CFG", 0x1FC, {"BURST_LEN": 15, "CONV_MODE": 3, "OUTPUT_MODE": 2}),
        ("DPU", "LUT_CFG", 0x68, {"LUT_HYBRID_PRIORITY": 1, "LUT_OFLOW_PRIORITY": 1, "LUT_LO_LE_MUX": 2}),
        ("DPU_RDMA", "ERDMA_CFG", 0x40000008, {"ERDMA_DATA_MODE": 1, "ERDMA_DATA_SIZE": 2}),
        (
            "DPU",
            "EW_CFG",
            0x108202C0,
            {
                "EW_DATA_MODE": 1,
                "EDATA_SIZE": 2,
                "EW_ALU_ALGO": 2,
                "EW_RELU_BYPASS": 1,
                "EW_LUT_BYPASS": 1,
                "EW_OP_SRC": 1,
            },
        ),
        (
            "DPU_RDMA",
            "FEATURE_MODE_CFG",
            0x17849,
            {
                "IN_PRECISION": 2,
                "BURST_LEN": 15,
                "PROC_PRECISION": 2,
                "MRDMA_FP16TOFP32_EN": 1,
                "FLYING_MODE": 1,
            },
        ),
        (
            "CNA",
            "S_POINTER",
            0x2000000E,
            {"CORE_INDEX": 2, "POINTER_PP_MODE": 1, "EXECUTER_PP_EN": 1, "POINTER_PP_EN": 1},
        ),
    ],
)
def test_words_of_the_reference(block, register, value, expected) -> None:
    described = registers()[block][register]
    assert {name: v for name, v in described.decode(value).items() if v} == expected
    assert described.encode(**expected) == value


@given(st.sampled_from(ALL), st.data())
def test_encode_and_decode_are_inverse(register, data) -> None:
    values = {}
    for name, field in register.fields.items():
        low = -(1 << (field.width - 1)) if field.signed else 0
        values[name] = data.draw(st.integers(low, (1 << (field.width - field.signed)) - 1))
    assert register.decode(register.encode(**values)) == values


def test_update_keeps_the_other_bits() -> None:
    register = registers()["CNA"]["S_POINTER"]
    assert register.update(0x2000000E, CORE_INDEX=1) == 0x1000000E


def test_reset_values_and_access() -> None:
    regs = registers()
    assert regs["CNA"]["DMA_CON2"].fields["SURF_STRIDE"].signed
    assert not regs["CNA"]["DMA_CON1"].fields["LINE_STRIDE"].signed
    assert regs["CORE"]["MAC_GATING"].reset == 0x07800800
    assert regs["PC"]["INTERRUPT_MASK"].reset == 0x1FFFF
    assert regs["DDMA"]["CFG_OUTSTANDING"].reset == 0x0FFF
    assert regs["SDMA"]["WR_WEIGHT_0"].reset == 0x00010101
    assert not regs["PC"]["INTERRUPT_STATUS"].writable
    assert regs["PC"]["INTERRUPT_CLEAR"].fields["int_clr"].sw == "w1c"
    assert not regs["DPU"]["LUT_ACCESS_CFG"].shadowed and regs["DPU"]["LUT_CFG"].shadowed
    assert not regs["DPU"]["UNDOC_40C4"].readable
    assert regs["SDMA"].target == 0 and regs.block_of_target(0x0401) is regs["DDMA"]


def test_errors_name_what_is_wrong() -> None:
    register = registers()["CNA"]["CONV_CON1"]
    with pytest.raises(ValueError, match=r"CNA\.CONV_CON1\.CONV_MODE: 16 is outside 0\.\.15"):
        register.encode(CONV_MODE=16)
    with pytest.raises(ValueError, match=r"CNA\.CONV_CON1\.CONV_MODE: -1"):
        register.encode(CONV_MODE=-1)
    with pytest.raises(ValueError, match="known: INT8"):
        register.encode(IN_PRECISION="INT9")
    with pytest.raises(KeyError, match="CNA has no 'CONV_CON7'; it has S_STATUS"):
        registers()["CNA"]["CONV_CON7"]


def loaded(cache: Path) -> str:
    script = "from rkcosim.spec.regs import registers\nimport sys\n"
    script += "print(hex(registers()['CNA']['CONV_CON1'].offset), "
    script += "'systemrdl' in sys.modules, 'amaranth' in sys.modules)"
    env = {**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_cache_is_used_and_a_damaged_one_rebuilt(tmp_path: Path) -> None:
    assert loaded(tmp_path) == "0x100c True False"
    assert loaded(tmp_path) == "0x100c False False"
    (file,) = (tmp_path / "rkcosim").glob("registers-*.json")
    good = file.read_text()
    for damage in ("", "{", "[]", good[: len(good) // 2], good.replace('"CONV_CON1"', '"CONV_CON8"')):
        file.write_text(damage)
        assert loaded(tmp_path) == "0x100c True False"
        assert file.read_text() == good


def test_unwritable_cache_is_no_problem(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    assert loaded(blocker) == "0x100c True False"


def test_sources_are_complete() -> None:
    folder = Path(table.__file__).parent
    assert {path.name for path in folder.glob("*.rdl")} == set(table.sources())


def test_page_lists_every_register_and_code() -> None:
    page = markdown()
    for register in ALL:
        assert f"### 0x{register.offset:04X} {register.path}\n" in page
        for name in register.fields:
            assert f"| {name} |" in page
    assert "`DEPTHWISE` 3" in page and "reset 0x7800800" in page and "### 0x0000 REGCMD.WORD" in page


def test_numbered_registers_with_equal_fields_are_arrays() -> None:
    blocks = registers()
    found = {
        block.name: {stem: len(members) for stem, members in register_arrays(block).items()}
        for block in blocks
    }
    assert {name: stems for name, stems in found.items() if stems} == {
        "CNA": {"DCOMP_AMOUNT": SEGMENTS},
        "DPU": {"EW_OP_VALUE": 8},
    }
    values = register_arrays(blocks["DPU"])["EW_OP_VALUE"]
    assert [register.offset for register in values] == [0x4090 + 4 * n for n in range(8)]
    assert fields_of(values[3], 3) == {"EW_OPERAND": values[3].fields["EW_OPERAND_3"]}
    assert list(fields_of(values[3], 2)) == ["EW_OPERAND_3"]  # another number is part of the name


def test_numbered_fields_are_arrays() -> None:
    arrays = {
        stem: [f"{register.name}.{field.name}" for register, field in members]
        for stem, members in field_arrays(registers()["CNA"]).items()
    }
    assert arrays["CVT_SCALE"] == [f"CVT_CON{n + 1}.CVT_SCALE{n}" for n in range(4)]
    assert arrays["CVT_OFFSET"] == [f"CVT_CON{n + 1}.CVT_OFFSET{n}" for n in range(4)]
    assert arrays["CVT_TRUNCATE"] == [f"CVT_CON0.CVT_TRUNCATE_{n}" for n in range(4)]
    assert "DCOMP_AMOUNT" not in arrays  # an array of registers
    assert "PAD_VALUE" not in field_arrays(registers()["PPU"])  # PAD_VALUE_1 is narrower than PAD_VALUE_0


def test_a_stage_has_the_registers_and_fields_of_its_prefix() -> None:
    parts = stage(registers()["DPU"], "BS")
    assert {"CFG", "ALU_CFG", "MUL_CFG", "RELUX_CMP_VALUE", "DATA_FORMAT"} <= set(parts)
    register, fields = parts["MUL_CFG"]
    assert register.name == "BS_MUL_CFG"
    assert fields["MUL_SHIFT_VALUE"] is register.fields["BS_MUL_SHIFT_VALUE"]
    register, fields = parts["DATA_FORMAT"]
    assert register.name == "DATA_FORMAT"
    assert list(fields) == ["MUL_SHIFT_VALUE_NEG"]
    for name, prefix in (("DPU", "BX"), ("DPU", "B"), ("DPU", "EW_MUL")):
        with pytest.raises(KeyError, match=f"{name} has no registers of a stage '{prefix}'"):
            stage(registers()[name], prefix)
