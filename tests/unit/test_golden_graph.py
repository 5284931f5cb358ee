"""Graph-level golden model against loops in plain Python, and against the task level on random layers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from rkcosim.golden import graph as g
from rkcosim.golden.graph.run import divide
from rkcosim.golden.task import GoldenDevice
from rkcosim.golden.task.arith import signed
from rkcosim.spec.types import INT8, INT16, INT32
from rkcosim.verify.conformance.arena import BASE, Arena
from rkcosim.verify.conformance.choices import Chooser, Refused
from rkcosim.verify.conformance.conv import Conv
from rkcosim.verify.conformance.dpu import Dpu
from rkcosim.verify.conformance.draw_conv import ConvWish, draw_conv
from rkcosim.verify.conformance.draw_dpu import DpuWish
from rkcosim.verify.conformance.draws import Draw
from rkcosim.verify.crosscheck.program import link


def sat(value: int, bits: int = 8) -> int:
    return max(-(1 << (bits - 1)), min((1 << (bits - 1)) - 1, value))


def even(value: int, shift: int) -> int:
    return round(Fraction(value, 1 << shift))


def cube(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)


def test_divide_is_exact() -> None:
    values = [*range(-20, 21), 2**61 - 1, -(2**61) + 1, 2**33 + 2**10, 3 * 2**40]
    for shift in (0, 1, 2, 11, 41, 61, 62, 63):
        exact = [Fraction(v, 1 << shift) for v in values]
        assert divide(np.array(values), shift).tolist() == [round(f) for f in exact]
        away = [int(abs(f) + Fraction(1, 2)) * (1 if f > 0 else -1) for f in exact]
        assert divide(np.array(values), shift, True).tolist() == away
    with pytest.raises(ValueError, match="negative"):
        divide(np.array([1]), -1)


def test_convolution_matches_loops() -> None:
    x, w = cube(1, 3, 5, 4), cube(2, 4, 3, 2, 3)
    add, mul = [100, -200, 3, 40000], [16384, -9000, 32767, 1]
    node = g.QConv(
        x="x",
        y="y",
        weights=w,
        size=(3, 4),
        stride=(2, 1),
        dilation=(1, 2),
        pad=(1, 2),
        pad_value=-9,
        window_mul=[0, 5, -7, 1],
        truncate=1,
        stage=g.Stage(add=add, mul=mul, shift=10, shift_negative=11, clamp=g.Clamp(low=-4000, high=9000)),
        output=g.Output(scale=12345, shift=19, offset=-3),
    )
    got = g.evaluate(node, {"x": x})
    assert got.dtype == np.int8 and got.shape == (4, 3, 4)
    for k in range(4):
        for oy in range(3):
            for ox in range(4):
                acc = total = 0
                for c in range(3):
                    for kr in range(2):
                        for kc in range(3):
                            iy, ix = oy * 2 + kr - 1, ox + 2 * kc - 2
                            v = int(x[c, iy, ix]) if 0 <= iy < 5 and 0 <= ix < 4 else -9
                            acc, total = acc + v * int(w[k, c, kr, kc]), total + v
                p = (even(acc + total * (0, 5, -7, 1)[k], 1) + add[k]) * mul[k]
                v = min(max(sat(even(p, 10 if p >= 0 else 11), 32), -4000), 9000)
                assert got[k, oy, ox] == sat(even(v * 12345 - (3 << 19), 19))


def test_depthwise_is_a_convolution_of_single_channels() -> None:
    x, w = cube(3, 5, 6, 6), cube(4, 5, 3, 3)
    how = {"size": (6, 6), "pad": (1, 1), "pad_value": 4, "output": g.Output(bits=32)}
    got = g.evaluate(g.QDepthwise(x="x", y="y", weights=w, window_mul=np.arange(5), **how), {"x": x})
    for c in range(5):
        alone = g.QConv(x="x", y="y", weights=w[c : c + 1, None], window_mul=c, **how)
        assert (g.evaluate(alone, {"x": x[c : c + 1]})[0] == got[c]).all()


def test_gemm_is_a_convolution_over_the_whole_map() -> None:
    x, w = cube(5, 4, 2, 3), cube(6, 7, 24)
    conv = g.QConv(
        x="x", y="y", weights=w.reshape(7, 4, 2, 3), size=(1, 1), output=g.Output(bits=16, shift=3)
    )
    gemm = g.QGemm(x="x", y="y", weights=w, output=g.Output(bits=16, shift=3))
    assert (g.evaluate(conv, {"x": x}) == g.evaluate(gemm, {"x": x})).all()


def test_addition_matches_loops() -> None:
    a, b = cube(7, 2, 3, 3), cube(8, 2, 3, 3)
    node = g.QAdd(
        a="a",
        b="b",
        y="y",
        a_operand=g.Operand(offset=-5, scale=16384, shift=6),
        b_operand=g.Operand(offset=9, scale=-20000, shift=7, half_away=True),
        clamp=g.Clamp(low=0),
        output=g.Output(scale=16385, shift=21, offset=-128, half_away=True),
    )
    got = g.run([node], {"a": a, "b": b})["y"]
    for at in np.ndindex(a.shape):
        second = Fraction((int(b[at]) + 9) * -20000, 128)
        second = int(abs(second) + Fraction(1, 2)) * (1 if second > 0 else -1)
        v = max(even((int(a[at]) - 5) * 16384, 6) + second, 0)
        exact = Fraction(v * 16385, 1 << 21) - 128
        assert got[at] == sat(int(abs(exact) + Fraction(1, 2)) * (1 if exact > 0 else -1))


def test_a_tie_is_rounded_with_the_output_zero_point() -> None:
    """127.5 - 1 is 126, not 127."""
    x = np.array([[[-3, -1, 1, 3]]], np.int8)
    for offset, want in ((0, [-2, 0, 0, 2]), (-1, [-2, -2, 0, 0]), (1, [0, 0, 2, 2])):
        node = g.QScale(x="x", y="y", output=g.Output(shift=1, offset=offset))
        assert g.evaluate(node, {"x": x}).ravel().tolist() == want
        away = g.QScale(x="x", y="y", output=g.Output(shift=1, offset=offset, half_away=True))
        exact = [Fraction(int(v), 2) + offset for v in x.ravel()]
        assert g.evaluate(away, {"x": x}).ravel().tolist() == [
            int(abs(v) + Fraction(1, 2)) * (1 if v > 0 else -1) for v in exact
        ]


def test_scale_saturates_and_clamps() -> None:
    x = np.array([[[-128, -1, 0, 1, 127]]], np.int8)
    node = g.QScale(
        x="x", y="y", stage=g.Stage(add=1, mul=2, clamp=g.Clamp(low=0)), output=g.Output(offset=-1)
    )
    assert g.evaluate(node, {"x": x}).ravel().tolist() == [-1, -1, 1, 3, 127]


@pytest.mark.parametrize("method", ["max", "min", "average"])
@pytest.mark.parametrize("kernel", [(2, 2), (3, 3), (3, 2), (1, 4)])
def test_pooling_matches_fractions(method: str, kernel: tuple[int, int]) -> None:
    x = cube(9, 3, 6, 7)
    pad = (kernel[0] // 2, kernel[1] // 2)
    size = (6 + 2 * pad[0] - kernel[0] + 1, (7 + 2 * pad[1] - kernel[1]) // 2 + 1)
    node = g.QPool(x="x", y="y", method=method, kernel=kernel, size=size, stride=(1, 2), pad=pad, pad_value=6)
    got = g.evaluate(node, {"x": x})
    powers = all(k & (k - 1) == 0 for k in kernel)
    for c, oy, ox in np.ndindex(got.shape):
        taps = []
        for ky in range(kernel[0]):
            for kx in range(kernel[1]):
                y, z = oy + ky - pad[0], 2 * ox + kx - pad[1]
                taps.append(int(x[c, y, z]) if 0 <= y < 6 and 0 <= z < 7 else 6)
        exact = Fraction(abs(sum(taps)), len(taps))
        tie = exact.denominator == 2 and len(taps) % 2 == 0
        m = (round(exact) if powers else int(exact)) if tie else int(exact + Fraction(1, 2))
        want = {"max": max(taps), "min": min(taps), "average": m if sum(taps) >= 0 else -m}[method]
        assert got[c, oy, ox] == sat(want)


def test_reshape_and_softmax() -> None:
    nodes = [g.Reshape(x="x", y="flat", shape=(6,)), g.HostSoftmax(x="flat", y="p", scale=0.1, zero_point=3)]
    x = cube(10, 6, 1, 1)
    tensors = g.run(nodes, {"x": x})
    real = np.exp((x.ravel().astype(float) - 3) * 0.1)
    assert tensors["p"].dtype == np.float32
    np.testing.assert_allclose(tensors["p"], real / real.sum(), rtol=1e-6)


def test_shapes_that_do_not_fit_are_named() -> None:
    with pytest.raises(ValueError, match="y: weights have 2 channels, x has 3"):
        g.evaluate(g.QConv(x="x", y="y", weights=cube(1, 1, 2, 1, 1), size=(1, 1)), {"x": cube(1, 3, 1, 1)})
    with pytest.raises(ValueError, match="a has shape"):
        g.evaluate(g.QAdd(a="a", b="b", y="y"), {"a": cube(1, 1, 2, 2), "b": cube(1, 1, 2, 1)})
    with pytest.raises(KeyError):
        g.evaluate(g.Reshape(x="nobody", y="y", shape=(1,)), {})


# -- both levels on random layers ------------------------------------------------------------------


PLAIN = {"bn.on": 0, "bs.prelu": 0, "out.add_first": 0, "conv.round": 0, "conv.converter": 0}
"""Choices that limit a draw to what a graph node can express: CPEND, BS, OUT_CVT."""


def node_of(conv: Conv, dpu: Dpu, memory: np.ndarray) -> g.QConv | g.QDepthwise:
    """The graph node of a drawn layer; `memory` is the arena's image."""
    field = {"BS_BYPASS": 0}
    for values in dpu.preset.fields.values():
        field.update(values)
    lanes = dpu.channels
    tables = {"alu": np.zeros(lanes, int), "cpend": np.zeros(lanes, int), "mul": np.zeros(lanes, int)}
    if dpu.bs:
        at = dpu.bs[0] - BASE
        blocks = -(-lanes // 8)
        raw = memory[at : at + blocks * dpu.bs[1]].reshape(blocks, dpu.bs[1])
        place = 0
        for bit, (name, kind) in enumerate((("alu", "<i4"), ("cpend", "<i2"), ("mul", "<i2"))):
            if field["BRDMA_DATA_USE"] >> bit & 1:
                size = 8 * np.dtype(kind).itemsize
                part = np.ascontiguousarray(raw[:, place : place + size])
                tables[name] = part.view(kind).astype(int).ravel()[:lanes]
                place += size
    window = 0
    if not dpu.bypass_cpend and conv.qd:
        window = tables["cpend"] if field.get("OW_SRC") else signed(field.get("OW_OP", 0), 16)
    stage = g.Stage()
    if not field["BS_BYPASS"]:
        add: object = 0
        if not field["BS_ALU_BYPASS"]:
            add = tables["alu"] if field["BS_ALU_SRC"] else signed(field["BS_ALU_OPERAND"], 32)
            add = add if field["BS_ALU_ALGO"] == 2 else -add
        mul = None
        if not field["BS_MUL_BYPASS"]:
            mul = tables["mul"] if field["BS_MUL_SRC"] else signed(field["BS_MUL_OPERAND"], 16)
        high = signed(field["BS_RELUX_CMP_DAT"], 32) if field["BS_RELUX_EN"] else None
        clamp = g.Clamp(low=None if field["BS_RELU_BYPASS"] else 0, high=high)
        shift, negative = field.get("BS_MUL_SHIFT_VALUE", 0), field.get("BS_MUL_SHIFT_VALUE_NEG", 0)
        stage = g.Stage(add=add, mul=mul, shift=shift, shift_negative=negative, clamp=clamp)
    output = g.Output(
        scale=signed(field["OUT_CVT_SCALE"], 16),
        shift=field["OUT_CVT_SHIFT"] % 64,
        offset=signed(field["OUT_CVT_OFFSET"], 32),
        bits=dpu.out.bits,
        half_away=bool(field["CVT_ROUND"]),
    )
    weights = weights_of(conv, lanes, memory)
    kind = g.QDepthwise if conv.depthwise else g.QConv
    geometry = {"size": conv.out, "stride": conv.stride, "dilation": conv.dilation, "pad": conv.pad}
    value = signed(conv.pad_value & 0xFF, 8)
    rest = {"pad_value": value, "truncate": conv.clip[0], "stage": stage, "output": output}
    return kind(x="x", y="y", weights=weights, window_mul=window, **geometry, **rest)


def weights_of(conv: Conv, lanes: int, memory: np.ndarray) -> np.ndarray:
    """Read the random weights with loops; kernels that do not exist are zero."""
    at = conv.weights - BASE
    kh, kw = conv.kernel
    if conv.depthwise:
        out = np.zeros((lanes, kh, kw), np.int8)
        for group in range(0, conv.channels, 64):
            step = {1: 16, 2: 32}.get(-(-min(64, conv.channels - group) // 16), 64)
            for kr in range(kh):
                for kc in range(kw):
                    real = max(0, min(64, conv.channels - group, lanes - group))
                    out[group : group + real, kr, kc] = memory[at : at + real].view(np.int8)
                    at += step
        return out
    out = np.zeros((lanes, conv.channels, kh, kw), np.int8)
    for group in range(0, conv.kernels, 32):
        for block in range(0, 16 * conv.surfaces, 32):
            for kr in range(kh):
                for kc in range(kw):
                    for k in range(group, min(group + 32, conv.kernels)):
                        width = min(32, 16 * conv.surfaces - block)
                        real = max(0, min(width, conv.channels - block))
                        if k < lanes:
                            out[k, block : block + real, kr, kc] = memory[at : at + real].view(np.int8)
                        at += width
    return out


def features_of(conv: Conv, lanes: int, memory: np.ndarray) -> np.ndarray:
    """Read the random features: int8 [channels, rows, columns] (NC1HWC2)."""
    out = np.zeros((lanes, conv.height, conv.width), np.int8)
    for c in range(min(lanes, conv.channels)):
        for y in range(conv.height):
            start = conv.data - BASE + 16 * (c // 16 * conv.surface + y * conv.line) + c % 16
            out[c, y] = memory[start : start + 16 * conv.width : 16].view(np.int8)
    return out


def output_of(device: GoldenDevice, dpu: Dpu) -> np.ndarray:
    """Read the output of the task, real channels only."""
    per = dpu.out.per_atom
    kind = {8: np.int8, 16: "<i2", 32: "<i4"}[dpu.out.bits]
    out = np.zeros((dpu.orig, dpu.height, dpu.width), np.int64)
    for c in range(dpu.orig):
        s = c // per
        jump = s // dpu.group_surfaces * dpu.surface_add + s % dpu.group_surfaces * dpu.surface
        for y in range(dpu.height):
            at = dpu.address + 16 * (jump + y * (dpu.width + dpu.notch))
            row = np.frombuffer(device.memory.read(at, 16 * dpu.width), kind).reshape(dpu.width, per)
            out[c, y] = row[:, c % per]
    return out


@pytest.mark.parametrize("depthwise", [False, True], ids=["direct", "depthwise"])
def test_both_levels_agree_on_random_layers(depthwise: bool) -> None:
    telling = 0
    for seed in range(300):
        ch = Chooser((seed, 77), PLAIN)
        arena = Arena(ch)
        draw = Draw(ch, arena)
        try:
            conv = draw_conv(ch, arena, ConvWish(INT8, depthwise=depthwise, budget=3000))
            conv.pad_value = (conv.pad_value & 0xFF) * 0x01010101
            dpu = draw.dpu_of(conv, DpuWish(out=(INT8, INT16, INT32), element="none"))
            task = draw.task(conv, dpu)
        except Refused:
            continue
        memory = arena.image()
        node = node_of(conv, dpu, memory)
        device = GoldenDevice()
        device.memory.map(arena.base, memory.size)[:] = memory
        device.memory.map(arena.commands, 0x2000)
        chain = link([task], arena.commands)
        device.memory.write(arena.commands, np.array(chain.lists[0][1], "<u8"))
        device.run_kick(chain.base, chain.amount, 1)
        # A depthwise cube may be wider than the layer: the lanes without data are zero, padding included.
        lanes = dpu.channels if conv.depthwise else conv.channels
        x = features_of(conv, lanes, memory)
        want = g.evaluate(node, {"x": x})
        got = output_of(device, dpu)
        real = min(dpu.orig, conv.channels) if conv.depthwise else dpu.orig
        assert (got[:real] == want[:real]).all(), f"seed {seed}: {node}"
        telling += np.unique(got).size > 8  # others saturate
        if telling == 40:
            return
    raise AssertionError(f"only {telling} layers show more than saturated values")
