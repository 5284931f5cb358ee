"""Hangs, diagnostics and S_STATUS of the golden DPU and its readers."""

from __future__ import annotations

import numpy as np
import pytest

from rkcosim.golden.task import GoldenError, GoldenHang, GoldenNpu
from rkcosim.spec.regs import registers
from tests.makers.golden_bench import BN, BS, ELEMENT, MAIN, OUT, Program, device, flying, pattern, put

R = registers()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ([("DPU_RDMA", "FEATURE_MODE_CFG", {"MRDMA_DISABLE": 1})], "FLYING_MODE .*waits for MRDMA"),
        ([("DPU", "EW_CFG", {"EW_BYPASS": 0, "EW_OP_SRC": 1})], "waits for ERDMA"),
        ([("DPU", "BS_CFG", {"BS_BYPASS": 0, "BS_ALU_SRC": 1, "BS_ALU_ALGO": 2})], "waits for BRDMA"),
        (
            [
                ("DPU", "BN_CFG", {"BN_BYPASS": 0, "BN_ALU_BYPASS": 1}),
                ("DPU", "BN_MUL_CFG", {"BN_MUL_SRC": 1}),
            ],
            "waits for NRDMA",
        ),
        (
            [("DPU_RDMA", "FEATURE_MODE_CFG", {"FLYING_MODE": 0, "COMB_USE": 5})],
            "COMB_USE 5 waits for ERDMA",
        ),
    ],
)
def test_streams_that_do_not_meet_hang(settings: list, text: str) -> None:
    dev, p = device(), flying((8, 1, 1), 0, 0)
    for block, register, fields in settings:
        p.set(block, register, **fields)
    with pytest.raises(GoldenHang, match=text):
        p.run(dev)


@pytest.mark.parametrize("bypass", [{"EW_BYPASS": 1}, {"EW_BYPASS": 0, "EW_OP_BYPASS": 1}])
@pytest.mark.parametrize("source", [0, 1])
def test_flying_drops_the_element_data_that_no_operation_takes(bypass: dict, source: int) -> None:
    dev, p = device(), flying((8, 1, 1), 0, 0)
    p.set("DPU", "EW_CFG", EW_OP_SRC=source, EW_RELU_BYPASS=1, **bypass)
    p.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DISABLE=0, ERDMA_DATA_MODE=1)
    p.set("DPU_RDMA", "EW_BASE_ADDR", EW_BASE_ADDR=ELEMENT)
    dev.memory.write(MAIN, bytes(range(8)))
    p.run(dev)
    assert dev.memory.read(OUT, 8) == bytes(range(8))


def test_unused_ew_operation_takes_no_operand() -> None:
    dev, p = device(), flying((8, 1, 1), 0, 0)
    p.set("DPU", "EW_CFG", EW_BYPASS=0, EW_OP_BYPASS=1, EW_OP_SRC=1, EW_RELU_BYPASS=1)
    dev.memory.write(MAIN, bytes(range(8)))
    p.run(dev)
    assert dev.memory.read(OUT, 8) == bytes(range(8))


DPU_SETTINGS = [
    ("FEATURE_MODE_CFG", {"TP_EN": 1}),
    ("FEATURE_MODE_CFG", {"RGP_TYPE": 2}),
    ("FEATURE_MODE_CFG", {"NONALIGN": 1}),
    ("FEATURE_MODE_CFG", {"SURF_LEN": 8}),
    ("FEATURE_MODE_CFG", {"CONV_MODE": 1}),
    ("DATA_FORMAT", {"MC_SURF_OUT": 1}),
    ("DATA_FORMAT", {"IN_PRECISION": 0}),
    ("DATA_FORMAT", {"PROC_PRECISION": 7}),
    ("DATA_CUBE_HEIGHT", {"MINMAX_CTL": 1}),
    ("BS_OW_CFG", {"RGP_CNTER": 1}),
    ("BS_MUL_CFG", {"BS_TRUNCATE_SRC": 1}),
    ("BN_MUL_CFG", {"BN_TRUNCATE_SRC": 1}),
    ("OUT_CVT_SCALE", {"OUT_CVT_SCALE": 2}),
    ("OUT_CVT_OFFSET", {"OUT_CVT_OFFSET": 1}),
    ("OUT_CVT_SHIFT", {"OUT_CVT_SHIFT": 1}),
    ("WDMA_SIZE_0", {"CHANNEL_WDMA": 9}),
    ("WDMA_SIZE_1", {"WIDTH_WDMA": 9}),
    ("WDMA_SIZE_1", {"HEIGHT_WDMA": 9}),
    ("BS_OW_CFG", {"SIZE_E_0": 1}),
    ("BS_OW_CFG", {"SIZE_E_2": 1}),
    ("DATA_CUBE_NOTCH_ADDR", {"NOTCH_ADDR_1": 1}),
]


@pytest.mark.parametrize(("register", "fields"), DPU_SETTINGS)
def test_settings_without_effect_are_told(register: str, fields: dict) -> None:
    """The result is that of the task without these settings, with exactly one diagnostic."""
    (name, value), images = next(iter(fields.items())), []
    for change in (False, True):
        dev, p = device(strict=False), flying((8, 1, 2), 2, 2)
        rng = np.random.default_rng(11)
        put(dev, MAIN, 16, (8, 1, 2), lambda c, y, x, rng=rng: pattern(rng, 2), 2, 2)
        if change:
            p.set("DPU", register, **fields)
        if change and name == "IN_PRECISION":  # an input surface makes two
            p.set("DPU", "BS_OW_CFG", SIZE_E_0=1, SIZE_E_1=1, SIZE_E_2=1)
        if name == "PROC_PRECISION":
            p.set("DPU", "DATA_FORMAT", IN_PRECISION=4 if change else 2)
        p.run(dev)
        images.append(dev.memory.read(OUT, 64))
    code = (
        "SIZE_MISMATCH" if register[:4] in ("WDMA", "DATA") and "CUBE_H" not in register else "RESERVED_MODE"
    )
    code = "RESERVED_MODE" if register == "DATA_FORMAT" else code
    code = "SIZE_MISMATCH" if name.startswith("SIZE_E") else code
    label = register if name == register else f"{register}.{name}"
    assert [(f.code, f.register, f.value) for f in dev.findings] == [(code, label, value)]
    if name not in ("IN_PRECISION", "PROC_PRECISION"):
        assert images[0] == images[1]


@pytest.mark.parametrize(
    ("register", "fields"),
    [
        ("ERDMA_CFG", {"ERDMA_SURF_MODE": 1}),
        ("ERDMA_CFG", {"ERDMA_NONALIGN": 1}),
        ("SRC_DMA_CFG", {"UNPOOLING_EN": 1}),
        ("SRC_DMA_CFG", {"KERNEL_WIDTH": 1}),
        ("PAD_CFG", {"PAD_TOP": 1}),
        ("FEATURE_MODE_CFG", {"COMB_USE": 3}),
        ("FEATURE_MODE_CFG", {"COMB_USE": 5}),
        ("FEATURE_MODE_CFG", {"MRDMA_FP16TOFP32_EN": 0}),
        ("FEATURE_MODE_CFG", {"CONV_MODE": 2}),
        ("BRDMA_CFG", {"BRDMA_DATA_USE": 8}),
        ("NRDMA_CFG", {"NRDMA_DATA_USE": 2}),
        ("ERDMA_CFG", {"ERDMA_DATA_MODE": 2}),
        ("ERDMA_CFG", {"ERDMA_DATA_SIZE": 1}),
    ],
)
def test_settings_of_the_readers_are_told(register: str, fields: dict) -> None:
    element = next(iter(fields)).startswith("ERDMA_DATA")
    kind = 3 if "MRDMA_FP16TOFP32_EN" in fields else 2  # of fp16 the bit has an effect
    dev, p = device(), flying((8, 1, 2), kind, 2, element=element)
    p.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DATA_MODE=1, ERDMA_DATA_SIZE=2)
    p.set("DPU_RDMA", "EW_BASE_ADDR", ELEMENT)
    if element:
        p.set("DPU", "EW_CFG", EW_BYPASS=0, EW_OP_SRC=1, EW_OP_CVT_BYPASS=1)
    p.run(device())
    p.set("DPU_RDMA", register, **fields)
    with pytest.raises(GoldenError, match=f"DPU_RDMA.{register}.{next(iter(fields))} .*RESERVED_MODE"):
        p.run(dev)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"OFFSET": 1}, "EW_CVT_OFFSET_VALUE.EW_OP_CVT_OFFSET"),
        ({"SCALE": 2}, "EW_CVT_SCALE_VALUE.EW_OP_CVT_SCALE"),
        ({"SHIFT": 1}, "EW_CVT_SCALE_VALUE.EW_OP_CVT_SHIFT"),
        ({"ALGO": 9}, "EW_CFG.EW_ALU_ALGO"),
        ({"BINARY": 1}, "EW_CFG.EW_BINARY_EN"),
    ],
)
def test_element_wise_settings_of_floats_are_told(fields: dict, text: str) -> None:
    p = flying((8, 1, 2), 2, 2, element=True)
    p.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DATA_MODE=1, ERDMA_DATA_SIZE=2)
    p.set("DPU_RDMA", "EW_BASE_ADDR", ELEMENT)
    p.set("DPU", "EW_CFG", EW_BYPASS=0, EW_OP_SRC=1, EW_ALU_ALGO=fields.get("ALGO", 2))
    p.set("DPU", "EW_CFG", EW_BINARY_EN=fields.get("BINARY", 0))
    p.set("DPU", "EW_CVT_OFFSET_VALUE", EW_OP_CVT_OFFSET=fields.get("OFFSET", 0))
    scale = {"EW_OP_CVT_SCALE": fields.get("SCALE", 1), "EW_OP_CVT_SHIFT": fields.get("SHIFT", 0)}
    p.set("DPU", "EW_CVT_SCALE_VALUE", **scale)
    with pytest.raises(GoldenError, match=f"DPU.{text} .*RESERVED_MODE"):
        p.run(device())


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (("FEATURE_MODE_CFG", {"TP_EN": 1}), "FEATURE_MODE_CFG.TP_EN"),
        (("BS_OW_CFG", {"TP_ORG_EN": 1}), "BS_OW_CFG.TP_ORG_EN"),
    ],
)
def test_packets_of_other_types_are_not_made(fields: tuple, told: str) -> None:
    """Only int16, from memory or from CORE as int32, is known to be written as packets (4.11)."""
    images = []
    for change in (False, True):
        dev, p = device(strict=False), flying((36, 1, 8), 0, 4)
        put(dev, MAIN, 8, (36, 1, 8), lambda c, y, x: (3 * c + x) % 256, 8, 8)
        p.set("DPU", "WDMA_SIZE_0", TP_PRECISION=1)
        if change:
            p.set("DPU", fields[0], **fields[1])
        p.run(dev)
        images.append(dev.memory.read(OUT, 9 * 8 * 16))
    assert images[0] == images[1]
    assert [(f.code, f.register) for f in dev.findings] == [("RESERVED_MODE", told)]


# -- S_STATUS ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("index", "status"), [(0, 1), (1, 0)])
def test_a_block_of_another_core_is_idle(index: int, status: int) -> None:
    npu = GoldenNpu(1)
    for block in ("CNA", "CORE"):
        r = R[block]["S_POINTER"]
        npu.write32(0, r.offset, r.encode(CORE_INDEX=index))
        npu.write32(0, R[block]["OPERATION_ENABLE"].offset, 1)
        assert npu.read32(0, R[block]["S_STATUS"].offset) == status


def test_status_names_the_executer_and_a_waiting_group() -> None:
    npu = GoldenNpu(1)
    pointer, enable, state = (R["PPU"][n] for n in ("S_POINTER", "OPERATION_ENABLE", "S_STATUS"))
    npu.write32(0, pointer.offset, pointer.encode(POINTER=1))
    npu.write32(0, enable.offset, 1)
    assert npu.read32(0, state.offset) == 0  # group 1 waits for its turn
    npu.write32(0, pointer.offset, pointer.encode(POINTER=0))
    npu.write32(0, enable.offset, 1)
    assert state.decode(npu.read32(0, state.offset)) == {"STATUS_0": 2, "STATUS_1": 0}


def test_a_task_that_hangs_tells_everything_once() -> None:
    """Diagnostics are raised at the start of the blocks, before the reason of the hang."""
    dev, p = device(strict=False), flying((8, 1, 1), 2, 1)
    p.set("DPU", "OUT_CVT_OFFSET", 3)
    p.set("DPU", "EW_CFG", EW_BYPASS=0, EW_OP_SRC=1, EW_ALU_ALGO=12)
    p.set("DPU_RDMA", "PAD_CFG", PAD_TOP=1)
    with pytest.raises(GoldenHang, match="waits for ERDMA"):
        p.run(dev)
    assert [(f.block, f.register) for f in dev.findings] == [
        ("DPU", "EW_CFG.EW_ALU_ALGO"),
        ("DPU", "OUT_CVT_OFFSET"),
        ("DPU_RDMA", "PAD_CFG.PAD_TOP"),
    ]


def test_a_waiting_task_in_slave_mode_tells_too() -> None:
    npu = GoldenNpu(1, strict=False)
    for word in flying((24, 1, 1), 0, 0).words()[:-1]:
        fields = R.word.decode(word)
        npu.write32(0, fields["OFFSET"], fields["VALUE"])
    npu.write32(0, R["DPU"]["OFFSET_PEND"].offset, 0)
    npu.write32(0, R["DPU"]["WDMA_SIZE_0"].offset, 3)
    npu.memory.map(MAIN, 64)
    npu.memory.map(OUT, 64)
    npu.write32(0, R["DPU"]["OPERATION_ENABLE"].offset, 1)
    assert [f.register for f in npu.diagnostics()] == ["WDMA_SIZE_0.CHANNEL_WDMA"]
    assert npu.read32(0, R["DPU"]["S_STATUS"].offset) == 1
    npu.write32(0, R["DPU_RDMA"]["OPERATION_ENABLE"].offset, 1)
    assert [f.register for f in npu.diagnostics()] == ["WDMA_SIZE_0.CHANNEL_WDMA"]
    assert npu.read32(0, R["DPU"]["S_STATUS"].offset) == 0


@pytest.mark.parametrize(
    ("size_e", "written"), [(0, [0, 1, 2, 3]), (1, list(range(8))), (2, None), (3, None), (7, None)]
)
def test_size_e_of_a_flying_task(size_e: int, written: list | None) -> None:
    """fp16 to fp32, two surfaces from each of the input: with SIZE_E 1 all are written, with 0 the first,
    with 3 the task never ends (tinygrad-ew, elementwise-sizes)."""
    dev, p = device(strict=False), flying((8, 1, 1), 2, 5)
    dev.memory.write(MAIN, np.arange(8, dtype=np.float16).view(np.uint8))
    dev.memory.write(OUT, np.full(8, -1, np.float32).view(np.uint8))
    p.set("DPU", "BS_OW_CFG", SIZE_E_0=size_e, SIZE_E_1=size_e, SIZE_E_2=size_e)
    p.set("DPU", "DST_SURF_STRIDE", 1)
    if written is None:
        with pytest.raises(GoldenHang, match=f"BS_OW_CFG.SIZE_E_1 = {size_e:#x}: .* makes 2"):
            p.run(dev)
        return
    p.run(dev)
    got = np.frombuffer(dev.memory.read(OUT, 32), np.float32).tolist()
    assert got == [float(v) if v in written else -1.0 for v in range(8)]


def test_narrowed_atoms_hold_the_channels_of_an_input_atom() -> None:
    """fp32 to fp16: four halves at 0 and four at 16 (tinygrad-casts)."""
    dev, p = device(), flying((8, 1, 1), 5, 2)
    dev.memory.write(MAIN, np.arange(1, 9, dtype=np.float32).view(np.uint8))
    p.run(dev)
    got = np.frombuffer(dev.memory.read(OUT, 32), np.float16).reshape(2, 8)[:, :4]
    assert got.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]


def test_half_filled_atoms_of_bytes_never_end() -> None:
    """fp16 to int8 of 16 channels as a board was seen to refuse it (tinygrad-mask-probe)."""
    dev, p = device(strict=False), flying((16, 1, 1), 2, 0)
    with pytest.raises(GoldenHang, match=r"WDMA_SIZE_0\.CHANNEL_WDMA = 0xf: names fewer"):
        p.run(dev)


@pytest.mark.parametrize(("client", "stage", "base"), [("BRDMA", "BS", BS), ("NRDMA", "BN", BN)])
def test_multipliers_of_32_bit_data_are_four_of_each_eight(client: str, stage: str, base: int) -> None:
    """Halves at 0 to 7 and at 16 to 23 multiply eight fp32 channels (tinygrad-weights)."""
    dev, p = device(), flying((8, 1, 1), 5, 5)
    dev.memory.write(MAIN, np.ones(8, np.float32).view(np.uint8))
    factors = np.array([2, 3, 4, 5, 99, 99, 99, 99, 6, 7, 8, 9, 77, 77, 77, 77], np.float16)
    dev.memory.write(base, factors.view(np.uint8))
    scaled(p, client, stage, base)
    p.run(dev)
    assert np.frombuffer(dev.memory.read(OUT, 32), np.float32).tolist() == [2, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("channels", [3, 7, 8, 9, 15, 16, 17, 31, 32, 33])
@pytest.mark.parametrize(("client", "stage", "base"), [("BRDMA", "BS", BS), ("NRDMA", "BN", BN)])
def test_multipliers_of_an_incomplete_last_block(client: str, stage: str, base: int, channels: int) -> None:
    """fp16: those after a complete block are zero, those of a single block are not (register-campaign)."""
    dev, p = device(), flying((channels, 1, 1), 2, 2)
    dev.memory.write(MAIN, np.ones(40, np.float16).view(np.uint8))
    dev.memory.write(base, np.full(40, 2, np.float16).view(np.uint8))
    scaled(p, client, stage, base)
    p.run(dev)
    got = np.frombuffer(dev.memory.read(OUT, 80), np.float16)[:channels]
    whole = channels if channels < 8 else channels // 8 * 8
    assert got.tolist() == [2.0 if c < whole else 0.0 for c in range(channels)]


def scaled(p: Program, client: str, stage: str, base: int) -> None:
    """Let a stage multiply by numbers that a reader fetches, without other operands."""
    p.set(
        "DPU", f"{stage}_CFG", **{f"{stage}_BYPASS": 0, f"{stage}_ALU_BYPASS": 1, f"{stage}_RELU_BYPASS": 1}
    )
    p.set("DPU", f"{stage}_MUL_CFG", **{f"{stage}_MUL_SRC": 1})
    p.set("DPU_RDMA", f"{client}_CFG", **{f"{client}_DATA_USE": 4})
    p.set("DPU_RDMA", f"{stage}_BASE_ADDR", base)


FILLED = [2.0] * 8
PADDED = [2.0] + [0.0] * 7


@pytest.mark.parametrize(
    ("channels", "option", "want"),
    [
        (16, False, [FILLED, [0.0] * 8]),
        (8, False, [PADDED]),
        (16, True, [FILLED, [0.0] * 8]),
        (8, True, [FILLED]),
    ],
)
def test_offset_pend_inside_an_atom(channels: int, option: bool, want: list) -> None:
    """ORIG_CHANNEL 0: the lanes of the first of two atoms are computed (iree-unary), those of the last atom
    only with the option."""
    dev, p = device(), flying((channels, 1, 1), 2, 2)
    dev.options = frozenset({"r2_pend_never_inside_atoms"} if option else ())
    dev.memory.write(MAIN, np.full(16, 2.5, np.float16).view(np.uint8))
    p.set("DPU", "EW_CFG", EW_BYPASS=0, EW_ALU_ALGO=7, EW_RELU_BYPASS=1)
    p.set("DPU", "DATA_CUBE_CHANNEL", ORIG_CHANNEL=0)
    p.run(dev)
    got = np.frombuffer(dev.memory.read(OUT, 2 * channels), np.float16).reshape(-1, 8)
    assert got.tolist() == want


def test_with_the_option_operands_past_orig_channel_are_zero() -> None:
    """The other form that explains a board's products of one channel (rocket-ew-int)."""
    dev, p = device(), flying((8, 1, 1), 0, 0, element=True)
    dev.options = frozenset({"r2_pend_never_inside_atoms"})
    dev.memory.write(MAIN, bytes(range(1, 9)))
    dev.memory.write(ELEMENT, bytes([3] * 8))
    p.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DATA_MODE=1, ERDMA_DATA_SIZE=1)
    p.set("DPU_RDMA", "EW_BASE_ADDR", ELEMENT)
    p.set("DPU", "EW_CFG", EW_BYPASS=0, EW_OP_SRC=1, EW_ALU_ALGO=2, EW_OP_CVT_BYPASS=1, EW_RELU_BYPASS=1)
    p.set("DPU", "DATA_CUBE_CHANNEL", ORIG_CHANNEL=0)
    p.run(dev)
    assert list(dev.memory.read(OUT, 8)) == [4, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("minus", [False, True])
def test_bn_shifts_the_sum(minus: bool) -> None:
    """The index of a table in Skeeser/QuadcopterYolo 82da36c0, models/yolov5n_sample.rknn, first exSwish: an
    input of zero point -5, BN_MUL_OPERAND 17966, BN_ALU_OPERAND 89830 = 5 * 17966, shift 5. Here the shift is
    larger, so that the result fits 8 bits."""
    codes = np.arange(-128, 128, dtype=np.int64)
    cube = (16, 4, 4)
    dev, p = device(), flying(cube, 0, 0)
    multiplier, shift = 17966, 14
    p.set("DPU", "BN_CFG", BN_BYPASS=0, BN_ALU_ALGO=4 if minus else 2, BN_RELU_BYPASS=1)
    p.set("DPU", "BN_ALU_CFG", BN_ALU_OPERAND=(-5 if minus else 5) * multiplier % 2**32)
    p.set("DPU", "BN_MUL_CFG", BN_MUL_OPERAND=multiplier, BN_MUL_SHIFT_VALUE=shift)
    p.set("DPU", "DATA_FORMAT", BN_MUL_SHIFT_VALUE_NEG=shift)
    dev.memory.write(MAIN, codes.astype(np.int8).tobytes())
    p.run(dev)
    found = np.frombuffer(dev.memory.read(OUT, 256), np.int8)
    assert np.array_equal(found, np.clip(np.rint((codes + 5) * multiplier / 2**shift), -128, 127))
