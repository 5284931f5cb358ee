"""The table of element types against the enumerations of the register description [HW 3]."""

from __future__ import annotations

from rkcosim.spec import types
from rkcosim.spec.regs import registers


def _codes(block: str, register: str, field: str) -> dict[str, int]:
    found = registers()[block][register].fields[field].enum
    assert found is not None
    return {name.lower(): code for name, code in found.items()}


def test_every_code_of_the_description_has_a_type() -> None:
    for block, register in (("CNA", "CONV_CON1"), ("CORE", "MISC_CFG")):
        codes = _codes(block, register, "PROC_PRECISION")
        assert {t.name: code for code, t in types.CONV_CODES.items()} == codes
    for block, register in (("DPU", "DATA_FORMAT"), ("DPU_RDMA", "FEATURE_MODE_CFG")):
        codes = _codes(block, register, "IN_PRECISION")
        assert {t.name: code for code, t in types.DPU_TYPES.items()} == codes
    assert {f"bits{bits}": code for code, bits in enumerate(types.ERDMA_BITS)} == _codes(
        "DPU_RDMA", "ERDMA_CFG", "ERDMA_DATA_SIZE"
    )
    assert set(types.POOL_BITS) == set(types.PPU_CODES.values())


def test_sizes_are_those_of_docs_hardware_0() -> None:
    rows = {t.name: (t.bits, t.per_atom, t.kernels, t.channels) for t in types.CONV_TYPES}
    assert rows == {
        "int4": (4, 32, 64, 32),
        "int8": (8, 16, 32, 32),
        "int16": (16, 8, 16, 32),
        "fp16": (16, 8, 16, 32),
        "bf16": (16, 8, 16, 32),
        "tf32": (32, 4, 16, 16),
    }
    assert types.FLOAT_CODES == (2, 3, 5) and types.SIXTEEN_BITS == (1, 2, 3) and types.DEPTHWISE == 3
