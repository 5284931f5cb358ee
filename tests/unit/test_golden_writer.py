"""The DPU's writer in the task-level golden model: surfaces by SIZE_E, packets, unpooling, notches."""

from __future__ import annotations

import numpy as np
import pytest

from rkcosim.golden.task import GoldenHang
from tests.makers.golden_bench import BITS, MAIN, OUT, Program, device, flying
from tests.twins.packets_model import packets
from tests.unit.test_golden_dpu_modes import FromCore

FILL = 0xAA
"""Contents of memory where nothing is written."""


def core_task(shape: tuple[int, int, int], kind: int, out: int, **fields: int) -> tuple[np.ndarray, str]:
    """Run a DPU pass over CORE's data; return which bytes of OUT are written, and why it hangs."""
    bench = FromCore(shape, kind, out, depthwise=bool(fields.pop("depthwise", 0)))
    p, area = bench.program, shape[1] * shape[2]
    if "size_e" in fields:
        e = fields.pop("size_e")
        p.set("DPU", "BS_OW_CFG", SIZE_E_0=e, SIZE_E_1=e, SIZE_E_2=e)
        p.set("DPU", "SURFACE_ADD", SURF_ADD=(e + 1) * area)
    p.set("DPU", "BS_OW_CFG", **fields)
    bench.dev.strict = False
    size = 2 * -(-shape[0] // 4) * area * 16
    hang = ""
    images = []
    for fill in (0xAA, 0x55):
        bench.dev.memory.write(OUT, bytes([fill]) * size)
        try:
            bench.run()
        except GoldenHang as error:
            hang = str(error)
        images.append(np.frombuffer(bench.dev.memory.read(OUT, size), np.uint8))
    return images[0] == images[1], hang


@pytest.mark.parametrize(("size_e", "columns"), [(1, 16), (3, 32), (7, 64)])
@pytest.mark.board("7.11.3", source="notes-size-e", place="int4 to int16, M 4, N 64")
def test_size_e_sweep_of_int4_products(size_e: int, columns: int) -> None:
    """int4 to int16, M = 4, N = 64, the converter bypassed: columns that a board writes
    (gregordinary/rockchip-npu-notes 224b139, encodings/size-e-quirk.md).
    """
    written, hang = core_task((64, 4, 1), 6, 1, size_e=size_e)
    surfaces = written.reshape(-1, 4, 16)
    assert surfaces[: columns // 8].all() and not surfaces[columns // 8 :].any()
    assert bool(hang) == (size_e != 7)
    if hang:
        assert f"BS_OW_CFG.SIZE_E_1 = {size_e:#x}" in hang and "SIZE_MISMATCH" in hang


@pytest.mark.parametrize(
    ("kind", "out", "size_e", "bypass", "count"),
    [
        # bytes of a tile of 32 columns: boydjohnson/iree-rocket 6402011, iree-rocket-hal/src/rocket/conv.rs
        (0, 4, 3, 0, 1024),  # int32 with the converter live
        (0, 4, 1, 0, 512),
        (0, 0, 3, 0, 512),  # int8, of each of two tiles
        (0, 0, 7, 0, 512),
        (6, 1, 1, 1, 512),  # int16 of int4 operands
        # gregordinary/rockchip-npu-notes 3e891b0, encodings/output-transpose-int16.md: 48 of 48 tasks
        (1, 4, 7, 1, 64),  # row 0's first sixteen channels
    ],
)
@pytest.mark.board("7.11.3", source="iree-size-e", place="SIZE_E 0 to 7 for six kinds of output")
def test_wrong_size_e_writes_a_part_and_hangs(
    kind: int, out: int, size_e: int, bypass: int, count: int
) -> None:
    written, hang = core_task((128, 2, 32), kind, out, size_e=size_e, OD_BYPASS=bypass)
    assert written.sum() == count
    assert f"SIZE_E_1 = {size_e:#x}" in hang


@pytest.mark.parametrize(
    ("channels", "depthwise", "whole"),
    [(16, 0, 0), (48, 0, 32), (64, 0, 64), (80, 1, 64), (96, 1, 64), (144, 1, 128), (128, 1, 128)],
)
def test_int8_output_needs_whole_groups(channels: int, depthwise: int, whole: int) -> None:
    """The incomplete group stays unwritten and the task hangs (gregordinary/rockchip-npu-notes
    224b139, encodings/out-cvt-converter.md and depthwise-conv.md).
    """
    written, hang = core_task((channels, 3, 7), 0, 0, OD_BYPASS=0, depthwise=depthwise)
    assert written.sum() == whole * 21 and written[: whole * 21].all()
    assert bool(hang) == (whole != channels)
    if hang:
        assert f"DATA_CUBE_CHANNEL.CHANNEL = {channels - 1:#x}" in hang


def test_mc_surf_out_with_the_converter_bypassed_does_not_look_at_size_e() -> None:
    """boydjohnson/iree-rocket 6402011: with MC_SURF_OUT, SIZE_E 0, 1, 3 and 7 give the same result."""
    bench = FromCore((32, 2, 5), 0, 4)
    bench.dev.strict = False
    bench.program.set("DPU", "DATA_FORMAT", MC_SURF_OUT=1)
    bench.program.set("DPU", "BS_OW_CFG", SIZE_E_0=1, SIZE_E_1=1, SIZE_E_2=1)
    bench.run()
    assert [bench.read(c, 9) for c in range(32)] == [int(v) % 2**32 for v in bench.acc[9]]


def test_surfaces_beyond_wdma_channels_are_not_written() -> None:
    """allbilly/rk3588 40fae7b, examples/elementwise.py --out fp32: the size and stride registers of the
    output keep 0, and the first four channels are right."""
    dev, p = device(strict=False), flying((8, 1, 1), 4, 4)
    values = np.arange(100, 108, dtype="<i4")
    dev.memory.write(MAIN, values.tobytes())
    dev.memory.write(OUT, bytes([FILL]) * 64)
    p.set("DPU", "WDMA_SIZE_0", CHANNEL_WDMA=0)
    p.set("DPU", "DST_SURF_STRIDE", 0)
    p.set("DPU", "SURFACE_ADD", SURF_ADD=0)
    p.run(dev)
    assert dev.memory.read(OUT, 64) == values[:4].tobytes() + bytes([FILL]) * 48
    assert [(f.code, f.register) for f in dev.findings] == [("SIZE_MISMATCH", "WDMA_SIZE_0.CHANNEL_WDMA")]


# -- packets -----------------------------------------------------------------------------------------


def packet_task(
    program: Program, size: int, sizes: tuple[int, int, int], pitches: tuple[int, int, int]
) -> None:
    """Settings of packets: bytes of an element (0: TP_EN), WDMA surfaces, height and width, pitches."""
    program.set("DPU", "FEATURE_MODE_CFG", TP_EN=int(size == 0))
    program.set("DPU", "BS_OW_CFG", TP_ORG_EN=int(size > 0), SIZE_E_0=7, SIZE_E_1=7, SIZE_E_2=7)
    program.set("DPU", "WDMA_SIZE_0", TP_PRECISION=int(size != 1), SIZE_C_WDMA=sizes[0] - 1)
    program.set("DPU", "WDMA_SIZE_1", HEIGHT_WDMA=sizes[1] - 1, WIDTH_WDMA=sizes[2] - 1)
    program.set("DPU", "SURFACE_ADD", SURF_ADD=pitches[0])
    notch = pitches[1] - sizes[2]
    program.set("DPU", "DATA_CUBE_NOTCH_ADDR", NOTCH_ADDR_0=notch, NOTCH_ADDR_1=notch)
    program.set("DPU", "DST_SURF_STRIDE", pitches[2])


def image_of(program: Program, data: bytes, size: int, *, strict: bool = True) -> bytes:
    dev = device(strict=strict)
    dev.memory.write(MAIN, data)
    dev.memory.write(OUT, bytes([FILL]) * size)
    program.run(dev)
    return dev.memory.read(OUT, size)


@pytest.mark.parametrize(
    ("shape", "size", "sizes", "pitches"),
    [
        ((24, 1, 8), 0, (1, 3, 1), (0, 1, 3)),  # eight pixels of three surfaces side by side
        ((16, 3, 8), 0, (1, 2, 3), (24, 24, 3)),  # lines are surfaces of the tensor
        ((5, 2, 16), 0, (2, 2, 1), (40, 9, 1)),
        ((24, 32, 1), 2, (3, 4, 1), (8, 24, 1)),  # [H*W][C] out of surfaces
        ((8, 16, 1), 2, (1, 2, 1), (8, 8, 1)),
        ((16, 4, 4), 2, (2, 1, 2), (50, 9, 3)),
        ((8, 64, 1), 1, (4, 2, 1), (16, 8, 1)),  # 16 bytes an atom
        ((16, 1, 32), 1, (1, 4, 2), (0, 24, 2)),
    ],
)
def test_packets_of_data_from_memory(
    shape: tuple[int, int, int], size: int, sizes: tuple[int, int, int], pitches: tuple[int, int, int]
) -> None:
    surfaces, area = -(-shape[0] // 8), shape[1] * shape[2]
    data = np.random.default_rng(5).integers(0, 256, surfaces * area * 16).astype(np.uint8)
    data.reshape(surfaces, area, 8, 2).transpose(0, 2, 1, 3).reshape(surfaces * 8, -1)[shape[0] :] = 0
    if shape[0] % 8:
        data.reshape(surfaces, area, 16)[-1, :, 2 * (shape[0] % 8) :] = 0
    p = flying(shape, 1, 1)
    packet_task(p, size, sizes, pitches)
    raw = data.tobytes()
    atoms = [[raw[16 * (s * area + m) :][:16] for m in range(area)] for s in range(surfaces)]
    want = bytearray([FILL] * 4096)
    for place, atom in packets(atoms, together=0, size=size, sizes=sizes[1:], pitches=pitches):
        want[16 * place : 16 * place + 16] = atom
    assert image_of(p, raw, 4096) == bytes(want)


def test_blocks_of_packets_run_across_surfaces() -> None:
    """48 surfaces of 18 atoms as 54 blocks of 16: a task of a Transpose node that exchanges all rows with all
    bytes (cqu20160901/LPRNet_rknn_Cplusplus d8f48a8, LPRNet.rknn; 7.12.1)."""
    data = np.random.default_rng(6).integers(0, 256, (48 * 18, 16)).astype(np.uint8)
    p = flying((384, 18, 1), 1, 1)
    packet_task(p, 1, (54, 2, 1), (1, 432, 54))
    assert image_of(p, data.tobytes(), data.size) == data.T.tobytes()


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("rows", [4, 12, 32])
@pytest.mark.board("7.12.3", source="notes-transpose", place="order of a product of N 32")
def test_packets_of_a_product(rows: int, size: int) -> None:
    """int16 matrices, N = 32; with 16-bit elements the order is that of a board
    (gregordinary/rockchip-npu-notes 3e891b0, encodings/output-transpose-int16.md).
    """
    bench = FromCore((32, rows, 1), 1, 4)
    packet_task(bench.program, size, (1, rows, 1), (8 * rows, 1, rows))
    bench.dev.memory.write(OUT, bytes([FILL]) * 128 * rows)
    bench.run()
    out = np.frombuffer(bench.dev.memory.read(OUT, 128 * rows), "<i2")
    if size == 2:
        for m in range(rows):
            for n in range(32):
                na = n // 4
                slot = 4 * m + na % 4 + na // 4 * 4 * rows + n % 4 * 16 * rows
                assert out[slot] == np.int64(bench.acc[m, n]).astype("<i2")
    raw = bench.acc.astype("<i4")
    atoms = [[raw[m, 4 * s : 4 * s + 4].tobytes() for m in range(rows)] for s in range(8)]
    for place, atom in packets(atoms, together=4, size=size, sizes=(rows, 1), pitches=(8 * rows, 1, rows)):
        assert bench.dev.memory.read(OUT + 16 * place, 16) == atom


@pytest.mark.board("7.12.5", source="notes-transpose", place="12 x 64 x 16, 4 of 4")
def test_a_product_of_one_group_hangs_after_a_complete_write() -> None:
    """12 x 64 x 16: every element is right and the task never ends, 4 of 4 (as above)."""
    bench = FromCore((16, 12, 1), 1, 4)
    packet_task(bench.program, 2, (1, 12, 1), (96, 1, 12))
    with pytest.raises(GoldenHang, match=r"WDMA_SIZE_1.HEIGHT_WDMA = 0xb"):
        bench.run()
    out = np.frombuffer(bench.dev.memory.read(OUT, 128 * 12), "<i2")
    for m in range(12):
        slots = [4 * m + n // 4 + n % 4 * 16 * 12 for n in range(16)]
        assert np.array_equal(out[slots], bench.acc[m].astype("<i2"))


@pytest.mark.parametrize(("rows", "hangs"), [(8, False), (16, True)])
def test_packets_with_the_size_e_of_surfaces(rows: int, hangs: bool) -> None:
    """SIZE_E 3: half the surface, and from 16 rows on the task hangs (as above)."""
    bench = FromCore((32, rows, 1), 1, 4)
    bench.dev.strict = False
    packet_task(bench.program, 2, (1, rows, 1), (8 * rows, 1, rows))
    bench.program.set("DPU", "BS_OW_CFG", SIZE_E_0=3, SIZE_E_1=3, SIZE_E_2=3)
    images = []
    for fill in (0xAA, 0x55):
        bench.dev.memory.write(OUT, bytes([fill]) * 128 * rows)
        try:
            bench.run()
        except GoldenHang:
            assert hangs
        else:
            assert not hangs
        images.append(np.frombuffer(bench.dev.memory.read(OUT, 128 * rows), np.uint8))
    assert (images[0] == images[1]).mean() == 0.5


@pytest.mark.parametrize(
    ("shape", "size", "sizes", "register"),
    [
        ((8, 1, 12), 0, (1, 1, 1), "WDMA_SIZE_1.HEIGHT_WDMA"),  # twelve atoms are no packets
        ((8, 1, 8), 1, (1, 1, 1), "WDMA_SIZE_1.HEIGHT_WDMA"),  # nor eight a block of sixteen
        ((8, 1, 16), 2, (1, 3, 1), "WDMA_SIZE_1.HEIGHT_WDMA"),  # two packets of three
    ],
)
def test_packets_that_are_too_few_hang(
    shape: tuple[int, int, int], size: int, sizes: tuple[int, int, int], register: str
) -> None:
    p = flying(shape, 1, 1)
    packet_task(p, size, sizes, (64, 8, 1))
    with pytest.raises(GoldenHang, match=register):
        image_of(p, bytes(4096), 4096)


def test_more_packets_than_the_sizes_name_go_on_by_surf_add() -> None:
    p = flying((8, 1, 24), 1, 1)
    packet_task(p, 0, (1, 1, 2), (100, 2, 8))
    data = bytes(range(256)) + bytes(range(128))
    image = image_of(p, data, 4096, strict=False)
    assert image[1600:1616] == data[256:272] and image[16:32] == data[128:144]


# -- unpooling ---------------------------------------------------------------------------------------


def unpooled(shape: tuple[int, int, int], times: tuple[int, int], out: int, process: int) -> Program:
    """Nearest resize of whole atoms, as in vendor lists; the surface pitch is the surface size."""
    surfaces, height, width = shape
    p = flying((8 * surfaces, height, width), 1, out, process=process)
    kernel = {"KERNEL_HEIGHT": times[0] - 1, "KERNEL_WIDTH": times[1] - 1}
    strides = {f"KERNEL_STRIDE_{name[7:]}": value for name, value in kernel.items()}
    p.set("DPU_RDMA", "SRC_DMA_CFG", UNPOOLING_EN=1, **kernel, **strides)
    wide, skip = width * times[1], width * times[1] * (times[0] - 1)
    channels = 128 // BITS[out] * surfaces
    e = times[0] - 1
    p.set("DPU", "DATA_CUBE_WIDTH", WIDTH=wide - 1)
    p.set("DPU", "WDMA_SIZE_1", WIDTH_WDMA=wide - 1)
    p.set("DPU", "DATA_CUBE_CHANNEL", CHANNEL=channels - 1, ORIG_CHANNEL=channels - 1)
    p.set("DPU", "WDMA_SIZE_0", CHANNEL_WDMA=channels - 1)
    p.set("DPU", "DATA_CUBE_NOTCH_ADDR", NOTCH_ADDR_0=skip, NOTCH_ADDR_1=skip)
    p.set("DPU", "DST_SURF_STRIDE", wide)
    p.set("DPU", "SURFACE_ADD", SURF_ADD=wide * height * times[0])
    p.set("DPU", "BS_OW_CFG", SIZE_E_0=e, SIZE_E_1=e, SIZE_E_2=e)
    p.set("DPU", "OUT_CVT_SCALE", FP32TOFP16_EN=0)
    return p


@pytest.mark.parametrize(("out", "process"), [(2, 2), (0, 0), (1, 1), (6, 0)])
@pytest.mark.parametrize(
    ("shape", "times"),
    [
        ((1, 3, 5), (2, 2)),
        ((1, 20, 20), (2, 2)),
        ((2, 1, 7), (1, 3)),
        ((3, 4, 2), (4, 1)),
        ((1, 2, 3), (8, 8)),
    ],
)
def test_unpooling_repeats_atoms(
    shape: tuple[int, int, int], times: tuple[int, int], out: int, process: int
) -> None:
    """Precisions 2 and 0 are those of vendor lists (Nyan-SouthKorea/insightface-orangepi-rknn 7f7ea52)."""
    data = np.random.default_rng(8).integers(0, 256, (*shape, 16)).astype(np.uint8)
    want = data.repeat(times[0], 1).repeat(times[1], 2).tobytes()
    assert image_of(unpooled(shape, times, out, process), data.tobytes(), len(want)) == want


def test_unpooled_copies_are_the_surfaces_of_size_e() -> None:
    p = unpooled((1, 2, 2), (2, 2), 2, 2)
    p.set("DPU", "BS_OW_CFG", SIZE_E_0=2, SIZE_E_1=2, SIZE_E_2=2)
    with pytest.raises(GoldenHang, match=r"BS_OW_CFG.SIZE_E_1 = 0x2"):
        image_of(p, bytes(64), 64)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (("DPU_RDMA", "SRC_DMA_CFG", {"POOLING_METHOD": 1}), "SRC_DMA_CFG.UNPOOLING_EN"),
        (("DPU_RDMA", "SRC_DMA_CFG", {"KERNEL_STRIDE_WIDTH": 0}), "SRC_DMA_CFG.UNPOOLING_EN"),
        (("DPU_RDMA", "FEATURE_MODE_CFG", {"IN_PRECISION": 0}), "SRC_DMA_CFG.UNPOOLING_EN"),
        (("DPU", "BS_CFG", {"BS_BYPASS": 0}), "FEATURE_MODE_CFG.FLYING_MODE"),
        (("DPU", "FEATURE_MODE_CFG", {"OUTPUT_MODE": 3}), "FEATURE_MODE_CFG.OUTPUT_MODE"),
    ],
)
def test_other_unpooling_is_told(fields: tuple, told: str) -> None:
    p = unpooled((1, 2, 2), (2, 2), 1, 1)
    p.set(fields[0], fields[1], **fields[2])
    dev = device(strict=False)
    dev.memory.write(MAIN, bytes(256))
    dev.memory.write(OUT, bytes(1024))
    try:
        p.run(dev)
    except GoldenHang:
        pass
    assert ("RESERVED_MODE", told) in [(f.code, f.register) for f in dev.findings]


# -- notches -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("line", "surface"), [(0, 0), (3, 0), (3, 5), (0, 7), (14, -9)])
def test_surf_notch_counts_from_the_end_of_the_last_line(line: int, surface: int) -> None:
    """Vendor lists of transpositions write such pairs (Nyan-SouthKorea/insightface-orangepi-rknn 7f7ea52)."""
    surfaces, height, width = 3, 4, 2
    pitch = (height - 1) * (width + line) + width + surface
    data = np.random.default_rng(9).integers(0, 256, (200, 16)).astype(np.uint8)
    p = flying((8 * surfaces, height, width), 1, 1)
    p.set("DPU_RDMA", "SRC_DMA_CFG", LINE_NOTCH_ADDR=line)
    p.set("DPU_RDMA", "SURF_NOTCH", SURF_NOTCH_ADDR=surface)
    p.set("DPU", "BS_OW_CFG", SIZE_E_0=0, SIZE_E_1=0, SIZE_E_2=0)
    s, y, x = np.ogrid[:surfaces, :height, :width]
    want = data[s * pitch + y * (width + line) + x].tobytes()
    assert image_of(p, data.tobytes(), len(want)) == want
