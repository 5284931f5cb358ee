"""Register-command words, text and task lists; the vendor's words of [HW 14.3] decode as listed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rkcosim.regcmd import (
    RegcmdError,
    TaskBuilder,
    amount_code,
    build_task_list,
    disassemble,
    format_command,
    op_enable_mask,
    op_enable_word,
    pack_word,
    program_of_chain,
    register_word,
    task_list_bytes,
    unpack_word,
    words_from_bytes,
    words_to_bytes,
)
from rkcosim.regcmd.listing import parse_listing
from rkcosim.spec.regs import registers

WORD = st.integers(0, 2**64 - 1)
REGISTERS = [register for block in registers() if block.target for register in block]
TARGETS = list(registers().word.fields["TARGET"].enum.values())

near_real = st.builds(
    pack_word,
    st.one_of(st.sampled_from(TARGETS), st.integers(0, 0xFFFF)),
    st.integers(0, 2**32 - 1),
    st.one_of(st.sampled_from([register.offset for register in REGISTERS] + [0, 8]), st.integers(0, 0xFFFF)),
)


def assemble(text: str) -> list[int]:
    return parse_listing(text).words


def to_text(words: list[int]) -> str:
    return "".join(f"{format_command(command)}\n" for command in disassemble(words))


@given(st.lists(st.one_of(WORD, near_real), max_size=20))
def test_text_gives_the_same_words(words: list[int]) -> None:
    assert assemble(to_text(words)) == words
    assert words_from_bytes(words_to_bytes(words)) == words


@given(st.sampled_from(REGISTERS), st.integers(0, 2**32 - 1))
def test_every_register_word_is_readable_text(register, value: int) -> None:
    word = register_word(register, value)
    (command,) = disassemble([word])
    assert (command.block, command.register) == (register.block, register)
    assert register.encode(**command.fields) | command.reserved == value
    text = to_text([word])
    assert text.startswith(register.path) and assemble(text) == [word]


@given(st.integers(0, 0xFFFF), st.integers(0, 2**32 - 1), st.integers(0, 0xFFFF))
def test_words_have_the_documented_bits(target: int, value: int, offset: int) -> None:
    word = pack_word(target, value, offset)
    assert word == target << 48 | value << 16 | offset
    assert unpack_word(word) == (target, value, offset)


def test_words_of_the_reference() -> None:
    """Examples given in [HW 1.4] to [HW 1.6]."""
    assert op_enable_word(0x7F & ~2) == 0x0081_0000_007D_0008
    assert op_enable_mask(["CNA", "CORE", "DPU"]) == 0x0D
    assert op_enable_mask(["CNA", "CORE", "DPU", "DPU_RDMA"]) == 0x1D
    assert op_enable_mask(["DPU", "DPU_RDMA"]) == 0x18
    assert op_enable_mask(["PPU", "PPU_RDMA"]) == 0x60
    assert assemble("CONFIG_END\nNOP\n") == [0x0041_0000_0000_0000, 0]
    assert assemble("OP_ENABLE CNA RESERVED=0x2") == [0x0081_0000_0003_0008]
    assert to_text([0x0081_0000_007F_0008]) == ("OP_ENABLE CNA CORE DPU DPU_RDMA PPU PPU_RDMA RESERVED=0x2\n")
    assert to_text([0x0200_0000_0001_1008]).startswith("RAW 0x020000000001100")


def test_amount_codes_of_captures() -> None:
    """regcfg_amount counts without the tail: 108 -> 55, 104 -> 53, 26 -> 14 [HW 1.6]."""
    pairs = [(108, 55), (104, 53), (26, 14), (13, 8), (12, 7), (17, 10)]
    assert [amount_code(amount + 4) for amount, _ in pairs] == [code for _, code in pairs]


def command(target: int, offset: int, value: int):
    (decoded,) = disassemble([pack_word(target, value, offset)])
    assert decoded.kind == "register" and decoded.canonical
    assert assemble(to_text([decoded.word])) == [decoded.word]
    return decoded


def fields(target: int, offset: int, value: int, **expected: int) -> None:
    """Check that the word decodes to `expected`, with all other fields and reserved bits zero."""
    decoded = command(target, offset, value)
    assert {name: v for name, v in decoded.fields.items() if v} == {n: v for n, v in expected.items() if v}
    assert not decoded.reserved


CNA, CORE, DPU, PC = 0x0201, 0x0801, 0x1001, 0x0101


def test_vector_v2_first_layer_tile() -> None:
    """fp16 stem 224x224x3 -> 32, 3x3, a tile of 50 rows."""
    fields(
        CNA,
        0x100C,
        0x6000A120,
        NONALIGN_DMA=1,
        GROUP_LINE_OFF=1,
        ARGB_IN=10,
        PROC_PRECISION=2,
        IN_PRECISION=2,
    )
    fields(CNA, 0x1010, 50 << 4, FEATURE_GRAINS=50)
    fields(CNA, 0x1020, 0x00E00032, DATAIN_WIDTH=224, DATAIN_HEIGHT=50)
    fields(CNA, 0x1024, 0x00020008, DATAIN_CHANNEL_REAL=2, DATAIN_CHANNEL=8)
    fields(CNA, 0x1028, 222, DATAOUT_WIDTH=222)
    fields(CNA, 0x102C, 10656, DATAOUT_ATOMICS=10656)
    fields(CNA, 0x1030, 0x1200, WEIGHT_BYTES=0x1200)
    fields(CNA, 0x1034, 144, WEIGHT_BYTES_PER_KERNEL=144)
    fields(CNA, 0x1038, 0x03030020, WEIGHT_WIDTH=3, WEIGHT_HEIGHT=3, WEIGHT_KERNELS=32)
    fields(CNA, 0x1040, 0xB1, WEIGHT_BANK=11, DATA_BANK=1)
    fields(CNA, 0x1044, 11200, DATA_ENTRIES=11200)
    fields(CNA, 0x104C, 1, CVT_BYPASS=1)
    fields(CNA, 0x1180, 0xFFF, PER_CHANNEL_CVT_EN=0xFFF)
    fields(CNA, 0x107C, 224, LINE_STRIDE=224)
    fields(CNA, 0x1080, 49952, SURF_STRIDE=49952)
    fields(CORE, 0x3010, 0x200, PROC_PRECISION=2)
    fields(CORE, 0x3014, 47 << 16 | 221, DATAOUT_HEIGHT=47, DATAOUT_WIDTH=221)
    fields(CORE, 0x3018, 31, DATAOUT_CHANNEL=31)
    fields(DPU, 0x400C, 0x1E4, BURST_LEN=15, OUTPUT_MODE=2)
    fields(DPU, 0x4010, 0x48000002, OUT_PRECISION=2, IN_PRECISION=2, PROC_PRECISION=2)
    fields(DPU, 0x4024, 49284 << 4, DST_SURF_STRIDE=49284)
    fields(DPU, 0x4050, 0x126, SIZE_E_0=1, SIZE_E_1=1, SIZE_E_2=1, OD_BYPASS=1)
    fields(DPU, 0x4084, 0x10001, FP32TOFP16_EN=1, OUT_CVT_SCALE=1)
    fields(DPU, 0x40C0, 98568 << 4, SURF_ADD=98568)
    fields(PC, 0x0014, 55, PC_DATA_AMOUNT=55)
    (last,) = disassemble([0x0081_0000_000D_0008])
    assert {n for n, v in last.fields.items() if v} == {"CNA_OP_EN", "CORE_OP_EN", "DPU_OP_EN"}


def test_vector_v3_weight_reuse() -> None:
    """Later tiles keep all settings and set WEIGHT_REUSE."""
    fields(CNA, 0x1040, 0x20B1, WEIGHT_REUSE=1, WEIGHT_BANK=11, DATA_BANK=1)


def test_vector_v3b_depthwise() -> None:
    """fp16 depthwise of 512 channels, 14x14, 3x3, one task."""
    fields(CNA, 0x1024, 0x003F0200, DATAIN_CHANNEL_REAL=63, DATAIN_CHANNEL=512)
    fields(CNA, 0x1030, 0x2400, WEIGHT_BYTES=512 * 9 * 2)
    fields(CNA, 0x1038, 0x03030001, WEIGHT_WIDTH=3, WEIGHT_HEIGHT=3, WEIGHT_KERNELS=1)
    fields(CNA, 0x100C, 0x123, CONV_MODE=3, IN_PRECISION=2, PROC_PRECISION=2)
    fields(CNA, 0x102C, 144, DATAOUT_ATOMICS=12 * 12)
    fields(CNA, 0x1040, 0x57, DATA_BANK=7, WEIGHT_BANK=5)


def test_vector_v3c_depthwise_in_four_tasks() -> None:
    """fp16 depthwise of 128 channels in tasks of 32: size_e 3, strides of four surfaces."""
    fields(DPU, 0x4024, 46656, DST_SURF_STRIDE=54 * 54)
    fields(DPU, 0x40C0, 186624, SURF_ADD=4 * 54 * 54)
    fields(DPU, 0x4050, 0x36E, SIZE_E_0=3, SIZE_E_1=3, SIZE_E_2=3, OD_BYPASS=1)
    fields(CNA, 0x1030, 576, WEIGHT_BYTES=576)
    assert [amount_code(n + 4) for n in (108, 108, 12, 12)] == [55, 55, 7, 7]


def test_vector_v4_multi_core_plans() -> None:
    """fp16 16x80x80 -> 128, 3x3: the full task and the 2- and 3-core variants."""
    fields(CNA, 0x1024, 0x000F0010, DATAIN_CHANNEL_REAL=15, DATAIN_CHANNEL=16)
    fields(CNA, 0x1020, 80 << 16 | 80, DATAIN_WIDTH=80, DATAIN_HEIGHT=80)
    fields(CNA, 0x1080, 6080, SURF_STRIDE=80 * 76)
    fields(CNA, 0x1030, 36864, WEIGHT_BYTES=128 * 288)
    fields(CNA, 0x1040, 0x57, DATA_BANK=7, WEIGHT_BANK=5)
    fields(CNA, 0x1010, 0x400001A0, NN_MODE=4, FEATURE_GRAINS=26)
    fields(CNA, 0x1010, 0x200001A0, NN_MODE=2, FEATURE_GRAINS=26)
    fields(CNA, 0x1020, 80 << 16 | 28, DATAIN_WIDTH=80, DATAIN_HEIGHT=28)
    fields(CNA, 0x102C, 2028, DATAOUT_ATOMICS=2028)


def test_vector_v6_pool() -> None:
    fields(
        0x4001,
        0x6034,
        0x00110101,
        KERNEL_STRIDE_HEIGHT=1,
        KERNEL_STRIDE_WIDTH=1,
        KERNEL_HEIGHT=1,
        KERNEL_WIDTH=1,
    )
    fields(0x4001, 0x6024, 0x10, FLYING_MODE=1)
    fields(0x8001, 0x7024, 0x400, SRC_LINE_STRIDE=64)
    fields(0x8001, 0x7028, 0xC000, SRC_SURF_STRIDE=64 * 48)
    fields(0x8001, 0x7030, 1, IN_PRECISION=1)


def test_negative_surface_stride_reads_back_negative() -> None:
    word = assemble("CNA.DMA_CON2 SURF_STRIDE=-96")[0]
    assert unpack_word(word)[1] == (1 << 28) - 96
    assert disassemble([word])[0].fields["SURF_STRIDE"] == -96
    assert "SURF_STRIDE=-96" in to_text([word])


def small_task(name: str, width: int = 1) -> TaskBuilder:
    task = TaskBuilder(name)
    task.set("PPU", "DATA_CUBE_IN_WIDTH", DATA_CUBE_IN_WIDTH=width).enable("PPU", "PPU_RDMA")
    return task


@settings(deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=5), st.sampled_from([16, 64, 128]))
def test_chain_is_walked_as_built(lengths: list[int], align: int) -> None:
    tasks = []
    for number, length in enumerate(lengths):
        task = small_task(f"t{number}")
        for _ in range(length - 1):
            task.set_word("PPU", "MISC_CTRL", number)
        tasks.append(task)
    built = build_task_list(tasks, 0x10000, align)
    assert len(built.data) == task_list_bytes(tasks, align)

    def fetch(address: int, count: int) -> list[int]:
        start = address - built.address
        return words_from_bytes(built.data[start : start + 8 * count])

    walked = program_of_chain("chain", fetch, built.address, built.tasks[0].amount, len(tasks))
    assert not walked.stopped
    assert [item.address for item in walked.tasks] == [entry.address for entry in built.tasks]
    for item, task in zip(walked.tasks, tasks, strict=True):
        assert list(item.words) == task.words()
        assert len(item.words) % 2 == 0 and item.words[-1] == op_enable_word(0x60)
    further = program_of_chain("chain", fetch, built.address, built.tasks[0].amount, len(tasks) + 3)
    assert further.tasks == walked.tasks and further.stopped == "no link"


def test_tail_of_a_single_task() -> None:
    words = small_task("only").words()
    assert words[2:] == [0, 0x0101_0000_0000_0014, 0x0041_0000_0000_0000, 0x0081_0000_0060_0008]
    linked = small_task("first").link(0x12340, 14).words()
    assert linked[2:4] == [0x0101_0001_2340_0010, 0x0101_0000_000E_0014]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CNA.CONV_CON1 CONV_MODE=9x", r"line 1, word 0 \(CNA.CONV_CON1\).*CONV_MODE.*not a number"),
        ("NOP\nCNA.CONV_CON9", r"line 2, word 1 \(CNA.CONV_CON9\).*no 'CONV_CON9'"),
        ("XYZ.A B=1", r"no 'XYZ'"),
        ("CNA.CONV_CON1 CONV_MODE=16", r"CNA.CONV_CON1.CONV_MODE: 16 is outside 0..15"),
        ("CNA.CONV_CON1 CONV_MODE=SIDEWAYS", r"no code named 'SIDEWAYS'; known: DIRECT, DEPTHWISE"),
        ("CNA.CONV_CON1 NOPE=1", r"CNA.CONV_CON1.NOPE: no such field"),
        ("CNA.CONV_CON1 CONV_MODE", r"expected FIELD=VALUE"),
        ("CNA.CONV_CON1 RESERVED=0x1", r"does not lie outside"),
        ("SDMA.CFG_STATUS IDEL=1", r"no register word reaches"),
        ("OP_ENABLE WHAT", r"WHAT_OP_EN: no such field"),
        ("RAW 0x1ffffffffffffffff", r"not a 64-bit word"),
        ("JUMP", r"expected BLOCK.REGISTER"),
        ("NOP X=1", r"accepts no fields"),
    ],
)
def test_bad_text_names_line_word_and_register(text: str, message: str) -> None:
    with pytest.raises(RegcmdError, match=message):
        assemble(text)


def test_builder_errors_name_task_word_and_register() -> None:
    task = TaskBuilder("conv1")
    task.set("CNA", "CONV_CON1", CONV_MODE="DIRECT")
    with pytest.raises(RegcmdError, match=r"conv1, word 1 \(CNA.DATA_SIZE0\).*DATAIN_WIDTH: 5000"):
        task.set("CNA", "DATA_SIZE0", DATAIN_WIDTH=5000)
    with pytest.raises(RegcmdError, match=r"conv1, word 1 \(CNA.NOPE\)"):
        task.set("CNA", "NOPE")
    with pytest.raises(RegcmdError, match="not a multiple of 16"):
        task.link(0x1008, 3)
    with pytest.raises(RegcmdError, match="starts no block"):
        TaskBuilder("empty").words()
    with pytest.raises(RegcmdError, match="at least one task"):
        build_task_list([], 0)
    with pytest.raises(RegcmdError, match="multiples of 16"):
        build_task_list([small_task("a")], 0x1004)
    empty = program_of_chain("empty", lambda address, count: [0] * count, 0, 3, 1)
    assert "no op-enable word" in empty.stopped
    with pytest.raises(RegcmdError, match="end inside a word"):
        words_from_bytes(b"1234567")
