"""Drawn tasks that use every lane of the array cell, data of the whole range, and all bits of addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from rkcosim.engines import DramConfig, open_engine
from rkcosim.verify.conformance.arena import Bytes
from rkcosim.verify.conformance.case import Case, enable_write, pointer_write, register_writes
from rkcosim.verify.conformance.groups import draw_case
from rkcosim.verify.conformance.runner import Runner
from rkcosim.verify.conformance.values import STYLES

SEED = 35880

WHOLE_GROUPS = {
    **{"conv.channels kind": 3, "conv.channels": 2, "conv.kernels kind": 3, "conv.kernels": 1},
    **{"conv.size_y": 12, "conv.size_x": 12, "conv.flat": 0, "conv.kernel_square": 1, "conv.budget": 5},
    **{"conv.strided": 0, "conv.dilated": 0, "powers of two": 0, "conv.clip": 0},
}
"""Choices of a convolution with all channels and kernels of the cell, and some hundred pixels."""

KERNEL_3, KERNEL_6 = {"conv.kernel_y": 3}, {"conv.kernel_y": 8}

EVERY_BIT = {"features style": 3, "features shift": 0, "weights style": 3, "weights shift": 0}
"""Choices of integers of the whole range."""

ENDS = {"features style": 9, "weights style": 9}
"""Choices of integers that are the largest or the smallest of the type."""


def _floats(features: str, weights: str, finite: int = 1) -> dict[str, int]:
    styles = {"features style": STYLES.index(features), "weights style": STYLES.index(weights)}
    return styles | {"features finite": finite, "weights finite": finite}


DATA = {
    "int": (KERNEL_3 | EVERY_BIT, KERNEL_3 | ENDS),
    "float": (
        KERNEL_6 | _floats("bits", "bits"),
        KERNEL_3 | _floats("bits", "bits", 0),
        KERNEL_3 | _floats("wide", "tiny"),
        KERNEL_3 | _floats("spread", "normal"),
    ),
}

CELL_GROUPS = [
    *(f"conv {name}" for name in ("int4", "int8", "int16", "fp16", "bf16", "tf32")),
    *(f"depthwise {name}" for name in ("int8", "int16", "fp16", "bf16")),
]

BASES = (0xFFD5_5000, 0x002A_A000)
"""Places of all memory of a case that differ in every bit from 12 on."""

BUSY = DramConfig(read_latency=900, write_latency=700, jitter=300, core_bytes_per_cycle=3.0)
"""A memory so slow and irregular that every buffer runs full or empty."""

FAST = DramConfig(
    read_latency=2,
    write_latency=1,
    peak_bytes_per_cycle=256,
    core_bytes_per_cycle=64,
    port_bytes_per_cycle=32,
)
"""A memory that never makes a block wait."""


@pytest.fixture(scope="module")
def exact_runner() -> Iterator[Runner]:
    with open_engine("verilator", exact=True, cores=1, on_diagnostic="go on") as device:
        yield Runner(device)


def _check(runner: Runner, group: str, index: int, forced: dict[str, int], base: int | None = None) -> None:
    places = {} if base is None else {"base": base}
    outcome = runner.run(draw_case(group, SEED, index, forced, **places))
    assert outcome.ok, outcome.text()


@pytest.mark.parametrize("group", CELL_GROUPS)
def test_every_lane_with_data_of_the_whole_range(exact_runner: Runner, group: str) -> None:
    kind = "int" if "int" in group else "float"
    for index, data in enumerate(DATA[kind]):
        _check(exact_runner, group, index, WHOLE_GROUPS | data)


WORDS = {
    # infinities, NaN, zero, the two largest numbers
    "fp16": (np.uint16, (0x7C00, 0xFC00, 0x7E00, 0, 0x7BFF, 0xFBFF)),
    "bf16": (np.uint16, (0x7F80, 0xFF80, 0x7FC0, 0, 0x7F7F, 0xFF7F)),
    "int16": (np.uint16, (0, 0, 0, 0, 0x7FFF, 0x8000)),
    "tf32": (np.uint32, (0x7F800000, 0xFF800000, 0x7FC00000, 0, 0x7F7FE000, 0xFF7FE000)),
}


def _special(raw: Bytes, kind: str, rng: np.random.Generator) -> Bytes:
    """Replace half of the elements of a float type by infinities, NaNs and zeros."""
    dtype, words = WORDS[kind]
    values = raw.view(dtype).copy()
    hits = rng.random(values.size) < 0.5
    values[hits] = rng.choice(np.array(words[:4], dtype), int(hits.sum()))
    return values.view(np.uint8)


def _largest(raw: Bytes, kind: str, rng: np.random.Generator) -> Bytes:
    """Replace all elements by the largest number, first with one sign, then with the other."""
    dtype, words = WORDS[kind]
    values = np.full(raw.size // dtype().itemsize, words[4], dtype)
    values[values.size // 2 :] = words[5]
    return values.view(np.uint8)


def _with_data(case: Case, kind: str, change: Callable[[Bytes, str, np.random.Generator], Bytes]) -> Case:
    """Change features and weights, or the input of a pool, of a type."""
    names = {address: name for address, _, name in case.arena.names}
    rng = np.random.default_rng(SEED)
    case.arena.placed = [
        (address, change(raw, kind, rng) if names[address] in INPUTS else raw)
        for address, raw in case.arena.placed
    ]
    return case


INPUTS = ("features", "weights", "pool input")

SMALL = WHOLE_GROUPS | KERNEL_3 | {"conv.size_y": 8, "conv.size_x": 8}


@pytest.mark.parametrize(
    "groups",
    [
        ("conv fp16", "conv bf16", "conv fp16", "conv tf32", "conv fp16"),
        ("depthwise fp16", "depthwise bf16", "depthwise fp16"),
    ],
    ids=["direct", "depthwise"],
)
@pytest.mark.parametrize("change", [_special, _largest], ids=["special values", "largest values"])
def test_float_types_in_turn_with_ends_of_their_range(
    exact_runner: Runner, groups: tuple[str, ...], change: Callable[[Bytes, str, np.random.Generator], Bytes]
) -> None:
    for index, group in enumerate(groups):
        forced = SMALL | _floats("bits", "bits")
        kind = group.split()[-1]
        outcome = exact_runner.run(_with_data(draw_case(group, SEED, index, forced), kind, change))
        assert outcome.ok, outcome.text()


LARGE_AVERAGE = {
    **{"pool.method": 0, "pool.square": 1, "pool.kernel_y": 16, "pool.stride_y": 8, "pool.channels": 40},
    **{"pool.height": 23, "pool.width": 23, "pool.padded_y": 1, "pool.pad_y": 7, "pool.any_pad": 1},
}
"""Choices of an average over windows of 16 x 16 with padding."""


@pytest.mark.parametrize("change", [_special, _largest], ids=["special values", "largest values"])
@pytest.mark.parametrize("kind", ["int16", "fp16"], ids=["whole numbers", "halves"])
def test_averages_of_large_windows_with_edges_of_the_range(
    kind: str, change: Callable[[Bytes, str, np.random.Generator], Bytes]
) -> None:
    with open_engine(cores=1, on_diagnostic="go on") as device:
        runner = Runner(device)
        for index, pad in enumerate((-(1 << 18), (1 << 18) - 1, 1)):
            forced = LARGE_AVERAGE | {"type": 1 if kind == "int16" else 2}
            forced |= {"pool.far_pad": 1, "pool.pad19": pad}
            outcome = runner.run(_with_data(draw_case("pool limits", SEED, index, forced), kind, change))
            assert outcome.ok, outcome.text()


@pytest.mark.parametrize("dram", [BUSY, FAST], ids=["slow memory", "fast memory"])
def test_every_reader_and_writer_at_far_addresses(dram: DramConfig) -> None:
    with open_engine(cores=1, on_diagnostic="go on", dram=dram) as device:
        runner = Runner(device)
        for index, group in enumerate(ELSEWHERE):
            for base in BASES:
                _check(runner, group, index, {}, base)


WILD = (
    *("conv int8", "argb 16 bit", "deconvolution", "depthwise fp16", "compressed weights", "large kernels"),
    *("flying integers", "flying floats", "lut floats", "packets", "unpooling", "ew floats, memory"),
    *("pool int8", "pool fp16", "dpu to ppu", "matrix output"),
)
"""Groups of which each task is run once with wild values in its registers."""

SHARES = (0.1, 0.4, 1.0)
"""Shares of the registers that get wild values."""

WILD_CYCLES = 1500


def _wild_writes(case: Case, share: float, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Return the host writes of the first task, some of its registers with random bits, and the start."""
    task = case.plan.task
    writes = [pointer_write(block, POINTER_PP_CLEAR=1, EXECUTER_PP_CLEAR=1) for block in task.blocks]
    for offset, value in register_writes(task, 0):
        wild = int(rng.integers(0, 1 << 32)) if rng.random() < share else value
        writes.append((offset, wild))
    return [*writes, enable_write(task)]


def test_a_reset_frees_a_core_with_wild_values_in_its_registers() -> None:
    """Sizes, pitches and addresses of all magnitudes; after the reset the next task has the right bytes."""
    rng = np.random.default_rng(SEED)
    with open_engine(cores=1, on_diagnostic="go on", dram=FAST) as device:
        runner = Runner(device)
        for index, group in enumerate(WILD * len(SHARES)):
            case = draw_case(group, SEED, index)
            runner.load(case)
            for offset, value in _wild_writes(case, SHARES[index % len(SHARES)], rng):
                device.write32(0, offset, value)
            device.run(WILD_CYCLES)
            runner.reset()
            if index % 8 == 7:
                _check(runner, WILD[index // 8], index, {})


ELSEWHERE = (
    *("conv int8", "depthwise fp16", "argb 16 bit", "compressed weights", "flying integers", "flying floats"),
    *("ew floats, memory", "packets", "packets of convolutions", "unpooling", "pool int8", "pool index"),
    *("dpu to ppu", "chains", "slave mode", "large maps", "streamed weights", "matrix output"),
)
"""Groups whose tasks together use every reader and writer of memory."""
