"""The performance counters on the RTL: they add up, and agree with trace, event log and task log."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rkcosim import waves
from rkcosim.compiler import LoadedModel, compile_conv_layer, using_cores
from rkcosim.driver import Driver, Job
from rkcosim.engines import BuildError, DramConfig, SocEngine, open_engine, toolchain
from rkcosim.engines.block_counters import BlockCounters, read_counters
from rkcosim.spec.regs import counter_registers
from rkcosim.spec.regs.counters import BASE_ADDRESS, LEVEL_BITS, WINDOW_BYTES, levels, state_blocks
from rkcosim.waves.spec import TraceSpec
from tests.makers.jobs import engine_or_skip, filled, records_of_builders
from tests.makers.small_bench import Bench
from tests.makers.small_tasks import add_task, pool_task

LAYERS: dict[str, dict[str, Any]] = {
    "direct": dict(channels=48, kernels=40, height=7, width=9, kernel=3, pad=1, stride=2),
    "depthwise": dict(channels=80, kernels=80, height=6, width=5, kernel=3, pad=1, depthwise=True),
    "first layer": dict(channels=3, kernels=24, height=20, width=18, kernel=3, pad=1, stride=2),
    "pointwise": dict(channels=512, kernels=96, height=14, width=14),
    "tiled": dict(channels=256, kernels=64, height=40, width=40, kernel=3, pad=1),
}
MACS = {
    "direct": 4 * 5 * 9 * 48 * 40,
    "depthwise": 6 * 5 * 9 * 80,
    "first layer": 10 * 9 * 9 * 3 * 24,
    "pointwise": 14 * 14 * 512 * 96,
    "tiled": 40 * 40 * 9 * 256 * 64,
}
"""Output pixels x taps x channels x kernels (depthwise: x channels)."""

SLOW = DramConfig(jitter=60, seed=3, peak_bytes_per_cycle=12)
CLIENTS = ("FEATURE", "WEIGHT", "MRDMA", "BRDMA", "NRDMA", "ERDMA", "PPU", "PC")


def run_layer(engine: SocEngine, layer: str) -> None:
    model = compile_conv_layer(**LAYERS[layer])
    with LoadedModel(model, Driver(engine, 4_000_000)) as loaded:
        shape = model.inputs[0].shape
        loaded.set_input(0, np.random.default_rng(9).integers(-128, 128, shape).astype(np.int8))
        loaded.run()


def check(engine: SocEngine, core: int = 0) -> BlockCounters:
    """Check that the states add up, and that the engine's other counters are equal."""
    found = engine.block_counters(core)
    assert found.cycles > 0
    assert found.unaccounted() == {}, found.unaccounted()
    own = engine.counters(core)
    written = {f"{client}_write".lower(): n for client, n in own.bytes_written.items()}
    moved = {client.lower(): n for client, n in own.bytes_read.items()} | written
    assert {c: n for c, n in found.bytes.items() if n and c not in ("reads", "writes")} == moved
    assert (found.bytes["reads"], found.bytes["writes"]) == (own.read_requests, own.write_requests)
    assert found.macs["slots"] == own.events.get("mac_slots", 0)
    assert found.macs["pixels"] == own.events.get("mac_pixels", 0)
    for state in ("feature", "weight", "acc"):
        assert found.states["CSC"][state] == own.events.get(f"stall_{state}", 0), state
    assert found.states["CORE"]["dpu"] == own.events.get("stall_dpu", 0)
    log = [task for task in engine.task_log() if task.core == core]
    assert found.tasks["started"] == found.tasks["done"] == len(log)
    assert found.tasks["cycles"] == sum(task.cycles or 0 for task in log)
    if log:
        assert found.tasks["longest"] == max(task.cycles or 0 for task in log)
        assert found.tasks["last_end"] - found.tasks["last_start"] == log[-1].cycles
        done = sum(sum(task.counters.bytes_written.values()) for task in log)
        assert done == found.bytes["dpu_write"] + found.bytes["ppu_write"]
    return found


@pytest.mark.parametrize("layer", LAYERS)
def test_convolutions(layer: str):
    """MACs are those of the layer, and all blocks are included, also with slow memory."""
    for dram in (None, SLOW):
        with engine_or_skip(cores=1, dram=dram) as engine:
            engine.count_blocks()
            run_layer(engine, layer)
            found = check(engine)
        assert found.macs["useful"] == MACS[layer]
        assert found.macs["busy"] == 1024 * found.macs["slots"]
        assert found.levels["read_bursts"] > 1 and found.levels["feature_beats"] > 1
        assert 0 < found.levels["weight_ring"] <= 12 * 2048
        for block in ("PC", "CNA_FEATURE", "CNA_WEIGHT", "CSC", "CORE", "DPU", "DPU_RDMA", "DDMA"):
            assert found.states[block]["busy"] > 0 and found.waits(block) > 0, block
        assert found.states["PPU"]["idle"] == found.cycles


def long_tasks(driver: Driver, height: int, width: int) -> dict[str, Any]:
    """An addition and a pooling that move much data."""
    size = height * width * 16
    left, right, target = (filled(driver, 2 * size, name, n) for n, name in enumerate(("a", "b", "c")))
    return {
        "add": add_task(left.iova, right.iova, target.iova, height, width, "add"),
        "pool": pool_task(left.iova, target.iova, height, width, "pool"),
    }


@pytest.mark.parametrize("kind", ["add", "pool"])
def test_tasks_without_the_array(kind: str):
    with engine_or_skip(cores=1, dram=DramConfig(peak_bytes_per_cycle=2)) as engine:
        engine.count_blocks()
        driver = Driver(engine, max_cycles=1_000_000)
        driver.submit(Job(records_of_builders(driver, [long_tasks(driver, 32, 40)[kind]]), core_mask=1))
        found = check(engine)
        other = engine.task_log()[0]
    assert found.macs["useful"] == found.macs["slots"] == 0
    assert found.states["CSC"]["idle"] == found.cycles
    reader, worker, wait = ("DPU_RDMA", "DPU", "operand") if kind == "add" else ("PPU_RDMA", "PPU", "input")
    # Memory is slow, so every block waits for memory most of the time.
    assert found.states[reader]["memory"] > found.states[reader]["busy"]
    assert found.states[worker][wait] > found.states[worker]["busy"] > 0
    assert other.counters.events["stall_operand"] > other.cycles // 3
    # The level of the event is that of the state, except in cycles in which an octet passes.
    assert abs(other.counters.events["stall_operand"] - found.states[worker][wait]) < 20


def test_three_cores():
    with engine_or_skip(cores=3) as engine, using_cores(3):
        engine.count_blocks()
        run_layer(engine, "pointwise")
        found = [check(engine, core) for core in range(3)]
        engine.run(5000)  # asleep: idle all the time
        later = [engine.block_counters(core) for core in range(3)]
    assert sum(one.macs["useful"] for one in found) == MACS["pointwise"]
    for before, after in zip(found, later, strict=True):
        assert after.unaccounted() == {} and after.cycles == before.cycles + 5000
        assert {s["idle"] - before.states[b]["idle"] for b, s in after.states.items()} == {5000}


def test_counting_changes_nothing_and_sleep_counts():
    """Counters do not change the cycles, and the counts do not depend on whether idle cores are skipped."""
    seen = []
    for counts, may_sleep in ((True, True), (True, False), (False, True)):
        with engine_or_skip(cores=2) as engine:
            engine.lib.rk_may_sleep(engine.opened(), int(may_sleep))
            b = Bench(engine)
            if counts:
                engine.count_blocks()
            first = b.submit(b.conv(), b.add(), b.pool())
            engine.run(3000)
            second = b.submit(b.add(), core=1)
            engine.run(3000)
            seen.append(((first, second, engine.cycle), [engine.block_counters(core) for core in range(2)]))
    assert seen[0][0] == seen[1][0] == seen[2][0]
    assert seen[0][1] == seen[1][1]
    assert seen[2][1][0].cycles == 0


def test_a_core_that_hangs_and_one_that_is_reset():
    """Endless waiting is counted; a reset of the core does not reset the counts."""
    with engine_or_skip(cores=1, on_diagnostic="go on") as engine:
        b = Bench(engine)
        engine.count_blocks()
        stuck = b.pool().set("PPU", "DATA_CUBE_IN_WIDTH", DATA_CUBE_IN_WIDTH=63)
        with pytest.raises(Exception, match="cycles"):
            b.submit(stuck, max_cycles=200_000)
        found = engine.block_counters(0)
        assert found.unaccounted() == {} and found.states["PPU"]["input"] > 190_000
        engine.reset(1)
        b.works()
        after = engine.block_counters(0)
        assert after.unaccounted() == {} and after.states["PPU"]["input"] < found.states["PPU"]["input"] + 400
        assert after.tasks["done"] == 2


def test_switched_on_amid_a_task():
    """Transactions already in progress are counted for their client, and the states add up from then on."""
    with engine_or_skip(cores=1, dram=SLOW) as engine:
        driver = Driver(engine, max_cycles=1_000_000)
        tasks = long_tasks(driver, 16, 16)
        driver.submit(Job(records_of_builders(driver, [tasks["pool"]]), core_mask=1))
        before = engine.counters(0)
        engine.count_blocks()
        driver.submit(Job(records_of_builders(driver, [tasks["add"]]), core_mask=1))
        engine.count_blocks(False)
        engine.run(100)
        found = engine.block_counters(0)
        assert found.unaccounted() == {}
        written = engine.counters(0).bytes_written
        assert found.bytes["ppu_write"] == 0 and found.bytes["dpu_write"] == written["DPU"]
        assert written["PPU"] == before.bytes_written["PPU"] > 0
        engine.run(100)
        assert engine.block_counters(0) == found, "off"


def test_registers_of_the_window():
    control = counter_registers()["CONTROL"]
    switch, cycles = control["SWITCH"], control["CYCLES"]
    with engine_or_skip(cores=2) as engine:
        b = Bench(engine)
        window = engine.counter_window(1)
        assert window.address == BASE_ADDRESS + WINDOW_BYTES
        assert window.read32(control["IDENT"].offset) == control["IDENT"].reset
        window.write32(switch.offset, switch.encode(ENABLE=1, CLEAR=1))
        b.submit(b.add(), core=1)
        assert window.read32(cycles.offset) == 0
        found = read_counters(window)
        assert found == engine.block_counters(1) and found.tasks["done"] == 1
        assert window.read32(switch.offset) == switch.encode(ENABLE=1)
        engine.run(10)
        assert window.read32(cycles.offset) == found.cycles, "latched"
        assert window.read32(0xFFC) == 0
        for offset in (2, -4, WINDOW_BYTES):
            with pytest.raises(ValueError, match="multiple of 4"):
                window.read32(offset)
        with pytest.raises(ValueError, match="32 bits"):
            window.write32(switch.offset, 1 << 32)
        assert engine.block_counters(0).cycles == 0
        with pytest.raises(ValueError, match="core must be"):
            engine.counter_window(2)


def test_the_event_log_says_the_same():
    with engine_or_skip(cores=1) as engine:
        engine.record(gap=0)
        engine.count_blocks()
        run_layer(engine, "direct")
        found, log = check(engine), engine.events()
    by_client = Counter[str]()
    bursts = log.where(kind="burst")
    for client, way, moved in zip(bursts["client"], bursts["direction"], bursts["bytes"], strict=True):
        by_client[client.lower() + ("_write" if way == "write" else "")] += int(moved)
    assert {c: n for c, n in found.bytes.items() if n and c not in ("reads", "writes")} == dict(by_client)
    assert found.macs["slots"] == int(log.where(kind="mac")["value"].sum())
    stalls = log.where(kind="stall", reason="stall_weight")["value"].sum()
    assert found.states["CSC"]["weight"] == int(stalls)
    (task,) = log.tasks()
    assert found.tasks["cycles"] == task.end - task.start


# ---------------------------------------------------------------------- a full trace, counted again


class Column:
    """Values of a waveform's signal, one per cycle."""

    def __init__(self, wave: waves.Wave, name: str) -> None:
        self.values: list[int] = []
        for begin, end, (value,) in wave.steps([name]):
            self.values += [value if isinstance(value, int) else 0] * (end - begin)

    def array(self, dtype: Any = np.int64) -> np.ndarray:
        return np.array(self.values, dtype)

    def field(self, low: int, width: int = 1) -> np.ndarray:
        mask = (1 << width) - 1
        return np.array([value >> low & mask for value in self.values], np.int64)


def traced_run(path: Path, kind: str) -> tuple[BlockCounters, waves.Wave]:
    """A run with all signals traced and all counters on from the first cycle."""
    with traced_or_skip() as engine:
        engine.trace(TraceSpec(path))
        engine.count_blocks()
        if kind == "conv":
            run_layer(engine, "direct")
        else:
            driver = Driver(engine, max_cycles=100_000)
            tasks = long_tasks(driver, 6, 9)
            driver.submit(Job(records_of_builders(driver, [tasks["add"], tasks["pool"]]), core_mask=1))
        found = check(engine)
    return found, waves.open(path)


def traced_or_skip() -> SocEngine:
    try:
        toolchain.compiler()
        if toolchain.verilator() is None:
            pytest.skip("no Verilator")
    except BuildError as error:
        pytest.skip(str(error))
    return open_engine("verilator", cores=1, dram=SLOW, traced=True, progress=lambda text: None)


@pytest.mark.heavy  # one more build of the whole core
@pytest.mark.parametrize("kind", ["conv", "elements"])
def test_a_full_trace_says_the_same(tmp_path: Path, kind: str):
    found, wave = traced_run(tmp_path / "w.vcd", kind)

    # 1. The states that the core reports, bit by bit.
    length = len(Column(wave, "core0.activity").values)
    counting = np.arange(length) >= length - found.cycles  # from the second cycle after the switch on
    activity, held = Column(wave, "core0.activity"), Column(wave, "core0.levels")
    bit = 0
    for block in state_blocks():
        taken = np.zeros(length, bool)
        for place, state in enumerate(block):
            says = activity.field(bit + place).astype(bool)
            first = says & ~taken
            taken |= says if place else False  # idle is excluded
            cycles = np.count_nonzero(first & counting)
            assert cycles == found.states[block.name][state.name.lower()], state.path
        bit += len(block.registers)
    for place, level in enumerate(levels()):
        most = int(held.field(LEVEL_BITS * place, LEVEL_BITS)[counting].max())
        assert most == found.levels[level.name.lower()], level.path
    assert int(Column(wave, "core0.macs").array()[counting].sum()) == found.macs["useful"]
    assert int(Column(wave, "core0.array_macs").array()[counting].sum()) == found.macs["busy"]

    # 2. The bus, from its pins.
    pins = {
        name: Column(wave, f"core0.axi.{name}").array(object)
        for channel in ("ar", "r", "aw", "w", "b")
        for name in (f"{channel}valid", f"{channel}ready")
    }
    passes = {c: (pins[f"{c}valid"] * pins[f"{c}ready"]).astype(bool) for c in ("ar", "r", "aw", "w", "b")}
    reader = Column(wave, "core0.axi.rid").array()
    for number, client in enumerate(CLIENTS):
        beats = np.count_nonzero(passes["r"] & (reader == number))
        assert 32 * beats == found.bytes[client.lower()], client
    writer, last = Column(wave, "core0.axi.awid").array(), Column(wave, "core0.axi.wlast").array()
    strobes = Column(wave, "core0.axi.wstrb").values
    queue: list[int] = []
    written = [0, 0]
    for cycle in np.flatnonzero(passes["aw"] | passes["w"]):
        if passes["w"][cycle]:
            written[queue[0]] += strobes[cycle].bit_count()
            if last[cycle]:
                queue.pop(0)
        if passes["aw"][cycle]:
            queue.append(int(writer[cycle]))
    assert written == [found.bytes["dpu_write"], found.bytes["ppu_write"]]
    assert np.count_nonzero(passes["ar"]) == found.bytes["reads"]
    assert np.count_nonzero(passes["aw"]) == found.bytes["writes"]

    # 3. States that also follow from the pins; the core reports them one cycle later.
    before = np.append(counting[1:], False)
    moves = np.any(list(passes.values()), axis=0)
    refused = {c: (pins[f"{c}valid"].astype(bool)) & ~passes[c] for c in ("ar", "aw", "w")}
    address = (refused["ar"] | refused["aw"]) & ~moves
    data = refused["w"] & ~moves & ~address
    assert np.count_nonzero(address & before) == found.states["DDMA"]["address"]
    assert np.count_nonzero(data & before) == found.states["DDMA"]["data"]
    slot = Column(wave, "core0.events.mac_slots").array()
    assert int(slot.sum()) == found.macs["slots"] <= found.states["CSC"]["busy"]

    # 4. Tasks.
    begun, done = (np.flatnonzero(Column(wave, f"core0.events.task_{w}").array()) for w in ("start", "done"))
    assert (len(begun), len(done)) == (found.tasks["started"], found.tasks["done"])
    assert int((done - begun).sum()) == found.tasks["cycles"]
    assert int((done - begun).max()) == found.tasks["longest"]
    zero = length - found.cycles
    assert (begun[-1] - zero, done[-1] - zero) == (found.tasks["last_start"], found.tasks["last_end"])
    if kind == "conv":
        assert found.macs["useful"] == MACS["direct"]
    else:
        assert found.states["PPU"]["busy"] and found.states["DPU"]["busy"]
