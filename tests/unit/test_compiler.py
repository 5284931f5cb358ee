"""The compiler without a device: integers of requantisation, tiles, register programs, errors."""

from __future__ import annotations

import csv
import struct
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rkcosim.compiler import ModelError, compile_conv_layer, compile_model
from rkcosim.compiler.graph import (
    Clamp,
    Graph,
    GraphInput,
    GraphOutput,
    Pool,
    Tensor,
    Window,
    from_cube,
    to_cube,
)
from rkcosim.compiler.model import CompiledModel
from rkcosim.compiler.programs.convolution import tile_shape
from rkcosim.compiler.requant import channel_multipliers, clamp_in_unit, output_scale
from rkcosim.compiler.steps import ConvStep, HostStep, PoolStep
from rkcosim.compiler.tiling import ConvShape, plan_tiles
from rkcosim.regcmd import decode_word
from rkcosim.spec.layouts import argb_pitch, unpack_bs_table, unpack_weights
from rkcosim.spec.types import BANK_BYTES, BANK_ENTRIES, BANKS

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"
VENDOR = ROOT / "tests" / "makers" / "vendor_plans"
BASES = {"regcmd": 0x0100_0000, "weights": 0x0200_0000, "activations": 0x0300_0000}


@given(st.floats(1e-12, 1e4))
def test_output_scale_is_the_documented_one(factor: float) -> None:
    """[HW 14.2] on the bits of the binary32 number."""
    bits = struct.unpack("<I", struct.pack("<f", factor))[0]
    multiplier, shift = ((bits >> 9) & 0x3FFF) + 1 + 0x4000, 141 - (bits >> 23)
    if multiplier == 0x8000:
        multiplier, shift = 0x4000, shift - 1
    if shift > 63:
        with pytest.raises(ModelError, match="beyond"):
            output_scale(factor, "x")
    elif bits & 0x7F_FFFF:
        assert output_scale(factor, "x") == (multiplier, shift)


def test_output_scale_edges() -> None:
    for exponent in range(-40, 14):
        multiplier, shift = output_scale(2.0**exponent, "x")
        assert multiplier / 2**shift == 2.0**exponent
    assert output_scale((17674.5) / 2**22, "x") == (17675, 22)  # [HW 14.2.3]
    assert output_scale(0.99999, "x") == (0x4000, 14)
    for bad in (0.0, -1.0, np.inf, np.nan, 1e-30, 1e9):
        with pytest.raises(ModelError, match="layer"):
            output_scale(bad, "layer")


def test_channel_multipliers() -> None:
    assert channel_multipliers(np.array([0.5, 0.25, 0.1, 1e-9])).tolist() == [16384, 8192, 3277, 0]


def test_clamps() -> None:
    tensor = Tensor("t", (1, 1, 1, 1), 0.1, -28, (1, 1, 1))
    assert clamp_in_unit(Clamp(), 0.001, tensor, "x") is None
    assert clamp_in_unit(Clamp(-10.0, 15.5), 0.001, tensor, "x") is None  # saturation does it
    assert clamp_in_unit(Clamp(0.0), 0.001, tensor, "x") == (0, None)
    assert clamp_in_unit(Clamp(0.0, 6.0), 0.001, tensor, "x") == (0, 6000)
    assert clamp_in_unit(Clamp(-2.0, 6.0), 0.001, tensor, "x") == (-2000, 6000)
    low, high = clamp_in_unit(Clamp(high=6.0), 0.001, tensor, "x") or (0, 0)
    assert high == 6000 and low * 0.001 < -10.0  # below the value of -128
    with pytest.raises(ModelError, match="32 bits"):
        clamp_in_unit(Clamp(0.0, 6.0), 1e-9, tensor, "x")
    assert Clamp(0.0).then(Clamp(-1.0, 4.0)) == Clamp(0.0, 4.0)
    assert Clamp(high=-1.0).then(Clamp(0.0)) == Clamp(0.0, 0.0)


@st.composite
def conv_shapes(draw: st.DrawFn) -> ConvShape:
    kernel = draw(st.integers(1, 7)), draw(st.integers(1, 7))
    wide = draw(st.sampled_from((False, False, False, True)))
    height = draw(st.integers(kernel[0], 12 if wide else 150))
    width = draw(st.integers(kernel[1], 150)) * (20 if wide else 1)
    pads = tuple(draw(st.integers(0, max(0, k - 1))) for k in (*kernel, *kernel))
    window = Window(kernel, (draw(st.integers(1, 4)), draw(st.integers(1, 4))), pads)
    depthwise = draw(st.booleans())
    channels = draw(st.integers(1, 300))
    argb = channels if channels <= 4 and not depthwise and width <= 2047 else 0
    kernels = channels if depthwise else draw(st.integers(1, 64 if wide else 600))
    oh, ow = window.output(height, width)
    pitch = argb_pitch(width) if argb else 0
    return ConvShape(channels, height, width, kernels, oh, ow, window, depthwise, argb, pitch)


def _one_row_fits(shape: ConvShape) -> bool:
    """True if a single output row fits CBUF with a kernel group (streamed, for a single stripe)."""
    rows = max(shape.rows_in(row, 1)[1] for row in range(shape.out_height))
    data = -(-rows * shape.row_entries // BANK_ENTRIES)
    weights = -(-shape.weight_bytes(min(shape.kernels, 64 if shape.depthwise else 32)) // BANK_BYTES)
    return data + (1 if shape.out_width <= 16 else weights) <= BANKS


@settings(max_examples=120, deadline=None)
@given(conv_shapes())
def test_tiles_cover_and_fit(shape: ConvShape) -> None:
    """Each output once, inside CBUF, weights reused only while they are there; refused if nothing fits."""
    whole = shape
    try:
        tiles = plan_tiles(shape, "layer")
    except ModelError as error:
        assert "do not fit CBUF" in str(error) and not _one_row_fits(shape)
        return
    seen = np.zeros((shape.out_height, shape.out_width, shape.kernels), dtype=np.int8)
    before = None
    for tile in tiles:
        rows = slice(tile.first_row, tile.first_row + tile.rows)
        columns = slice(tile.first_column, tile.first_column + (tile.columns or whole.out_width))
        seen[rows, columns, tile.first_kernel : tile.first_kernel + tile.kernels] += 1
        shape = tile_shape(whole, tile)
        assert tile.data_banks >= 1 and tile.data_banks + tile.weight_banks == BANKS
        assert tile.in_rows * shape.row_entries <= tile.data_banks * BANK_ENTRIES
        window = shape.window
        first = tile.first_row * window.strides[0] - window.pads[0]
        assert tile.in_first - tile.pad_top == first
        end = (tile.first_row + tile.rows - 1) * window.strides[0] - window.pads[0] + window.kernel[0]
        assert tile.in_first + tile.in_rows >= min(end, shape.height)
        assert 0 <= tile.in_first and tile.in_first + tile.in_rows <= shape.height
        stripes = -(-tile.rows * shape.out_width // 16)
        group = min(tile.kernels, 64 if shape.depthwise else 32)
        assert stripes == 1 or shape.weight_bytes(group) <= tile.weight_banks * BANK_BYTES
        if tile.weight_reuse:
            assert before is not None
            assert (before.first_kernel, before.weight_banks) == (tile.first_kernel, tile.weight_banks)
            assert before.first_column == tile.first_column
            assert shape.weight_bytes(tile.kernels) <= tile.weight_banks * BANK_BYTES
        before = tile
    assert (seen == 1).all()


def against_plans(path: Path) -> tuple[int, int]:
    """Compare DATA_ENTRIES of every task with those captured.

    Returns
    -------
    The number of layers, and of those that take more tasks here than in the vendor's plans.
    """
    cases = defaultdict(list)
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            numbers = {key: int(value) for key, value in row.items()}
            if numbers["plan"] == 0:
                cases[numbers["case"]].append(numbers)
    more = 0
    for tasks in cases.values():
        v = tasks[0]
        window = Window((v["kernel_h"], v["kernel_w"]), (v["stride"],) * 2, (v["pad_h"], v["pad_w"]) * 2)
        argb = v["cin"] if v["cin"] <= 4 else 0
        size = v["in_height"], v["in_width"]
        pitch = argb_pitch(size[1]) if argb else 0
        shape = ConvShape(v["cin"], *size, v["cout"], *window.output(*size), window, False, argb, pitch)
        for task in tasks:
            entries = shape.pitch * task["rows"] if argb else shape.row_entries
            assert entries == task["data_entries"], task
        more += len(plan_tiles(shape, "layer")) > len(tasks)
    return len(cases), more


def test_against_the_vendors_plans() -> None:
    """Ten layers; of two of them the table lists only some of the vendor's tasks."""
    assert against_plans(VENDOR / "int8.csv") == (10, 2)


@pytest.mark.shared
def test_against_all_of_the_vendors_plans(shared: Path) -> None:
    layers, more = against_plans(shared / "vendor_plans" / "int8.csv")
    assert layers > 70 and more <= 4


def registers_of(model: CompiledModel, task: int = 0) -> dict[str, int]:
    """Last value of every register that a task writes, by path."""
    return {f"{b}.{r}": value for b, r, value in model.plan.tasks[task].values(BASES)}


def test_direct_program() -> None:
    """The words that real int8 programs write ([HW 2.4], [HW 7.5], [HW 7.7])."""
    values = registers_of(compile_conv_layer(40, 50, 12, 10, kernel=3, pad=1, stride=2, relu=True))
    assert values["DPU.S_POINTER"] == values["DPU_RDMA.S_POINTER"] == 0x0E
    assert values["DPU.FEATURE_MODE_CFG"] == 0x1E4
    assert values["DPU.BS_CFG"] == 0x20140 and values["DPU.BS_MUL_CFG"] == 0xE01
    assert values["DPU.DATA_FORMAT"] == 14 << 4
    assert values["DPU.BN_CFG"] == 0x12 and values["DPU.EW_CFG"] == 0x383
    assert values["DPU.BS_OW_CFG"] == 0x125
    assert values["DPU_RDMA.BRDMA_CFG"] == 0xE and values["DPU_RDMA.ERDMA_CFG"] == 1
    assert values["CNA.CVT_CON0"] == 0x0B and values["CNA.CONV_CON3"] == 0x12
    assert values["CNA.PAD_CON1"] == 0xFDFDFDFD
    assert values["CNA.DMA_CON1"] == 40 and values["CNA.DMA_CON2"] == 80
    assert values["CNA.DATA_SIZE1"] == 39 << 16 | 48
    assert values["CNA.WEIGHT_SIZE0"] == 50 * 48 * 9 and values["CNA.CBUF_CON1"] == 10
    assert values["CORE.MISC_CFG"] == 1 and values["CORE.DATAOUT_SIZE_1"] == 63
    assert values["DPU.DST_SURF_STRIDE"] == 30 * 16 and values["DPU.SURFACE_ADD"] == 60 * 16
    assert values["DPU.DATA_CUBE_CHANNEL"] == 49 << 16 | 63
    assert not any(path in values for path in ("CNA.S_POINTER", "CORE.S_POINTER", "CNA.OPERATION_ENABLE"))


def test_small_maps_have_negative_strides() -> None:
    """[HW 4.1]: -3 for a 1x1 map."""
    assert registers_of(compile_conv_layer(64, 10, 1, 1))["CNA.DMA_CON2"] == 0x0FFFFFFD


def test_depthwise_program() -> None:
    values = registers_of(compile_conv_layer(96, 96, 9, 9, kernel=3, pad=1, depthwise=True))
    assert values["CNA.CONV_CON1"] == 3 and values["CORE.MISC_CFG"] == 3
    assert values["DPU.FEATURE_MODE_CFG"] == 0x1FC and values["DPU.BS_OW_CFG"] == 0x36D
    assert values["CNA.WEIGHT_SIZE2"] == 0x03030001 and values["DPU.SURFACE_ADD"] == 4 * 81 * 16
    assert values["DPU.BN_CFG"] == 0x53


def test_first_layer_program() -> None:
    """Packed pixels as in [HW 14.3.2], [HW 3.3]."""
    model = compile_conv_layer(3, 32, 224, 224, kernel=3)
    values = registers_of(model)
    assert values["CNA.CONV_CON1"] == 0x6000A000
    assert values["CNA.DATA_SIZE1"] == 0x0002_0010
    assert values["CNA.DMA_CON1"] == 224 and values["CNA.DMA_CON2"] == 224 * 223
    tile = model.plan.tiles[0][0]
    assert values["CNA.CBUF_CON1"] == 224 * tile.in_rows
    second = registers_of(model, 1)
    assert second["CNA.CBUF_CON0"] & 0x2000 and not values["CNA.CBUF_CON0"] & 0x2000
    step = model.plan.tiles[0][1].in_first * 224 * 3
    assert second["CNA.FEATURE_DATA_ADDR"] == values["CNA.FEATURE_DATA_ADDR"] + step


def test_pool_program() -> None:
    """[HW 14.3.8]: 2x2 stride 2 average of 64x48x16."""
    graph = Graph("pool")
    graph.tensors["x"] = Tensor("x", (1, 16, 48, 64), 0.1, 3, (16, 48, 64))
    graph.tensors["y"] = Tensor("y", (1, 16, 24, 32), 0.1, 3, (16, 24, 32))
    graph.ops.append(Pool("pool", ("x",), "y", "average", Window((2, 2), (2, 2))))
    graph.inputs.append(GraphInput("x", "x", (1, 16, 48, 64)))
    graph.outputs.append(GraphOutput("y", (1, 16, 24, 32), "y", False))
    values = registers_of(CompiledModel(graph))
    assert values["PPU.POOLING_KERNEL_CFG"] == 0x00110101
    assert values["PPU.RECIP_KERNEL_WIDTH"] == values["PPU.RECIP_KERNEL_HEIGHT"] == 0x8000
    assert values["PPU.OPERATION_MODE_CFG"] == 0x10 and values["PPU.MISC_CTRL"] == 3
    assert values["PPU_RDMA.DATA_FORMAT"] == 1 and values["PPU_RDMA.S_POINTER"] == 0x0E
    assert values["PPU_RDMA.SRC_LINE_STRIDE"] == 0x400 and values["PPU_RDMA.SRC_SURF_STRIDE"] == 0xC000


def test_weights_region() -> None:
    """Weights and bias table are at the addresses in the program, with the input zero point included."""
    model = compile_conv_layer(20, 30, 6, 6, kernel=3, zero_points=(-9, 4))
    step, values = model.plan.steps[0], registers_of(model)
    assert isinstance(step, ConvStep)
    image = np.frombuffer(bytes(model.plan.weights), np.uint8)
    weights = unpack_weights(image[values["CNA.DCOMP_ADDR0"] - BASES["weights"] :], (30, 20, 3, 3))
    assert np.array_equal(weights, step.weights)
    table = image[values["DPU_RDMA.BS_BASE_ADDR"] - BASES["weights"] :]
    alu, cpend, mul = unpack_bs_table(table, 64)
    assert np.array_equal(alu[:30], step.bias + 9 * step.weights.astype(int).sum(axis=(1, 2, 3)))
    assert not cpend.any() and mul[:30].max() == 2**14 and not mul[30:].any()


def test_chain() -> None:
    """Tasks are linked in order, and each list ends with its op-enable word."""
    model = compile_model(DIGITS.read_bytes())
    tasks = model.plan.task_list(BASES)
    assert [entry.mask for entry in tasks.tasks] == [0x1D] * 3 + [0x60] + [0x1D] * 6
    assert len(tasks.data) <= model.plan.regcmd_bytes()
    words = np.frombuffer(tasks.data, "<u8")
    for entry, following in zip(tasks.tasks, [*tasks.tasks[1:], None], strict=True):
        first = (entry.address - tasks.address) // 8
        tail = [decode_word(int(w)) for w in words[first + entry.n_words - 4 : first + entry.n_words]]
        assert tail[3].kind == "op_enable"
        if following:
            assert tail[0].fields["PC_SOURCE_ADDR"] * 16 == following.address
    text = str(model.plan)
    assert "residual" in text and "10 tasks" in text


def test_model_interface() -> None:
    model = compile_model(DIGITS.read_bytes())
    (info,) = model.inputs
    assert (info.name, info.shape, info.dtype, info.zero_point) == ("image", (1, 1, 16, 16), np.int8, -128)
    (out,) = model.outputs
    assert (out.name, out.shape, out.dtype, out.quantised) == ("probabilities", (1, 10), np.float32, False)
    assert [step.kind for step in model.graph_nodes()][-1] == "Gemm"
    ramp = np.linspace(0, 1, 256, dtype=np.float32).reshape(1, 1, 16, 16)
    assert model.encode_input(0, ramp).reshape(-1).tolist() == list(range(-128, 128))
    for bad, words in (
        (np.zeros((1, 1, 16, 15), np.float32), "shape"),
        (np.zeros((1, 1, 16, 16), np.int32), "has type int32"),
        (np.zeros((1, 1, 16, 16), np.uint8), "has type uint8"),
        (np.full((1, 1, 16, 16), np.nan), "finite"),
    ):
        with pytest.raises(ModelError, match=words):
            model.encode_input(0, bad)
    with pytest.raises(ModelError, match="the model has 1"):
        model.encode_input(1, ramp)


def test_row_major_cubes() -> None:
    """A matrix (M, K) is stored as K channels of M rows."""
    tensor = Tensor("t", (6, 5), 1.0, 0, (5, 6, 1))
    matrix = np.arange(30, dtype=np.int8).reshape(6, 5)
    cube = to_cube(matrix, tensor)
    assert cube[4, 2, 0] == matrix[2, 4] and np.array_equal(from_cube(cube, tensor), matrix)


@pytest.mark.parametrize(
    ("settings_", "words"),
    [
        (
            dict(channels=5000, kernels=16, height=44, width=44, kernel=11, stride=11),
            "no division into blocks",
        ),
        (dict(channels=5000, kernels=16, height=33, width=33, kernel=32), "no division into blocks"),
        (dict(channels=16, kernels=16, height=40, width=40, kernel=3, pad=16), "padding .* at most 15"),
    ],
)
def test_layers_past_the_hardware(settings_: dict[str, int], words: str) -> None:
    with pytest.raises(ModelError, match=rf"Conv 'conv'.*{words}"):
        compile_conv_layer(**settings_)


def test_pools_past_the_ppu() -> None:
    graph = Graph("pool")
    graph.tensors["x"] = Tensor("x", (1, 16, 48, 64), 0.1, 3, (16, 48, 64))
    graph.tensors["y"] = Tensor("y", (1, 16, 1, 2), 0.1, 3, (16, 1, 2))
    graph.ops.append(Pool("pool", ("x",), "y", "max", Window((48, 40), (1, 24))))
    graph.inputs.append(GraphInput("x", "x", (1, 16, 48, 64)))
    plan = CompiledModel(graph).plan
    assert isinstance(plan.steps[0], HostStep) and not plan.tasks  # the host does it
    graph.ops[0] = Pool("pool", ("x",), "y", "average", Window((16, 16), (1, 2)))
    graph.tensors["y"] = Tensor("y", (1, 16, 33, 25), 0.1, 3, (16, 33, 25))
    assert isinstance(CompiledModel(graph).plan.steps[0], PoolStep)
