"""Layers cut into rows for two and three cores, linked from layer to layer with no host in between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rkcosim.driver import Driver, DriverTimeout
from rkcosim.engines import open_engine
from rkcosim.golden.task import GoldenNpu
from tests.makers.co_working import MODES, Network

MAX_CYCLES = 2_000_000
CUTS = {2: (2, 15), 3: (2, 5, 18)}
"""The last core has most of the rows: without synchronisation the others finish long before it."""


@pytest.fixture(params=["verilator", "golden"])
def device(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "golden":
        yield GoldenNpu(3, strict=False)
        return
    with open_engine(cores=3, on_diagnostic="go on") as engine:
        yield engine


def network(device: Any, cores: int, layers: int, **more: int) -> Network:
    return Network(Driver(device), CUTS[cores], layers, **more)


@pytest.mark.parametrize("cores", [2, 3])
def test_linked_layers(device: Any, cores: int) -> None:
    """Rows of the neighbour are complete when the next layer reads them."""
    net = network(device, cores, 5)
    chains = [[net.part(n, core, MODES[cores]) for n in range(5)] for core in range(cores)]
    net.driver.submit(net.job(chains, max_cycles=MAX_CYCLES))
    assert net.wrong() == []
    assert not device.diagnostics()
    if device.has_cycles:
        log = [[r for r in device.task_log() if r.core == core] for core in range(cores)]
        for task in range(4):
            ended = max(records[task].end for records in log)
            assert all(records[task + 1].start >= ended for records in log)
            assert all(records[task + 1].start <= ended + 96 for records in log)


@pytest.mark.parametrize("cores", [2, 3])
def test_without_lock_step_rows_are_wrong(device: Any, cores: int) -> None:
    """The same chains with NN_MODE 0: a core reads rows that its neighbour has not written."""
    net = network(device, cores, 5)
    chains = [[net.part(n, core, 0) for n in range(5)] for core in range(cores)]
    net.driver.submit(net.job(chains, max_cycles=MAX_CYCLES))
    assert net.wrong()


def test_nodes_that_one_core_has(device: Any) -> None:
    """As the vendor links them: co-working layers, a pooling task on each core, a layer that only core 0 has,
    and co-working layers again.
    """
    net = network(device, 3, 5)
    chains = []
    for core in range(3):
        chain = [net.part(0, core, 2), net.part(1, core, 2), net.pool(core)]
        chain += [net.whole(2)] if core == 0 else []
        chains.append([*chain, net.part(3, core, 2), net.part(4, core, 2), net.pool(core)])
    net.driver.submit(net.job(chains, max_cycles=MAX_CYCLES))
    assert net.wrong() == []


def test_kernels_and_rows_in_one_chain(device: Any) -> None:
    """Layers divided by rows and by kernels belong to one group: only the number of cores matters."""
    net = network(device, 2, 4)
    chains = [[net.part(n, core, (1, 4)[n % 2]) for n in range(4)] for core in range(2)]
    net.driver.submit(net.job(chains, max_cycles=MAX_CYCLES))
    assert net.wrong() == []


def test_a_core_alone(device: Any) -> None:
    """A chain of one core with NN_MODE ends without the others."""
    net = network(device, 2, 3)
    net.driver.submit(net.job([[net.rows(n, (0, net.height), 1) for n in range(3)]], max_cycles=MAX_CYCLES))
    assert net.wrong() == []


def test_a_core_with_more_tasks(device: Any) -> None:
    """It continues alone when its partner has no more tasks."""
    net = network(device, 2, 3)
    chains = [[net.part(0, 0, 1), net.whole(1), net.rows(2, (0, net.height), 1)], [net.part(0, 1, 1)]]
    net.driver.submit(net.job(chains, max_cycles=MAX_CYCLES))
    assert net.wrong() == []


def test_what_a_core_waits_for(device: Any) -> None:
    """A partner never ends: the job times out, and the message names the waiting core and its partner."""
    net = network(device, 2, 3)
    chains = [[net.part(n, core, 1) for n in range(3)] for core in range(2)]
    chains[1][1].set("CNA", "WEIGHT_SIZE0", WEIGHT_BYTES=64)
    with pytest.raises(DriverTimeout) as caught:
        net.driver.submit(net.job(chains, max_cycles=200_000))
    assert "PC waits at co-working task 3 for core 1" in str(caught.value)


def test_same_cycles_however_simulated() -> None:
    """Windows, threads, sleeping cores and a snapshot do not change cycles and bytes."""
    logs = []
    for threads, sleeps, window in ((1, True, 0), (2, True, 0), (1, False, 0), (1, True, 1), (1, True, 8)):
        with open_engine(cores=3, on_diagnostic="go on", threads=threads) as engine:
            engine.lib.rk_may_sleep(engine.opened(), int(sleeps))
            engine.lib.rk_window(engine.opened(), window)
            net = network(engine, 3, 3)
            chains = [[net.part(n, core, 2) for n in range(3)] for core in range(3)]
            net.driver.submit(net.job(chains, max_cycles=MAX_CYCLES))
            assert net.wrong() == []
            logs.append([(r.core, r.task, r.start, r.end) for r in engine.task_log()])
    assert all(log == logs[0] for log in logs) and len(logs[0]) == 9


def test_patience() -> None:
    """After the patience a core continues, and a diagnostic names the missing core."""
    with open_engine(cores=2, on_diagnostic="go on") as engine:
        engine.lib.rk_patience(engine.opened(), 4096, 1 << 17)
        net = network(engine, 2, 3)
        chains = [[net.part(n, core, 1) for n in range(3)] for core in range(2)]
        chains[1][1].set("CNA", "WEIGHT_SIZE0", WEIGHT_BYTES=64)
        with pytest.raises(DriverTimeout):
            net.driver.submit(net.job(chains, max_cycles=400_000))
        (found,) = [d for d in engine.diagnostics() if d.code == "CORE_MISSING"]
        assert (found.core, found.register) == (0, "CNA.CONV_CON2")
        assert "core 1, from co-working task 3 on" in str(found)
        assert len([r for r in engine.task_log() if r.core == 0 and r.end is not None]) == 3
