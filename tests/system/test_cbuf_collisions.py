"""No result depends on what CBUF returns for an atom that is written in the cycle of the read.

Block RAMs of some FPGAs return anything then. Other atoms of the same entry may be written in that cycle.
"""

# No postponed annotations here: Amaranth reads the members of a component from the annotations.

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
from amaranth.hdl import Cat, Fragment, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In
from amaranth.sim import Simulator

from rkcosim.engines import open_engine
from rkcosim.rtl.core import NpuCore
from rkcosim.rtl.layouts import CbufFill, CbufReads
from rkcosim.rtl.npu import cna
from rkcosim.rtl.npu.cbuf import ATOM_BITS, ENTRY_BITS, Cbuf
from rkcosim.spec.config import RK3588, SMALL, NpuConfig
from rkcosim.verify.conformance.groups import GROUPS, draw_case
from rkcosim.verify.conformance.runner import Runner
from tests import seeds

pytestmark = pytest.mark.heavy  # another build of the core

SEED = seeds.seed(__name__)
TASKS = 40
"""Tasks of each group."""

COLUMNS = ENTRY_BITS // ATOM_BITS


class Spoiling(wiring.Component):
    """CBUF that returns inverted bits for an atom that is written in the cycle of the read.

    Members
    -------
    feature_fill, weight_fill, reads : as for `Cbuf`.
    """

    feature_fill: In(stream.Signature(CbufFill))
    weight_fill: In(stream.Signature(CbufFill))
    reads: In(CbufReads())

    def __init__(self, cfg: NpuConfig) -> None:
        self._inner = Cbuf(cfg)
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.inner = inner = self._inner
        for name in ("feature_fill", "weight_fill", "reads"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(inner, name))
        by_weights = self.weight_fill.valid & self.weight_fill.ready
        fill, valid = Signal(CbufFill), Signal()
        m.d.comb += [
            valid.eq(by_weights | (self.feature_fill.valid & self.feature_fill.ready)),
            fill.eq(Mux(by_weights, self.weight_fill.payload, self.feature_fill.payload)),
        ]

        def written(entry: Any) -> Any:
            """A bit for each atom of an entry: it is written in this cycle."""
            first = [(entry == fill.entry) & (fill.column == column) for column in range(COLUMNS)]
            second = [
                fill.two & (entry == fill.entry2) & (fill.column2 == column) for column in range(COLUMNS)
            ]
            return Cat(valid & (one | other) for one, other in zip(first, second, strict=True))

        reads, weights = self.reads, self.reads.weights
        both = Cat(written(weights.entry0), Mux(weights.column != 0, written(weights.entry1), 0))
        for name, atoms in (
            ("feature0", written(reads.feature0.entry)),
            ("feature1", written(reads.feature1.entry)),
            ("weights", (both >> weights.column)[:COLUMNS]),
        ):
            outer, within, spoilt = getattr(reads, name), getattr(inner.reads, name), Signal(COLUMNS)
            with m.If(outer.en):
                m.d.sync += spoilt.eq(atoms)
            m.d.comb += outer.data.eq(within.data ^ Cat(bit.replicate(ATOM_BITS) for bit in spoilt))
        return m


class SpoiltCore(NpuCore):
    """A core with `Spoiling` in place of CBUF."""

    def elaborate(self, platform: object) -> Any:
        with patch.object(cna, "Cbuf", Spoiling):
            return Fragment.get(super().elaborate(platform), platform)


def make(*, external_cell: bool) -> NpuCore:
    return SpoiltCore(RK3588, external_cell=external_cell)


def test_colliding_atoms_are_inverted_and_no_others() -> None:
    """A check of the check: an entry is read while its second atom is written, and once more."""
    dut = Spoiling(SMALL)
    seen = []

    async def bench(ctx: Any) -> None:
        fill = {"data": (1 << ATOM_BITS) - 1, "entry": 5, "column": 1}
        ctx.set(dut.feature_fill.payload, fill)
        ctx.set(dut.feature_fill.valid, 1)
        feature, weights = dut.reads.feature0, dut.reads.weights
        for port, value in (
            *((feature.en, 1), (feature.entry, 5), (weights.en, 1)),
            *((weights.entry0, 5), (weights.entry1, 6), (weights.column, 1)),
        ):
            ctx.set(port, value)
        for _ in range(2):
            await ctx.tick()
            ctx.set(dut.feature_fill.valid, 0)
            seen.append((ctx.get(dut.reads.feature0.data), ctx.get(dut.reads.weights.data)))

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    atom = (1 << ATOM_BITS) - 1
    assert seen == [(atom << ATOM_BITS, atom)] * 2  # inverted zeros, then what was written


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with open_engine("verilator", cores=1, design=make, on_diagnostic="go on") as device:
        yield Runner(device)


@pytest.mark.parametrize("group", GROUPS)
def test_no_result_depends_on_what_a_collision_returns(runner: Runner, group: str) -> None:
    runner.reset()
    done = index = 0
    while done < TASKS:
        case = draw_case(group, SEED, index)
        outcome = runner.run(case)
        assert outcome.ok, f"seed {SEED}, case {index}: {outcome.text()}"
        done += case.tasks
        index += 1
