"""What holds for all tests of blocks: assertions of the RTL are checked, and every simulation ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from amaranth.hdl import Fragment, Module, Value
from amaranth.sim import core as simulator

from rkcosim.rtl.assertions import Assertions
from tests import extent

CYCLES = {
    "test_array": 600,
    "test_atom_reader": 2_500,
    "test_atom_reader::test_random_runs": 8_800,
    "test_atom_writer": 1_200,
    "test_bus": 900,
    "test_bus::test_every_block_gets_its_accesses_of_both_initiators": 2_200,
    "test_cbuf": 600,
    "test_cbuf::test_random_traffic": 2_300,
    "test_checks": 1_400,
    "test_cna_argb": 1_200,
    "test_cna_argb::test_random_images": 2_900,
    "test_cna_argb::test_streams_of_every_length": 1_800,
    "test_cna_convert": 400,
    "test_cna_decompress": 900,
    "test_cna_decompress::test_each_of_several_tasks_is_reported": 2_700,
    "test_cna_decompress::test_the_first_code_of_a_string": 2_300,
    "test_cna_feature": 1_100,
    "test_cna_feature::test_sizes_at_their_limit": 3_100,
    "test_cna_feature::test_random_cubes": 2_300,
    "test_cna_feature::test_named_cubes": 1_800,
    "test_cna_weight": 1_400,
    "test_co_work": 1_500,
    "test_co_work::test_partner_that_hangs": 75_200,
    "test_co_work::test_the_same_in_both": 33_600,
    "test_co_work::test_what_a_core_shows_in_each_cycle": 4_500,
    "test_co_work::test_tasks_start_when_all_have_ended": 3_300,
    "test_co_work::test_tasks_of_one_core_in_between": 2_900,
    "test_core_block": 1_200,
    "test_core_block::test_missing_groups": 5_400,
    "test_core_block::test_drain": 2_500,
    "test_counters": 1_100,
    "test_csc": 4_500,
    "test_csc::test_random_with_stalls": 6_800,
    "test_ddma": 700,
    "test_ddma::test_random_traffic_of_all_clients": 3_500,
    "test_dpu": 1_000,
    "test_dpu::test_diagnostics": 3_700,
    "test_dpu::test_random_tasks": 2_900,
    "test_dpu::test_narrowed_division": 1_600,
    "test_dpu_ew": 1_100,
    "test_dpu_ew::test_the_converter": 2_700,
    "test_dpu_ew::test_stages_that_are_off": 2_400,
    "test_dpu_ew::test_the_multiplier": 2_000,
    "test_dpu_ew::test_floats_pass_and_use_the_operand_elsewhere": 1_900,
    "test_dpu_maximum": 300,
    "test_dpu_maximum::test_rows_of_maxima": 1_500,
    "test_dpu_pipe": 800,
    "test_dpu_pipe::test_rates": 2_000,
    "test_dpu_pipe::test_every_float_operation": 2_000,
    "test_dpu_rdma": 900,
    "test_dpu_rdma_types": 1_900,
    "test_dpu_rdma_types::test_reserved_modes": 3_400,
    "test_dpu_writer": 1_200,
    "test_dpu_writer::test_output_types": 1_800,
    "test_float32": 300,
    "test_float32::test_divider": 12_800,
    "test_float32::test_half_divider": 6_400,
    "test_interrupt": 1_200,
    "test_list_fetch": 5_300,
    "test_list_fetch::test_random_lists": 16_900,
    "test_pc_dma": 600,
    "test_pc_dma::test_chain_of_tasks_with_a_dangling_link": 3_600,
    "test_pc_dma::test_a_list_longer_than_the_fifo": 2_400,
    "test_pc_faults": 800,
    "test_pc_faults::test_a_kick_that_cannot_start_is_reported": 1_800,
    "test_pc_groups": 1_300,
    "test_pc_groups::test_a_waiting_write_lets_the_host_through_and_ends_with_the_block": 1_900,
    "test_pc_status": 300,
    "test_pc_status::test_status_tells_the_first_and_the_last_task_apart": 3_300,
    "test_ppu": 1_900,
    "test_ppu::test_random_pools": 12_000,
    "test_ppu::test_without_floats": 6_000,
    "test_regfile": 900,
    "test_regfile::test_random_against_twin": 4_500,
    "test_write_buffer": 1_400,
}
"""Cycles after which a simulation of a file's tests counts as hung, or of one test, as `test_csc::test_case`.

They are one and a half times as many as the longest one takes in `make test`, so that a hang costs little
time. Tests that `make test` leaves out, and all tests of `make test-all`, whose loops are longer, have ten
times as many.
"""

OTHERS = 3_000
"""Cycles of the simulations of other files."""

_EDGES = 2
"""Steps of Amaranth's simulator in a cycle of a design with one clock."""


class _OfBlocks(Assertions):
    """Only the assertions about what a block does, not those about what its bench does."""

    def claim(self, m: Module, condition: Value, text: str, given: bool) -> None:
        if not given:
            super().claim(m, condition, text, given)


class _Checked:
    """Stands for `Fragment` in Amaranth's simulator, which elaborates every design without a platform."""

    def __init__(self, platform: Assertions) -> None:
        self._platform = platform

    def get(self, design: Any, platform: object) -> Fragment:
        return Fragment.get(design, self._platform)


@pytest.fixture(autouse=True)
def assertions(request: pytest.FixtureRequest) -> Iterator[None]:
    """Elaborate what a test simulates with the assertions of the RTL (rtl/assertions.py).

    A test, or a file, with the mark `withdraws` does not keep what it offers to a block until that takes it.
    """
    platform = _OfBlocks() if request.node.get_closest_marker("withdraws") else Assertions()
    with mock.patch.object(simulator, "Fragment", _Checked(platform)):
        yield


@pytest.fixture(autouse=True)
def ends(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test whose simulation takes more cycles than `CYCLES` has for it: it hangs."""
    file, test = request.node.path.stem, getattr(request.node, "originalname", request.node.name)
    limit = CYCLES.get(f"{file}::{test}", CYCLES.get(file, OTHERS))
    if extent.everything() or request.node.get_closest_marker("heavy"):
        limit *= 10

    def run(self: simulator.Simulator) -> None:
        steps = 0
        while self.advance():
            if (steps := steps + 1) > _EDGES * limit:
                pytest.fail(f"the simulation has not ended after {limit} cycles")

    with mock.patch.object(simulator.Simulator, "run", run):
        yield
