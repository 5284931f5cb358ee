"""Cycles in a cocotb simulation equal those of the compiled engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rkcosim import open_engine
from rkcosim.cocotb import missing, simulate
from rkcosim.engines.library import DramConfig
from rkcosim.engines.protocol import BuildError
from rkcosim.spec.config import RK3588, SMALL
from tests.makers.small_streams import counted_run, memory_hash, streams

BENCH = Path(__file__).with_name("bench_cycles.py")
SLOW_MEMORY = {
    "peak_bytes_per_cycle": 7.5,
    "port_bytes_per_cycle": 5.0,
    "read_latency": 33,
    "write_latency": 9,
    "jitter": 25,
    "read_outstanding": 3,
    "write_outstanding": 2,
    "client_read_outstanding": 1,
    "client_write_outstanding": 1,
    "seed": 7,
}
"""Every limit of the memory is reached, and latencies are random."""


def expected(config: Any, drams: list[dict[str, Any]], names: list[str]) -> str:
    """Return the engine's results for `bench_cycles.py`."""
    cases = []
    for dram in drams:
        try:
            engine = open_engine(cores=1, config=config, dram=DramConfig(**dram))
        except BuildError as error:
            pytest.skip(str(error))
        with engine:
            begin = engine.cycle
            runs = {name: counted_run(engine, streams()[name]) for name in names}
            counters = engine.counters(0)
            cases.append(
                {
                    "dram": dram,
                    "cycle": begin,
                    "runs": runs,
                    "end": engine.cycle,
                    "memory": memory_hash(engine.memory),
                    "bytes_read": {name: n for name, n in counters.bytes_read.items() if n},
                    "bytes_written": {name: n for name, n in counters.bytes_written.items() if n},
                }
            )
    return json.dumps(cases)


def need(simulator: str) -> None:
    """Skip if a simulator is missing."""
    reason = missing(simulator)
    if reason is not None:
        pytest.skip(reason)


def test_verilator_at_full_geometry(tmp_path):
    need("verilator")
    env = {"RKCOSIM_EXPECTED": expected(RK3588, [{}, SLOW_MEMORY], ["pool", "add", "conv"])}
    assert len(simulate(BENCH, env=env, folder=tmp_path).tests) == 3


def test_icarus_at_small_geometry(tmp_path):
    """These tasks do not use CBUF, so the engine's default geometry has the same cycles."""
    need("icarus")
    env = {"RKCOSIM_EXPECTED": expected(RK3588, [{}], ["pool", "add"])}
    simulate(BENCH, simulator="icarus", geometry="small", cell="none", env=env, folder=tmp_path)


@pytest.mark.heavy
def test_icarus_and_the_engine_at_small_geometry(tmp_path):
    need("icarus")
    env = {"RKCOSIM_EXPECTED": expected(SMALL, [{}, SLOW_MEMORY], ["pool", "add", "conv"])}
    simulate(BENCH, simulator="icarus", geometry="small", env=env, folder=tmp_path)
