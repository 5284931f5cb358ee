"""PPU_RDMA and PPU together: random pools of a cube in memory against the naive twin."""

from __future__ import annotations

import random

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.config import SMALL
from rtl.layouts import ControlPort, DiagnosticPort, ReadPort, WritePort
from rtl.npu.ppu import Ppu
from rtl.npu.ppu_rdma import PpuRdma
from rtl.regfile import config_signature
from tests.block.dpu_bench import Bench
from tests.models.ppu_model import pool

GUARD = 0xA5


class Pair(wiring.Component):
    """PPU_RDMA feeding the PPU, as in the core."""

    def __init__(self) -> None:
        super().__init__(
            {
                "ppu_cfg": In(config_signature("PPU")),
                "rdma_cfg": In(config_signature("PPU_RDMA")),
                "ppu_control": In(ControlPort()),
                "rdma_control": In(ControlPort()),
                "read": Out(ReadPort()),
                "write": Out(WritePort()),
                "diag": Out(DiagnosticPort()),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.ppu = ppu = Ppu(SMALL)
        m.submodules.rdma = rdma = PpuRdma(SMALL)
        wiring.connect(m, rdma.atoms, ppu.atoms)
        wiring.connect(m, wiring.flipped(self.read), rdma.read)
        wiring.connect(m, wiring.flipped(self.write), ppu.write)
        wiring.connect(m, wiring.flipped(self.diag), ppu.diag)
        wiring.connect(m, wiring.flipped(self.ppu_cfg), ppu.cfg)
        wiring.connect(m, wiring.flipped(self.rdma_cfg), rdma.cfg)
        wiring.connect(m, wiring.flipped(self.ppu_control), ppu.control)
        wiring.connect(m, wiring.flipped(self.rdma_control), rdma.control)
        return m


def _draw(rng: random.Random) -> dict:
    while True:
        kernel = (rng.randint(1, 4), rng.randint(1, 4)) if rng.random() < 0.8 else (rng.randint(5, 9),) * 2
        stride = (rng.randint(1, 4), rng.randint(1, 4))
        pad = (rng.randint(0, min(3, kernel[0] - 1)), rng.randint(0, min(3, kernel[1] - 1)))
        size = (rng.randint(1, 12), rng.randint(1, 12))
        trail = (rng.randint(0, pad[0]), rng.randint(0, pad[1]))
        out = tuple((size[i] + pad[i] + trail[i] - kernel[i]) // stride[i] + 1 for i in (0, 1))
        if min(out) < 1 or any(size[i] + pad[i] + trail[i] < kernel[i] for i in (0, 1)):
            continue
        return {
            "kernel": kernel, "stride": stride, "pad": pad, "size": size, "out": out,
            "channels": 16 * rng.randint(1, 3), "method": rng.randint(0, 2),
            "line": size[1] + rng.choice((0, 0, 1, 5)), "notch": rng.choice((0, 0, 3)),
            "pad_value": rng.choice((-128, 0, 7)),
        }  # fmt: skip


def _run(shape: dict, rng: random.Random, stall: float) -> int:
    (height, width), (out_h, out_w) = shape["size"], shape["out"]
    surfaces = shape["channels"] // 16
    cube = np.array(
        [rng.randint(-128, 127) for _ in range(height * width * shape["channels"])], np.int8
    ).reshape(height, width, shape["channels"])
    memory = bytearray([GUARD]) * 65536
    source, target = 0x1010, 0x8010
    surf = shape["line"] * height + 2
    for s in range(surfaces):
        for y in range(height):
            for x in range(width):
                at = source + 16 * (s * surf + y * shape["line"] + x)
                memory[at : at + 16] = cube[y, x, 16 * s : 16 * s + 16].tobytes()
    (kh, kw), (sh, sw), (pt, pl) = shape["kernel"], shape["stride"], shape["pad"]
    recip = (round(65536 / kh), round(65536 / kw))
    out_pitch = out_w + shape["notch"]
    out_surf = out_pitch * out_h + 1
    expected = bytearray(memory)
    result = pool(
        cube, shape["method"], shape["kernel"], shape["stride"], shape["pad"], shape["out"],
        shape["pad_value"], recip,
    )  # fmt: skip
    for s in range(surfaces):
        for y in range(out_h):
            for x in range(out_w):
                at = target + 16 * (s * out_surf + y * out_pitch + x)
                expected[at : at + 16] = result[y, x, 16 * s : 16 * s + 16].tobytes()

    dut = Pair()
    bench = Bench(dut, rng.randrange(1 << 32), stall)
    writes = bench.write_memory(dut.write, memory)
    bench.read_memory(dut.read, memory)
    cycles = 0

    async def main(ctx):
        nonlocal cycles
        p, r = dut.ppu_cfg, dut.rdma_cfg
        pad35 = shape["pad_value"] & (1 << 19) - 1
        for register, value in (
            (p.DATA_CUBE_IN_WIDTH, width - 1),
            (p.DATA_CUBE_IN_HEIGHT, height - 1),
            (p.DATA_CUBE_IN_CHANNEL, shape["channels"] - 1),
            (p.DATA_CUBE_OUT_WIDTH, out_w - 1),
            (p.DATA_CUBE_OUT_HEIGHT, out_h - 1),
            (p.DATA_CUBE_OUT_CHANNEL, shape["channels"] - 1),
            (r.CUBE_IN_WIDTH, width - 1),
            (r.CUBE_IN_HEIGHT, height - 1),
            (r.CUBE_IN_CHANNEL, shape["channels"] - 1),
        ):
            ctx.set(register.as_value(), value)
        ctx.set(p.OPERATION_MODE_CFG.POOLING_METHOD, shape["method"])
        ctx.set(p.OPERATION_MODE_CFG.FLYING_MODE, 1)
        ctx.set(p.OPERATION_MODE_CFG.NOTCH_ADDR, shape["notch"])
        ctx.set(p.POOLING_KERNEL_CFG.KERNEL_HEIGHT, kh - 1)
        ctx.set(p.POOLING_KERNEL_CFG.KERNEL_WIDTH, kw - 1)
        ctx.set(p.POOLING_KERNEL_CFG.KERNEL_STRIDE_HEIGHT, sh - 1)
        ctx.set(p.POOLING_KERNEL_CFG.KERNEL_STRIDE_WIDTH, sw - 1)
        ctx.set(p.POOLING_PADDING_CFG.PAD_TOP, pt)
        ctx.set(p.POOLING_PADDING_CFG.PAD_LEFT, pl)
        ctx.set(p.PADDING_VALUE_1_CFG.PAD_VALUE_0, pad35)
        ctx.set(p.RECIP_KERNEL_HEIGHT.RECIP_KERNEL_HEIGHT, recip[0])
        ctx.set(p.RECIP_KERNEL_WIDTH.RECIP_KERNEL_WIDTH, recip[1])
        ctx.set(p.DST_BASE_ADDR.DST_BASE_ADDR, target >> 4)
        ctx.set(p.DST_SURF_STRIDE.DST_SURF_STRIDE, out_surf)
        ctx.set(r.SRC_BASE_ADDR.SRC_BASE_ADDR, source)
        ctx.set(r.SRC_LINE_STRIDE.SRC_LINE_STRIDE, shape["line"])
        ctx.set(r.SRC_SURF_STRIDE.SRC_SURF_STRIDE, surf)
        ctx.set(r.DATA_FORMAT.IN_PRECISION, 1)
        begin = bench.cycle
        ctx.set(dut.ppu_control.start, 1)
        ctx.set(dut.rdma_control.start, 1)
        await ctx.tick()
        ctx.set(dut.ppu_control.start, 0)
        ctx.set(dut.rdma_control.start, 0)
        seen = [False, False]
        while not all(seen):
            _, _, a, b = await ctx.tick().sample(dut.ppu_control.done, dut.rdma_control.done)
            seen = [seen[0] or bool(a), seen[1] or bool(b)]
            assert bench.cycle - begin < 60000, f"no end: {shape}"
        cycles = bench.cycle - begin

    bench.run(main)
    assert writes.quiet
    assert memory == expected, shape
    return cycles


@pytest.mark.parametrize("case", range(12))
def test_random_pool(case: int):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    _run(_draw(rng), rng, stall=rng.choice((0.0, 0.3)))


def test_two_by_two_streams_at_one_atom_a_cycle():
    """A 2x2 stride 2 pool takes about one cycle an input atom once it runs."""
    shape = {
        "kernel": (2, 2), "stride": (2, 2), "pad": (0, 0), "size": (16, 32), "out": (8, 16),
        "channels": 16, "method": 1, "line": 32, "notch": 0, "pad_value": -128,
    }  # fmt: skip
    assert _run(shape, random.Random(1), stall=0.0) < 16 * 32 * 1.5
