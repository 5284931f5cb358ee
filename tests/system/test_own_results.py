"""Tasks that write where they read: the order of reads and writes on the RTL and in the golden model."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from rkcosim.driver.core_port import Kick
from rkcosim.golden.task import GoldenNpu
from rkcosim.verify.crosscheck.compare import compare_images, copy_memory
from rkcosim.verify.crosscheck.kick import run_kick
from rkcosim.verify.crosscheck.program import link
from tests.makers.field_programs import BASE, COMMANDS, SIZE, vector_device
from tests.makers.int8_tasks import flying_task

ATOM = 16


@pytest.fixture(scope="module")
def npu() -> Iterator:
    device = vector_device("rtl")
    yield device
    device.close()


@pytest.mark.parametrize(
    "width, surfaces, late",
    [(100, 14, True), (100, 4, True), (20, 8, True), (100, 2, False), (4, 8, False), (1, 4, False)],
)
def test_a_copy_whose_last_surface_is_read_where_the_first_one_is_written(
    npu, width: int, surfaces: int, late: bool
) -> None:
    """The geometry of a task of attention in files of the toolkit 2.3.0, which reads 112 channels where 104
    were written and writes behind the 104. The last surface of its input is the first surface of its output:
    a copy's last surface is its first one if that was written before it was read, else what was there. Which
    it is depends on how far the reader is ahead of the writer.
    """
    size = width * ATOM
    source = np.random.default_rng(width).integers(0, 256, (surfaces, size), np.uint8)
    out = BASE + (surfaces - 1) * size
    task = flying_task((ATOM * surfaces, 1, width))
    task.set("DPU", "EW_CFG", EW_BYPASS=1)
    task.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DISABLE=1)
    task.address("DPU_RDMA", "SRC_BASE_ADDR", BASE)
    task.address("DPU", "DST_BASE_ADDR", out)
    chain = link([task], COMMANDS)
    npu.memory.write(BASE, source)
    for address, words in chain.lists:
        npu.memory.write(address, np.array(words, "<u8"))
    models = {order: GoldenNpu(1, memory=copy_memory(npu.memory)) for order in (False, True)}
    models[True].devices[0].late = frozenset([chain.base])
    kick = Kick(chain.base, chain.amount, 1, 0x300)
    assert run_kick(npu, kick, max_cycles=100_000).done
    for order, model in models.items():
        assert run_kick(model, kick).done
        copied = np.frombuffer(model.memory.read(out, surfaces * size), np.uint8).reshape(surfaces, size)
        assert np.array_equal(copied[:-1], source[:-1])
        assert np.array_equal(copied[-1], source[0] if order else source[-1])
    assert compare_images(npu.memory, models[late].memory, [(BASE, SIZE)]) is None
    assert compare_images(npu.memory, models[not late].memory, [(BASE, SIZE)]) is not None
