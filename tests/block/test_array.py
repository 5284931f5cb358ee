"""Array cell: RTL against the naive model, and against the C++ cell in every cycle."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import numpy as np
import pytest
from amaranth.back import rtlil

from rkcosim.engines.verilog import write_verilog
from rkcosim.rtl.layouts import ACC_BITS
from rkcosim.rtl.npu.array import CELL_LATENCY, CELL_MODULE, ArrayCell, ArrayCellPorts
from tests import seeds
from tests.block.cell_program import CELL, ROOT, cell_program
from tests.extent import extent
from tests.simulation import shared, simulation
from tests.twins import array_model
from tests.twins.array_model import INT4, TF32, ArrayModel, CellInputs

SEED = seeds.seed(__name__)


# ---------------------------------------------------------------------- RTL = twin


def as_int(values: np.ndarray) -> int:
    return int.from_bytes(np.asarray(values, np.int8).tobytes(), "little")


def drive(ctx, dut, i: CellInputs) -> None:
    scalars = {name: getattr(i, name) for name in vars(i) if name[:2] != "d_" and not name.endswith("data")}
    data = {name: as_int(getattr(i, name)) for name in ("w_data", "f_data") if getattr(i, name) is not None}
    ctx.set(dut.i, scalars | data)
    for name in ("d_valid", "d_bank", "d_slot", "d_octet"):
        ctx.set(getattr(dut, name), getattr(i, name))


def compare(ctx, dut, twin: ArrayModel) -> None:
    assert [ctx.get(dut.o_acc[lane]) for lane in range(8)] == twin.o_acc.tolist()
    assert [ctx.get(dut.o_sum[lane]) for lane in range(8)] == twin.o_sum.tolist()


def run_cell(stimulus) -> ArrayModel:
    """Apply one `CellInputs` per cycle to RTL and model, and compare their outputs in every cycle."""
    dut, twin = shared(ArrayCell), ArrayModel()

    async def bench(ctx):
        for i in stimulus:
            drive(ctx, dut, i)
            await ctx.tick()
            twin.step(i)
            compare(ctx, dut, twin)

    simulation(dut).run(bench)
    return twin


MODES = [(p, d) for p in array_model.KERNELS for d in (0, 1) if not d or p not in (INT4, TF32)]
"""Precision and depthwise flag of all modes of the cell."""


def random_bytes(numbers: np.random.Generator, precision: int, count: int, spread: float) -> np.ndarray:
    """Elements of a type as int8 bytes; float exponents differ by up to `spread`, some values are special."""
    raw = numbers.integers(0, 256, count, dtype=np.uint8)
    if precision not in array_model.FLOATS:
        extreme = numbers.random(count) < 0.2
        raw[extreme] = numbers.choice(np.array([0x80, 0x7F, 0xFF, 0], np.uint8), extreme.sum())
        return raw.view(np.int8)
    kind = array_model.FLOATS[precision]
    size = np.uint32 if precision == TF32 else np.uint16
    bits = raw.view(size).astype(np.int64)
    top = (1 << kind.exponent) - 1
    low = numbers.integers(0, max(1, int(top * (1 - spread))))
    exponent = numbers.integers(low, low + max(1, int(top * spread)), len(bits))
    place = kind.fraction + kind.ignored
    bits = (bits & ~(top << place)) | (exponent << place)
    special = numbers.random(len(bits)) < 0.01
    bits[special] = numbers.choice(
        np.array([top << place, (top << place) | 1 << (place - 1), 0]), special.sum()
    )
    return bits.astype(size).view(np.int8)


def random_stimulus(rng: random.Random, phases: int):
    """Draw phases of one mode each, all modes in turn; `f_swap`, `f_first` and pauses follow the rules."""
    numbers = np.random.default_rng(rng.getrandbits(32))
    last_use: dict[tuple[int, int], int] = {}
    cycle = 0
    order = rng.sample(MODES, len(MODES))
    for phase in range(phases):
        precision, depthwise = order[phase % len(order)]
        row, fresh, swapped = array_model.ROW_BYTES[precision], set(), False
        spread = rng.choice([0.05, 0.1, 0.3, 1.0])
        for n in range(16):  # a whole tile; later ones differ from it here and there
            i = CellInputs(precision=precision, depthwise=depthwise, w_stride=2, w_index=n, w_valid=1)
            i.w_data = random_bytes(numbers, precision, 64, spread)
            yield i
            cycle += 1
        for _ in range(rng.randint(*extent((5, 9), (30, 60)))):
            i = CellInputs(precision=precision, depthwise=depthwise)
            i.w_stride = 2 if depthwise else rng.randint(0, (row // 16).bit_length() - 1)
            i.w_index = rng.randrange(1024 // row * (16 << i.w_stride) // 64 if not depthwise else 2)
            i.w_valid, i.f_valid = rng.random() < 0.7, rng.random() < 0.7
            i.w_data = random_bytes(numbers, precision, 64, spread)
            i.f_data = random_bytes(numbers, precision, 128, spread)
            i.f_bank, i.f_slot = rng.randrange(2), rng.randrange(16)
            key = (i.f_bank, i.f_slot)
            i.f_valid = i.f_valid and cycle - last_use.get(key, -99) >= 16
            i.f_swap = i.f_valid and (rng.random() < 0.2 or not swapped)
            i.f_first = rng.random() < 0.2 or key not in fresh
            if i.f_valid:
                last_use[key], swapped = cycle, True
                fresh.add(key)
            i.d_valid = rng.random() < 0.7
            i.d_bank, i.d_slot, i.d_octet = rng.randrange(2), rng.randrange(16), rng.randrange(8)
            if rng.random() < 0.5 and last_use:
                i.d_bank, i.d_slot = rng.choice(list(last_use))
                i.d_octet = rng.randrange(2)
            yield i
            cycle += 1
        for _ in range(CELL_LATENCY):
            yield CellInputs(precision=precision, depthwise=depthwise)
            cycle += 1


def test_twin_random():
    """Types, modes, swaps and drains are random; the outputs are equal in every cycle."""
    print(f"seed {SEED}")
    run_cell(random_stimulus(random.Random(SEED), extent(len(MODES), 13)))


def test_swap_and_latency():
    """Chunk 0 of the next tile may be loaded in the cycle of the swap: the pixel still uses the old tile.

    After CELL_LATENCY cycles a slot may be drained.
    """
    assert array_model.LATENCY == CELL_LATENCY
    ones, twos = np.full(64, 1, np.int8), np.full(64, 2, np.int8)
    pixel = {"f_valid": 1, "f_first": 1, "f_data": np.full(128, 1, np.int8)}
    tile = [CellInputs(w_valid=1, w_index=n, w_data=ones) for n in range(16)]
    swap = [CellInputs(f_swap=1, f_slot=0, w_valid=1, w_index=0, w_data=twos, **pixel)]
    more = [CellInputs(f_slot=1, **pixel), CellInputs(f_slot=2, f_swap=1, **pixel)]
    wait = [CellInputs() for _ in range(CELL_LATENCY - 1)]
    twin = run_cell(tile + swap + more + wait + [CellInputs(d_valid=1, d_slot=n) for n in (0, 1, 2)])
    assert twin.acc[0, :3, :4].tolist() == [[32] * 4, [32] * 4, [64, 64, 32, 32]]
    assert twin.o_acc.tolist() == [64, 64] + [32] * 6


# ---------------------------------------------------------------------- RTL = C++


@pytest.fixture(scope="module")
def compare_cells(tmp_path_factory) -> Path:
    """The program of cell_compare.cpp, which contains both cells."""
    work = tmp_path_factory.mktemp("cells")
    text = rtlil.convert(ArrayCellPorts(), name=CELL_MODULE, emit_src=False)
    models = {"Vrtl": [write_verilog(text, work)], "Vcpp": [CELL / "npu_array_cell_cpp.sv"]}
    bench = ROOT / "tests" / "block" / "cell_compare.cpp"
    return cell_program(work, CELL_MODULE, models, CELL.glob("npu_cell*.cpp"), bench)


def compared(program: Path, seed: int, cycles: int, accumulations: int, precisions: list[int]) -> None:
    arguments = [str(n) for n in (seed, cycles, accumulations, *precisions)]
    run = subprocess.run([program, *arguments], capture_output=True, text=True)
    print(run.stdout)
    assert run.returncode == 0, run.stdout


def test_cpp_random(compare_cells):
    """RTL and C++ have the same outputs in every cycle of random stimulus."""
    compared(compare_cells, SEED, 150_000, 0, list(array_model.KERNELS))


def test_cpp_wraps_at_48_bits(compare_cells):
    """Largest int16 products until the accumulators wrap."""
    accumulations = 1 << 13
    assert accumulations * 32 << 30 >= 1 << (ACC_BITS - 1)
    compared(compare_cells, 1, 0, accumulations + 7, [])
