"""Parts of the cocotb package that need no simulator."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("cocotb", reason="cocotb is not installed (pip install 'rkcosim[cocotb]')")

from rkcosim.cocotb import random_streams
from rkcosim.cocotb.runner import cell_files, design
from rkcosim.cocotb.stimulus import fits
from rkcosim.cocotb.values import RegisterValue, words_stream
from rkcosim.spec.config import RK3588, SMALL
from rkcosim.spec.regs import registers
from rkcosim.verify.conformance.groups import draw_case
from tests.makers.small_streams import SOURCE, TARGET
from tests.makers.small_tasks import conv_task, pool_task


def test_the_package_does_not_hide_cocotb():
    code = "import rkcosim.cocotb.agent, cocotb; assert cocotb.__version__; print(cocotb.__file__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "cosim" not in done.stdout


def test_random_streams_repeat_and_fit(monkeypatch):
    first = list(random_streams("conv int8", 1, 3, geometry="small", max_cycles=3000))
    again = list(random_streams("conv int8", 1, 3, geometry="small", max_cycles=3000))
    assert [d.name for d in first] == [d.name for d in again] and len(first) == 3
    for one, two in zip(first, again, strict=True):
        assert all(
            (a.data == b.data).all() for a, b in zip(one.stream.regions, two.stream.regions, strict=True)
        )
        case = draw_case("conv int8", 1, int(one.name.split("/")[1]))
        assert fits(case.plan.tasks, SMALL) and fits(case.plan.tasks, RK3588)
    with pytest.raises(ValueError, match="unknown group 'no such'"):
        next(random_streams("no such", 1, 1))
    monkeypatch.setattr("rkcosim.cocotb.stimulus.TRIES", 3)
    with pytest.raises(ValueError, match="do not fit small in 10 cycles"):
        next(random_streams("pool int8", 1, 1, geometry="small", max_cycles=10))


def test_words_become_a_stream():
    pool = words_stream(pool_task(SOURCE, TARGET, 5, 6).words())
    conv = words_stream(conv_task(SOURCE, SOURCE, TARGET, 4, 5).words())
    assert (pool.kick.interrupt_mask, conv.kick.interrupt_mask) == (0xC00, 0x300)
    with pytest.raises(ValueError, match="no op-enable"):
        words_stream([0, 0])


def test_a_register_value_knows_its_fields():
    item = registers()["DPU"]["S_POINTER"]
    value = RegisterValue(item.offset, item.encode(POINTER=1))
    assert value == 1 and value["POINTER"] == 1
    assert repr(value) == "DPU.S_POINTER 0x00000001 (POINTER=0x1)"
    with pytest.raises(KeyError, match=r"DPU\.S_POINTER has no field NO"):
        value["NO"]


def test_designs_by_name():
    assert design(None).module == "npu_core" and design("cbuf").module == "npu_cbuf"
    with pytest.raises(ValueError, match=r"block must be one of .*cbuf.*, not 'soc'"):
        design("soc")
    assert all(path.suffix in (".sv", ".cpp", ".h") for path in cell_files())
