"""First-layer input, CBUF and the findings of the golden model's CNA and CORE."""

from __future__ import annotations

import numpy as np
import pytest

from rkcosim.golden.task import GoldenError, GoldenHang
from rkcosim.spec.types import BF16, FP16, INT8, INT16, ElementType
from tests.makers.golden_bench import MAIN, device
from tests.twins.golden_conv import Layer, Recorder, check, of, program, run, signed, with_fields

# -- first-layer input --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [INT8, INT16, FP16, BF16], ids=lambda kind: kind.name)
@pytest.mark.parametrize("colours", [1, 2, 3, 4])
def test_argb(kind: ElementType, colours: int) -> None:
    rng = np.random.default_rng(colours)
    case = of(kind, channels=kind.per_atom, kernels=3, size=(3, 4), out=(3, 4))
    layer, pitch, bits = Layer(case, rng), 5, kind.bits
    case = with_fields(case, "CNA", "CONV_CON1", ARGB_IN=7 + colours, NONALIGN_DMA=1, GROUP_LINE_OFF=1)
    case = with_fields(case, "CNA", "DMA_CON1", LINE_STRIDE=pitch)
    convert, sign, first, up = not kind.is_float, colours % 2, colours > 2, colours in (1, 4)
    if convert:
        settings = {"CVT_BYPASS": 0, "DATA_SIGN": sign, "CVT_TYPE": int(first), "ROUND_TYPE": int(up)}
        truncates = {f"CVT_TRUNCATE_{i}": 13 + i for i in range(4)}
        case = with_fields(case, "CNA", "CVT_CON0", **settings, **truncates)
        case = with_fields(case, "CNA", "CVT_CON5", PER_CHANNEL_CVT_EN=0b1101)
        for i in range(4):
            numbers = {f"CVT_SCALE{i}": 9000 - 7 * i, f"CVT_OFFSET{i}": -128 - i}
            case = with_fields(case, "CNA", f"CVT_CON{i + 1}", **numbers)
    raw = [
        [[layer.x[c][y][min(x, 3)] ^ (x == 4) for c in range(colours)] for x in range(5)] for y in range(3)
    ]
    dev = device()
    dev.observer = recorder = Recorder()
    layer.store(dev)
    data = b"".join(v.to_bytes(bits // 8, "little") for row in raw for pixel in row for v in pixel)
    dev.memory.write(MAIN, data)
    program(case).run(dev)
    for c in range(len(layer.x)):
        for y in range(3):
            for x in range(4):
                if c >= colours:
                    layer.x[c][y][x] = 0
                elif convert and c != 1:
                    value = signed(raw[y][x][c], bits) if sign else raw[y][x][c]
                    scale, offset, shift = 9000 - 7 * c, -128 - c, 13 + c
                    t = (value + offset) * scale if first else value * scale
                    low, half = t & ((1 << shift) - 1), 1 << (shift - 1)
                    more = low > half or (low == half and (up or t >> shift & 1))
                    top = (1 << (bits - 1)) - 1
                    moved = (t >> shift) + more + (0 if first else offset)
                    layer.x[c][y][x] = max(-top - 1, min(top, moved)) % (1 << bits)
    accs, _ = recorder.lanes(12, 1, case.group // 8)
    assert [lanes[:3] for lanes in accs] == layer.expect()[0]
    step = 4 * bits // 8 * (1, 2, 4, 4)[colours - 1]
    image = b"".join(recorder.images["feature"][n] for n in sorted(recorder.images["feature"]))
    for p in range(14):
        stored = image[p * step : (p + 1) * step]
        assert not any(stored[colours * bits // 8 :])
        if not convert:
            assert stored[: colours * bits // 8] == data[p * colours * bits // 8 :][: colours * bits // 8]


# -- CBUF ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("atoms", [1, 2, 3, 4, 5, 6, 7, 8])
def test_places_in_cbuf(atoms: int) -> None:
    columns, pitch = 5, 13
    case = of(INT8, channels=16 * atoms, kernels=2, size=(2, columns), kernel=(1, 1), out=(2, 5), pad=(0, 0))
    case = with_fields(case, "CNA", "CBUF_CON1", DATA_ENTRIES=pitch)
    layer = Layer(case, np.random.default_rng(atoms))
    recorder, _ = run(case, layer)
    image = recorder.images["feature"]
    full, rest = divmod(atoms, 4)
    if rest == 3:
        full, rest = full + 1, 0
    used = set()
    for a in range(atoms):
        for y in range(2):
            for x in range(columns):
                entry, column = y * pitch + a // 4 * columns + x, a % 4
                if a // 4 == full and rest == 1:
                    entry, column = y * pitch + full * columns + x // 4, x % 4
                elif a // 4 == full and rest == 2:
                    entry, column = y * pitch + full * columns + x // 2, 2 * (x % 2) + a % 4
                want = bytes(layer.x[16 * a + c][y][x] for c in range(16))
                assert image[entry][16 * column : 16 * column + 16] == want
                used.add(entry)
    assert used == set(image)
    stream = bytes(layer.stream())
    weights = recorder.images["weight"]
    assert sorted(weights) == [4 * 512 + n for n in range(-(-len(stream) // 64))]
    assert b"".join(weights[n] for n in sorted(weights))[: len(stream)] == stream


def test_weight_ring_keeps_the_last_bytes() -> None:
    case = of(INT8, channels=64, kernels=40, size=(3, 3), kernel=(3, 5), out=(2, 2), pad=(1, 2))
    case = with_fields(case, "CNA", "CBUF_CON0", DATA_BANK=4, WEIGHT_BANK=1)
    recorder = check(case)
    stream = bytes(Layer(case, np.random.default_rng(0)).stream())
    weights = recorder.images["weight"]
    assert len(stream) > 32768 and sorted(weights) == list(range(11 * 512, 12 * 512))
    wrapped = len(stream) - 32768
    ring = b"".join(weights[n] for n in sorted(weights))
    assert ring[:wrapped] == stream[32768:] and ring[wrapped:] == stream[wrapped:32768]


# -- gates, types that disagree -----------------------------------------------------------------------


@pytest.mark.parametrize(("gates", "off"), [(1 << 11, {0}), (1 << 23, {1}), (1 << 11 | 1 << 23, {0, 1})])
def test_gated_octets_read_zero(gates: int, off: set) -> None:
    plain = of(INT8, kernels=32)
    layer = Layer(plain, np.random.default_rng(1))
    want, _ = run(plain, layer)
    case = with_fields(plain, "CORE", "MAC_GATING", SLCG_OP_EN=0x7800800 & ~gates)
    got, findings = run(case, layer, strict=False)
    assert findings == [("RESERVED_MODE", "MAC_GATING")]
    zero = [0] * 8
    for at, octet in enumerate(want.octets):
        assert got.octets[at] == ((zero, zero) if at % 2 in off else octet)


def test_gated_array_never_ends() -> None:
    case = with_fields(of(INT8), "CORE", "MAC_GATING", SLCG_OP_EN=0x800800)
    with pytest.raises(GoldenHang, match=r"CORE.MAC_GATING.*not clocked.*RESERVED_MODE"):
        run(case, Layer(case, np.random.default_rng(0)), strict=False)


def test_types_that_disagree() -> None:
    case = of(INT16, kernels=20)
    layer = Layer(case, np.random.default_rng(2))
    accs, _ = layer.expect()
    # CORE drains as a float: the low 32 bits as they are.
    float_core = with_fields(case, "CORE", "MISC_CFG", PROC_PRECISION=2)
    float_core = with_fields(float_core, "CORE", "CLIP_TRUNCATE", CLIP_TRUNCATE=5)
    got, findings = run(float_core, layer, strict=False)
    assert findings == [("RESERVED_MODE", "MISC_CFG")]
    lanes, _ = got.lanes(12, 2, 2)
    assert lanes[0][:20] == [signed(a, 32) % (1 << 48) for a in accs[0]]
    # PROC_PRECISION of CNA has no effect beyond the finding, and reserved codes count as int8.
    other = with_fields(case, "CNA", "CONV_CON1", PROC_PRECISION=0)
    got, findings = run(other, layer, strict=False)
    assert findings == [("RESERVED_MODE", "CONV_CON1")] and got.lanes(12, 2, 2)[0][0][:20] == accs[0]
    case = of(INT8)
    layer = Layer(case, np.random.default_rng(2))
    reserved = with_fields(case, "CNA", "CONV_CON1", IN_PRECISION=5, PROC_PRECISION=5)
    got, findings = run(reserved, layer, strict=False)
    assert set(findings) == {("RESERVED_MODE", "CONV_CON1")}
    assert got.lanes(12, 2, 4)[0][0][: case.kernels] == layer.expect()[0][0]


@pytest.mark.parametrize(
    ("register", "values", "code", "where"),
    [
        ("CONV_CON1", {"DECONV": 1}, None, ""),
        ("CONV_CON3", {"DECONV_Y_STRIDE": 3}, None, ""),
        ("CONV_CON1", {"CONV_MODE": 2}, "RESERVED_MODE", "CONV_CON1"),
        ("CONV_CON1", {"ARGB_IN": 3}, "RESERVED_MODE", "CONV_CON1"),
        ("CONV_CON1", {"NONALIGN_DMA": 1}, "RESERVED_MODE", "CONV_CON1"),
        ("CONV_CON2", {"CSC_WO_EN": 1}, "RESERVED_MODE", "CONV_CON2"),
        ("CONV_CON2", {"CSC_DO_EN": 1}, "RESERVED_MODE", "CONV_CON2"),
        ("FC_CON0", {"FC_SKIP_EN": 1}, "RESERVED_MODE", "FC_CON0"),
        ("CBUF_CON0", {"WEIGHT_BANK": 1, "FC_DATA_BANK": 1}, "RESERVED_MODE", "CBUF_CON0"),
        ("DATA_SIZE3", {"SURF_MODE": 1}, None, ""),
        ("DATA_SIZE3", {"SURF_MODE": 2}, "RESERVED_MODE", "DATA_SIZE3"),
        ("CVT_CON0", {"CVT_BYPASS": 0}, None, ""),  # no bit of CVT_CON5 is set
        ("FC_DATA_SIZE0", {"DMA_WIDTH": 9}, "SIZE_MISMATCH", "FC_DATA_SIZE0"),
        ("FC_DATA_SIZE1", {"DMA_CHANNEL": 9}, "SIZE_MISMATCH", "FC_DATA_SIZE1"),
        ("DMA_CON1", {"LINE_STRIDE": 14}, "SIZE_MISMATCH", "DMA_CON1"),
        ("CBUF_CON0", {"DATA_BANK": 5}, "BANK_SUM", "CBUF_CON0"),
        ("CONV_CON2", {"KERNEL_GROUP": 5, "NN_MODE": 3}, None, ""),
    ],
)
def test_findings_without_effect(register: str, values: dict, code: str | None, where: str) -> None:
    case = of(INT8, size=(4, 3), channels=16, kernels=3)
    layer = Layer(case, np.random.default_rng(3))
    if register == "DMA_CON1":
        layer.x = [[row[:2] + row[:1] for row in plane] for plane in layer.x]
    got, findings = run(with_fields(case, "CNA", register, **values), layer, strict=False)
    assert findings == ([(code, where)] if code else [])
    if register != "DMA_CON1":
        assert [a[:3] for a in got.lanes(12, 1, 4)[0]] == layer.expect()[0]
    if code:
        with pytest.raises(GoldenError, match=f"{where}.*{code}"):
            run(with_fields(case, "CNA", register, **values), layer)


@pytest.mark.parametrize(
    ("register", "values", "findings"),
    [
        (
            "DATA_SIZE1",
            {"DATAIN_CHANNEL": 0},
            {("EMPTY_SIZE", "DATA_SIZE1"), ("SIZE_MISMATCH", "FC_DATA_SIZE1")},
        ),
        ("WEIGHT_SIZE2", {"WEIGHT_KERNELS": 0}, {("EMPTY_SIZE", "WEIGHT_SIZE2")}),
        (
            "WEIGHT_SIZE0",
            {"WEIGHT_BYTES": 0},
            {("EMPTY_SIZE", "WEIGHT_SIZE0"), ("SIZE_MISMATCH", "WEIGHT_SIZE0")},
        ),
        ("WEIGHT_SIZE0", {"WEIGHT_BYTES": 64}, {("SIZE_MISMATCH", "WEIGHT_SIZE0")}),
        ("CBUF_CON0", {"WEIGHT_BANK": 0}, {("WEIGHT_FOOTPRINT", "CBUF_CON0")}),
        (
            "DCOMP_CTRL",
            {"DECOMP_CONTROL": 1},
            {("RESERVED_MODE", "DCOMP_REGNUM"), ("SIZE_MISMATCH", "WEIGHT_SIZE0")},
        ),
    ],
)
def test_tasks_that_never_end(register: str, values: dict, findings: set) -> None:
    case = with_fields(of(INT8, channels=16, kernels=3), "CNA", register, **values)
    dev = device(strict=False)
    Layer(case, np.random.default_rng(3)).store(dev)
    with pytest.raises(GoldenHang):
        program(case).run(dev)
    assert {(f.code, f.register.split(".")[0]) for f in dev.findings} == findings


def test_kernel_group_over_its_banks() -> None:
    case = of(INT8, channels=64, kernels=32, size=(6, 6), kernel=(5, 5), out=(6, 6), pad=(2, 2))
    case = with_fields(case, "CNA", "CBUF_CON0", DATA_BANK=4, WEIGHT_BANK=1)
    dev = device()
    with pytest.raises(GoldenHang, match=r"CNA.WEIGHT_SIZE2.*the banks hold.*WEIGHT_FOOTPRINT"):
        program(case).run(dev)


def test_float_types_pass_the_input_converter() -> None:
    case = of(FP16, channels=8, kernels=1)
    case = with_fields(case, "CNA", "CVT_CON0", CVT_BYPASS=0)
    layer = Layer(case, np.random.default_rng(0))
    got, findings = run(case, layer, strict=False)
    assert findings == [("RESERVED_MODE", "CVT_CON0")]
    assert [a[:1] for a in got.lanes(12, 1, 2)[0]] == layer.expect()[0]


Q_SCALE, K_SCALE, LOGIT_SCALE = 0.037083130329847336, 0.0384504459798336, 0x2D70
"""Scales of the two inputs of an attention layer, and the fp16 bits of the factor behind their product, in
darkice9x/Yolo11_rknn 5f3c11f, models/detect/yolo11n-RK3588_320_i8.rknn."""


def test_products_of_two_activations_need_the_converter() -> None:
    """The factors of a vendor's layer give the product of both inputs only with the converter (4.3)."""
    case = of(INT8, channels=32, kernels=32, size=(1, 6), kernel=(1, 1), out=(1, 6), pad=(0, 0), pad_word=0)
    for i in range(4):
        case = with_fields(case, "CNA", f"CVT_CON{i + 1}", **{f"CVT_SCALE{i}": 30925, f"CVT_OFFSET{i}": -7})
    shifts = {f"CVT_TRUNCATE_{i}": 15 for i in range(4)}
    case = with_fields(case, "CNA", "CVT_CON0", CVT_BYPASS=0, CVT_TYPE=1, DATA_SIGN=1, **shifts)
    case = with_fields(case, "CNA", "CVT_CON5", PER_CHANNEL_CVT_EN=0xFFFF)
    layer = Layer(case, np.random.default_rng(5))
    got, findings = run(case, layer)
    assert findings == []
    acc, total = (
        np.array([[signed(v, bits) for v in pixel[:32]] for pixel in lanes])
        for lanes, bits in zip(got.lanes(6, 1, 4), (48, 32), strict=True)
    )
    codes = (acc + total) * (23170 / 2**17) * (18643 / 2**20)  # zero point -1 of the kernels
    logits = codes * float(np.uint16(LOGIT_SCALE).view(np.float16))
    q = np.array([[signed(v, 8) - 7 for v in layer.x[c][0]] for c in range(32)])
    k = np.array([[signed(v, 8) + 1 for v in kernel[0]] for kernel in layer.w])
    exact = Q_SCALE * K_SCALE * (q.T @ k.T) / np.sqrt(32)
    rounding = 0.5 * Q_SCALE * 2**15 / 30925 * K_SCALE * np.abs(k).sum(1) / np.sqrt(32)
    assert (np.abs(logits - exact) <= rounding + 1e-3 * np.abs(exact)).all()
    assert np.abs(exact).max() > 20 * rounding.min()


def test_atoms_use_the_sets_of_the_converter_in_turn() -> None:
    case = of(INT8, channels=16, kernels=16, size=(1, 1), kernel=(1, 1), out=(1, 1), pad=(0, 0), pad_word=0)
    for i, (scale, offset) in enumerate(((1, 1), (2, 0), (3, 100), (-1, 0))):
        values = {f"CVT_SCALE{i}": scale, f"CVT_OFFSET{i}": offset}
        case = with_fields(case, "CNA", f"CVT_CON{i + 1}", **values)
    case = with_fields(case, "CNA", "CVT_CON0", CVT_BYPASS=0, CVT_TYPE=0, DATA_SIGN=1)
    case = with_fields(case, "CNA", "CVT_CON5", PER_CHANNEL_CVT_EN=0xFF0F)
    layer = Layer(case, np.random.default_rng(5))
    layer.x = [[[c * 16 % 256]] for c in range(16)]
    layer.w = [[[int(c == k) for c in range(32)]] for k in range(16)]
    got, _ = run(case, layer)
    # channels 4 to 7 are not converted; the others: x + 1, 2x, 3x + 100, -x, saturated
    expected = [1, 32, 127, -48, 64, 80, 96, 112, -127, -128, -128, 80, -63, -96, 4, 16]
    assert [signed(v, 48) for v in got.lanes(1, 1, 4)[0][0][:16]] == expected
