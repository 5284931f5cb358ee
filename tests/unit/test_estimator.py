"""The estimator: sizes of tasks, sharing of DRAM, the file of the fit, what-ifs and the roofline."""

from __future__ import annotations

import itertools
import json
import random
import statistics
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rkcosim.compiler import ModelError, compile_conv_layer, compile_model
from rkcosim.compiler.matmul import KINDS, Matmul
from rkcosim.compiler.tiling import banks_of, fixed_weight_banks
from rkcosim.engines.library import DramConfig
from rkcosim.measure.perf import layer_models
from rkcosim.measure.perf.estimator import coefficients, estimate_model, periods
from rkcosim.measure.perf.estimator.accesses import (
    FEATURES,
    WEIGHTS,
    Flow,
    Memory,
    Reads,
    Step,
    way_to_dram,
)
from rkcosim.measure.perf.estimator.estimate import Time, gap_before, shared_times, task_time
from rkcosim.measure.perf.estimator.features import CONV, FLYING, POOL, TaskShape, task_shape
from rkcosim.measure.perf.estimator.flows import flow, steps_of_rows
from rkcosim.measure.perf.estimator.hardware import Hardware
from rkcosim.measure.perf.estimator.tasks import BASES, planned_tasks, product_tasks
from rkcosim.measure.perf.estimator.turns import spans
from rkcosim.measure.perf.estimator.whatif import SpeedError, memory_at, parse_speed, variants
from rkcosim.spec.regs import registers
from tools.estimator import data, fit
from tools.estimator.layers import SETTINGS, drawn, held_out

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"
CONSTANTS = coefficients.stored()

LAYERS = {
    "1x1": {"channels": 128, "kernels": 96, "height": 14, "width": 14},
    "3x3": {"channels": 64, "kernels": 64, "height": 28, "width": 28, "kernel": 3, "pad": 1},
    "stride": {"channels": 48, "kernels": 40, "height": 27, "width": 19, "kernel": 3, "stride": 2},
    "depthwise": {
        "channels": 96,
        "kernels": 96,
        "height": 20,
        "width": 20,
        "kernel": 3,
        "pad": 1,
        "depthwise": True,
    },
    "first": {"channels": 3, "kernels": 32, "height": 64, "width": 64, "kernel": 3, "stride": 2, "pad": 1},
    "dot": {"channels": 512, "kernels": 100, "height": 1, "width": 1},
}


@pytest.fixture(scope="module")
def shapes() -> dict[str, TaskShape]:
    found = {name: planned_tasks(compile_conv_layer(**spec).plan)[0].shape for name, spec in LAYERS.items()}
    digits = planned_tasks(compile_model(DIGITS.read_bytes()).plan)
    found |= {f"digits {number}": task.shape for number, task in enumerate(digits)}
    add = next(layer for layer in drawn() if layer.family == "add").make()
    return found | {"add": planned_tasks(add.plan)[0].shape}


# Sizes.


def test_sizes_of_a_convolution(shapes: dict[str, TaskShape]):
    shape = shapes["3x3"]
    assert (shape.kind, shape.pixels, shape.stripes) == (CONV, 28 * 28, 49)
    assert (shape.groups, shape.tiles, shape.octets, shape.kept) == (2, 9 * 2, 4, 8)
    assert (shape.weight_bytes, shape.group_bytes) == (64 * 64 * 9, 32 * 64 * 9)
    assert shape.feature_beats * 32 == 28 * 28 * 64
    assert (shape.write_beats, shape.write_runs) == (16, 2)  # two surfaces of sixteen atoms
    assert shape.peak_macs == 1024 and shapes["depthwise"].peak_macs == 64


@pytest.mark.parametrize("name", LAYERS)
def test_bytes_are_those_of_the_plan(name: str):
    """The bytes that the estimator reads from the registers equal the compiler's (whole beats included)."""
    plan = compile_conv_layer(**LAYERS[name]).plan
    for task, planned in zip(plan.tasks, planned_tasks(plan), strict=True):
        reads, writes = planned.shape.moved()
        assert writes == task.writes
        assert task.reads <= reads <= task.reads * 1.1 + 256


def test_kinds(shapes: dict[str, TaskShape]):
    kinds = [shape.kind for name, shape in shapes.items() if name.startswith("digits")]
    assert POOL in kinds and CONV in kinds
    assert shapes["add"].kind == FLYING and shapes["add"].operand_bytes == shapes["add"].source_bytes
    with pytest.raises(ValueError, match="no estimate for a task of CNA, PPU"):
        task_shape({}, ("CNA", "PPU"))


@pytest.mark.parametrize(("size", "board_us"), [(256, 2371), (128, 605), (64, 177)])
def test_poolings_take_the_time_of_boards(size: int, board_us: float):
    """2x2 poolings of fp16 are within 5 % of a profile, which adds 35 us to each layer [HW 9.10]."""
    model = compile_model(layer_models.max_pool((64, size, size), 2, 2, 0, int8=False))
    assert estimate_model(model, dram=DramConfig().unshared).cycles / 1000 + 35 == pytest.approx(
        board_us, rel=0.05
    )


def test_a_resize_of_bytes_writes_as_many_atoms_as_one_of_halves():
    """The vendor's lists count the channels of a resize in bytes, ours in halves; the atoms are the same."""
    plan = compile_model(layer_models.resize((16, 8, 8), 2, int8=True)).plan
    (task,) = plan.tasks
    ours: dict[str, dict[str, int]] = {}
    for block, register, value in task.values(BASES):
        ours.setdefault(block, {})[register] = value
    cube = registers()["DPU"]["DATA_CUBE_CHANNEL"]
    format = registers()["DPU"]["DATA_FORMAT"]
    types = format.decode(ours["DPU"]["DATA_FORMAT"]) | {"OUT_PRECISION": 0, "PROC_PRECISION": 0}
    channels = {"ORIG_CHANNEL": 15, "CHANNEL": 15}
    bytes_ = ours["DPU"] | {
        "DATA_FORMAT": format.encode(**types),
        "DATA_CUBE_CHANNEL": cube.encode(**channels),
    }
    halves, theirs = (task_shape(ours | {"DPU": dpu}, task.blocks) for dpu in (ours["DPU"], bytes_))
    assert halves.written == theirs.written == 2  # both copies of the row
    assert halves.moved() == theirs.moved()


def test_a_matrix_product_is_a_convolution():
    (task,) = product_tasks(Matmul(KINDS["int8 x int8 -> int32"], 64, 128, 64))
    assert (task.shape.kind, task.shape.pixels, task.shape.groups, task.shape.tiles) == (CONV, 64, 2, 4)
    assert task.shape.write_runs == 16  # a run for each row of the result
    assert estimate_model(Matmul(KINDS["int8 x int8 -> int32"], 64, 128, 64)).layers[0].macs == 64 * 128 * 64


def estimate_shape(shape: TaskShape, dram: DramConfig | None = None) -> Time:
    """Estimate a task that does not share the memory."""
    return task_time(shape, Memory.of(dram or DramConfig()), CONSTANTS)


# Turns at DRAM.

BUS = Memory.of(DramConfig(peak_bytes_per_cycle=16.0).unshared)
"""Memory in which a beat takes two cycles."""


def _reader(beats: float, writes: float = 0.0, at: float = 100.0, burst: float = 16.0) -> Flow:
    """A task that reads, computes for a cycle and writes."""
    step = Step([(FEATURES, beats)], 1.0, 1.0, writes, max(writes / 16, 1.0))
    return Flow(0.0, (Reads(beats, at, burst),), [step], 0.0, 0.0, 50.0)


def test_who_reads_alone_has_all_of_the_memory():
    ((span,),) = spans([[_reader(64)]], BUS, CONSTANTS)
    assert span.cycles == pytest.approx(100 + 64 * 2 + 1 + 1 + 50)
    assert span.ends["feature", "none"] == pytest.approx(100 + 64 * 2)


def test_cores_and_directions_have_equal_shares():
    """Two cores read at half the rate until the one with less data has finished."""
    (one,), (other,) = spans([[_reader(64)], [_reader(32)]], BUS, CONSTANTS)
    assert other.cycles == pytest.approx(100 + 32 * 4 + 52)
    assert one.cycles == pytest.approx(100 + 32 * 4 + 32 * 2 + 52)
    # A core that writes meanwhile has two shares of three.
    busy = _reader(64, writes=0.0)
    early = Step([(FEATURES, 0.0)], 0.0, 0.0, 320.0, 20.0)
    writing = replace(busy, steps=[early, *busy.steps])
    (one,), (other,) = spans([[_reader(32, at=0.0)], [replace(writing, reads=(Reads(64),))]], BUS, CONSTANTS)
    assert one.cycles == pytest.approx(32 * 6 + 52, abs=8)


def test_one_core_moves_what_one_core_can():
    """Both directions share the limit of a core; the rest of the bandwidth is available to other cores."""
    bus = Memory.of(DramConfig(peak_bytes_per_cycle=16.0, core_bytes_per_cycle=8.0))
    ((alone,),) = spans([[_reader(64)]], bus, CONSTANTS)
    assert alone.cycles == pytest.approx(100 + 64 * 4 + 52)
    for (span,) in spans([[_reader(64)]] * 2, bus, CONSTANTS):
        assert span.cycles == pytest.approx(alone.cycles)
    for (span,) in spans([[_reader(64)]] * 3, bus, CONSTANTS):
        assert span.cycles == pytest.approx(100 + 64 * 6 + 52)
    early = Step([(FEATURES, 0.0)], 0.0, 0.0, 320.0, 20.0)
    reader = _reader(64)
    both = replace(reader, steps=[early, *reader.steps], reads=(Reads(64.0),))
    ((busy,),) = spans([[both]], bus, CONSTANTS)
    waits = sum(cycles for (array, _), cycles in busy.ends.items() if array == "feature")
    assert waits == pytest.approx(64 * 8, abs=40)


@pytest.mark.parametrize("little", [False, True])
def test_readers_of_a_core_take_turns_burst_by_burst(little: bool):
    """Bursts of four beats between bursts of sixteen get a fifth of the beats."""
    step = Step([(FEATURES, 32.0)], 1.0, 1.0, 0.0, 1.0)
    flow = Flow(0.0, (Reads(32.0, 0.0, 4.0), Reads(1024.0)), [step], 0.0, 0.0, 0.0, little=little)
    ((span,),) = spans([[flow]], BUS, CONSTANTS)
    assert span.cycles == pytest.approx(32 * 5 * 2, abs=34)
    weights = Step([(WEIGHTS, 1024.0)], 1.0, 1.0, 0.0, 1.0)
    ((span,),) = spans([[replace(flow, steps=[weights])]], BUS, CONSTANTS)
    assert span.cycles == pytest.approx((32 + 1024) * 2 + 2)


def test_writes_wait_in_the_port_and_bursts_for_their_answers():
    """A port accepts data that DRAM writes later; short bursts wait for responses."""
    steps = [Step([(FEATURES, 1.0)], 1.0, 1.0, 16.0, 1.0) for _ in range(8)]
    flow = Flow(0.0, (Reads(1.0),), steps, 0.0, 0.0, 0.0)
    ((long,),) = spans([[flow]], BUS, CONSTANTS)
    assert long.cycles == pytest.approx(8 * 16 * 2, abs=8)
    short = replace(flow, steps=[replace(step, bursts=16.0) for step in steps])
    ((answered,),) = spans([[short]], replace(BUS, write=300), CONSTANTS)
    assert answered.cycles == pytest.approx(8 * 16 * 300 / 15, rel=0.05)


def test_a_flow_that_waits_for_nothing_is_told():
    flow = replace(_reader(64), reads=(Reads(32.0),))
    with pytest.raises(RuntimeError, match="no client requests"):
        spans([[flow]], BUS, CONSTANTS)


def test_the_way_to_dram_is_the_harness_own():
    ways = {latency: way_to_dram(latency) for latency in (1, 2, 3, 16, 17, 30, 33, 60, 120)}
    assert ways == {1: 0, 2: 1, 3: 2, 16: 8, 17: 16, 30: 16, 33: 32, 60: 32, 120: 32}


# Tasks.


def test_no_faster_than_array_and_memory(shapes: dict[str, TaskShape]):
    dram = DramConfig()
    for name, shape in shapes.items():
        cycles = estimate_shape(shape).cycles
        array = 16 * shape.stripes * shape.groups * shape.tiles if shape.kind == CONV else 0
        assert cycles > array, name
        assert cycles > sum(shape.moved()) / dram.bandwidth(), name


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "cycles"),
    [((16, 16), 2, 2, 1105), ((16, 17), 2, 2, 1169), ((16, 32), 3, 1, 2706), ((20, 20), 5, 2, 1853)],
)
def test_rows_of_a_pooling(size: tuple[int, int], kernel: int, stride: int, cycles: int):
    """A surface of the PPU; the cycles are those of the RTL."""
    height, width = size
    pad = kernel // 2 if kernel > 2 else 0
    out = [(of + 2 * pad - kernel) // stride + 1 for of in size]
    shape = TaskShape(
        POOL,
        pixels=out[0] * out[1],
        groups=3,
        rows=out[0],
        row_pixels=out[1],
        in_height=height,
        in_width=width,
        kernel_x=kernel,
        kernel_y=kernel,
        stride_x=stride,
        stride=stride,
        pad_x=pad,
        pad=pad,
    )
    assert steps_of_rows(shape) == pytest.approx(3 * cycles, abs=6)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_more_memory_never_takes_longer(shapes: dict[str, TaskShape], given: st.DataObject):
    shape = shapes[given.draw(st.sampled_from(sorted(shapes)))]
    slow = DramConfig(
        peak_bytes_per_cycle=given.draw(st.floats(2, 60)),
        read_latency=given.draw(st.integers(20, 400)),
        write_latency=given.draw(st.integers(20, 400)),
    ).unshared
    fast = slow.faster(given.draw(st.floats(1, 4)))
    near = replace(slow, read_latency=max(slow.read_latency // 2, 1))
    taken = estimate_shape(shape, slow).cycles
    # Turns are whole bursts: a depthwise layer of 662 cycles with few weights takes 1.5 cycles longer at
    # 54 bytes a cycle than at 27.
    assert estimate_shape(shape, fast).cycles <= taken * 1.001 + 2
    # With answers that come sooner, weights are asked for sooner and take turns from the last rows: the
    # 1x1 layer at 32.45 bytes a cycle takes 3,434 cycles of RTL at a latency of 231 and 3,494 at 116.
    assert estimate_shape(shape, near).cycles <= taken * 1.05


@pytest.mark.parametrize("member", ["feature_beats", "weight_bytes", "write_beats", "operand_bytes"])
def test_more_bytes_never_take_less_time(shapes: dict[str, TaskShape], member: str):
    for name, shape in shapes.items():
        if shape.kind == POOL or not getattr(shape, member):
            continue
        more = replace(shape, **{member: 2 * getattr(shape, member)})
        assert estimate_shape(more).cycles >= estimate_shape(shape).cycles, name


def test_cores_share_the_memory(shapes: dict[str, TaskShape]):
    shape = shapes["dot"]
    memory = Memory.of(DramConfig().unshared)
    ((alone,),) = shared_times([[shape]], memory, CONSTANTS)
    together = shared_times([[shape]] * 3, memory, CONSTANTS)
    assert alone.of.bound == "weights"
    assert together[0][0].cycles == pytest.approx(3 * alone.cycles, rel=0.2)
    little = shared_times([[shape], [shapes["digits 9"]]], memory, CONSTANTS)
    assert alone.cycles < little[0][0].cycles < 2 * alone.cycles


def test_periods_are_skipped_without_a_difference(
    shapes: dict[str, TaskShape], monkeypatch: pytest.MonkeyPatch
):
    rng, seen = random.Random(7), []
    drams = (
        DramConfig(),
        DramConfig().unshared,
        replace(DramConfig(), read_latency=400),
        DramConfig().faster(0.3),
    )
    find = periods.Periods.find
    monkeypatch.setattr(
        periods.Periods, "find", lambda self, state: seen.append(find(self, state)) or seen[-1]
    )
    for number, (name, shape) in enumerate(itertools.islice(itertools.cycle(shapes.items()), 18)):
        sizes = {"pixels": rng.randint(1500, 4000), "groups": rng.randint(1, 3), "rows": rng.randint(8, 60)}
        sizes["kept"] = shape.octets * sizes["groups"]
        more = sizes["rows"] / max(shape.rows, 1)
        sizes |= {
            n: round(getattr(shape, n) * more, 1) for n in ("feature_beats", "feature_fills", "last_beats")
        }
        memory = Memory.of(drams[number % len(drams)])
        flows = [[flow(replace(shape, **sizes), memory, CONSTANTS)]]
        ((skipped,),) = spans(flows, memory, CONSTANTS)
        with monkeypatch.context() as patch:
            patch.setattr(periods, "FEWEST", 10**9)
            ((whole,),) = spans(flows, memory, CONSTANTS)
        assert skipped.cycles == pytest.approx(whole.cycles, rel=1e-6), name
        assert skipped.ends == pytest.approx(whole.ends, rel=1e-5, abs=1e-2), name
    assert sum(skip.steps for skip in seen if skip) > 2000


def test_gaps(shapes: dict[str, TaskShape]):
    dram, shape = DramConfig(), shapes["3x3"]
    kick = gap_before(shape, None, dram, CONSTANTS)
    assert kick == pytest.approx(dram.read_latency + shape.words + 56, abs=2)
    assert gap_before(shape, None, dram, CONSTANTS, core=2) == kick + 2 * CONSTANTS["kick_next"]
    assert gap_before(shape, 10_000, dram, CONSTANTS) == 1
    assert gap_before(shape, 100, dram, CONSTANTS) == pytest.approx(kick - 100)
    tables = replace(shape, lut_words=280)
    assert gap_before(tables, 10_000, dram, CONSTANTS) == pytest.approx(283, abs=4)


# Models.


def test_a_model_adds_up():
    found = estimate_model(DIGITS)
    compiled = compile_model(DIGITS.read_bytes())
    assert found.cycles == estimate_model(compiled).cycles == estimate_model(compiled.plan).cycles
    assert len(found.tasks) == len(compiled.plan.tasks)
    assert [layer.cycles is None for layer in found.layers] == [
        layer.target == "host" for layer in found.layers
    ]
    assert found.host is not None and [item.name for item in found.host.operators] == ["softmax"]
    total = sum(task.cycles + task.gap for task in found.tasks)
    assert found.cycles == pytest.approx(total, abs=len(found.tasks)) and found.jobs == [found.cycles]
    for layer in found.layers:
        assert layer.cycles in (None, sum(task.cycles for task in found.tasks if task.layer == layer.index))


def test_refused_models():
    with pytest.raises(ModelError):
        estimate_model(b"no model")


# The fit and its files.


def test_stored_errors_reach_the_target():
    held = coefficients.stored_fit().errors["held out"]
    assert held["n"] >= 200
    assert held["median"] <= 0.01 and held["worst"] <= 0.05


def test_stored_fit_belongs_to_the_data_and_this_code():
    found, (jobs, known) = coefficients.stored_fit(), data.read_data()
    assert known == SETTINGS
    every = fit.points(jobs, known, dict(found.coefficients))
    held = fit.summary(point for point in every if held_out(point.name))
    assert held == found.errors["held out"], f"run {coefficients.COMMAND}"
    assert statistics.median(abs(point.error) for point in every) < 0.01


def test_held_out_layers_are_not_fitted():
    jobs, known = data.read_data()
    jobs = jobs[:24]
    other = [
        replace(
            job,
            cycles=2 * job.cycles,
            parts=[
                [replace(t, cycles=2 * t.cycles) if held_out(t.layer) else t for t in part]
                for part in job.parts
            ],
        )
        for job in jobs
    ]
    assert jobs != other
    assert fit.fit(jobs, known) == fit.fit(other, known)
    names = [layer.name for layer in drawn()]
    assert 0.35 < sum(map(held_out, names)) / len(names) < 0.65


def test_data_file(tmp_path: Path):
    jobs = data.read_data()[0][:3]
    file = tmp_path / "data.json.gz"
    data.write_data(jobs, SETTINGS, file)
    assert data.read_data(file) == (jobs, SETTINGS)
    file.write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"data\.json\.gz"):
        data.read_data(file)


def test_fit_file(tmp_path: Path):
    file = tmp_path / "fit.json"
    coefficients.write_fit(coefficients.stored_fit(), file)
    assert coefficients.read_fit(file) == coefficients.stored_fit()
    text = json.loads(file.read_text())
    for change, says in (({"schema_version": 99}, "schema_version must be"), ({"errors": None}, "no errors")):
        file.write_text(json.dumps({**text, **change}))
        with pytest.raises(ValueError, match=says):
            coefficients.read_fit(file)
    del text["coefficients"]["pipe"]
    file.write_text(json.dumps(text))
    with pytest.raises(ValueError, match="no pipe"):
        coefficients.read_fit(file)
    file.write_text("{")
    with pytest.raises(ValueError, match=r"fit\.json is not JSON"):
        coefficients.read_fit(file)


def test_another_rtl_is_told():
    found = coefficients.stored_fit()
    now = {name: {"cycles": cycles} for name, cycles in found.baseline.items()}
    assert found.stale(now) == []
    name = next(iter(now))
    now[name]["cycles"] += 1
    now["a new layer"] = {"cycles": 5}
    assert found.stale(now) == [name]
    other = replace(found, baseline={**found.baseline, name: 1})
    assert "fitted to another RTL" in coefficients.warning(other) and name in coefficients.warning(other)


# What-ifs.


def test_speeds_and_clocks():
    assert parse_speed("4224MT/s") == pytest.approx(23.65, abs=0.01)
    assert parse_speed(" 17 gb/s ") == 17
    for text in ("4224", "fast", "-3GB/s", "0GB/s", "9e9GB/s"):
        with pytest.raises(SpeedError):
            parse_speed(text)
    half = memory_at(500)
    assert half.peak_bytes_per_cycle == pytest.approx(2 * DramConfig().peak_bytes_per_cycle)
    assert half.read_latency == DramConfig().read_latency // 2
    assert memory_at(1000) == DramConfig()
    with pytest.raises(SpeedError):
        memory_at(0)


def test_what_if():
    model_bytes = DIGITS.read_bytes()
    now = estimate_model(model_bytes)
    found = list(variants(model_bytes, 1000, None, 1, now))
    assert [*dict.fromkeys(variant.group for variant in found)] == [
        "bandwidth",
        "clock",
        "parts",
        "together",
        "cores",
        "CBUF banks",
    ]
    by = {(variant.group, variant.name.split(",")[0]): variant for variant in found}
    assert by["bandwidth", "halved"].cycles > now.cycles > by["bandwidth", "doubled"].cycles
    assert by["clock", "200 MHz"].milliseconds > now.cycles / 1e6
    assert by["cores", "2 cores"].cycles <= now.cycles
    assert by["CBUF banks", "best of these for each layer"].cycles <= now.cycles
    parts = [variant.cycles for variant in found if variant.group == "parts"]
    assert max(parts) <= now.cycles and min(parts) == parts[-1] < now.cycles, "all twice is the shortest"
    several = {variant.name[0]: variant.cycles for variant in found if variant.group == "together"}
    assert now.cycles / 3 <= several["3"] < now.cycles and several["6"] <= several["3"]
    compiled = compile_model(model_bytes).save()
    assert {v.group for v in variants(compiled, 1000, None, 1, now)} == {"bandwidth", "clock", "parts"}


def test_larger_npus():
    """Each part is as fast as its name says where it alone limits a task."""
    shape = TaskShape("conv", octets=4, kept=4, octet_cycles=4, octet_stage="lut", tiles=9, peak_macs=1024)
    faster = Hardware(tables=2).of(shape)
    assert (faster.octet_cycles, faster.octets, faster.tile_cycles) == (2, 4, 1)
    wider = Hardware(lanes=2).of(shape)
    assert (wider.octet_cycles, wider.octets) == (8, 2), "the tables stay as slow as they are"
    array = Hardware(array=2).of(shape)
    assert (array.tile_cycles, array.peak_macs, array.octets) == (0.5, 2048, 4)
    assert Hardware().of(shape) == shape
    with pytest.raises(ValueError, match="tables must be 1, 2 or 4 times that of the RK3588, not 3"):
        Hardware(tables=3)
    deep = compile_conv_layer(**LAYERS["3x3"]).plan
    now, then = (estimate_model(deep, hardware=one).cycles for one in (Hardware(), Hardware(array=2)))
    assert 0.45 * now < then < 0.75 * now, "the array limits a convolution of many taps"


def test_a_cbuf_of_another_size():
    tiles = []
    for size in (16 * 1024, 32 * 1024, 64 * 1024):
        with banks_of(size):
            tiles.append(compile_conv_layer(**{**LAYERS["3x3"], "height": 400}).plan.tiles[0])
    assert len(tiles[0]) > len(tiles[1]) > len(tiles[2])
    with pytest.raises(ValueError, match="a bank must have 4096 to 65536 bytes, a multiple of 128, not 100"):
        with banks_of(100):
            pass


def test_a_given_split_of_the_banks():
    spec = LAYERS["3x3"]
    with fixed_weight_banks(5):
        tiles = compile_conv_layer(**spec).plan.tiles[0]
    assert {(tile.data_banks, tile.weight_banks) for tile in tiles} == {(7, 5)}
    with fixed_weight_banks(11):  # one bank for features: more tiles
        assert len(compile_conv_layer(**spec).plan.tiles[0]) > 1
    large = {"channels": 1024, "kernels": 64, "height": 20, "width": 40, "kernel": 3, "pad": 1}
    with fixed_weight_banks(11):  # does not fit, so the compiler chooses
        tiles = compile_conv_layer(**large).plan.tiles[0]
    assert {tile.weight_banks for tile in tiles} != {11}
    for banks in (0, 12):
        with pytest.raises(ValueError, match="1 to 11 banks"), fixed_weight_banks(banks):
            pass


# The roofline's file.


def test_roofline_file():
    from rkcosim.measure.perf.estimator.document import as_json, as_run
    from rkcosim.measure.report.data import ReportError
    from rkcosim.measure.report.rooffile import draw

    found = estimate_model(DIGITS)
    result = as_json("digits <1>", found, 600, [])
    text = draw(as_run(result), 0.6, "estimated")
    root = ElementTree.fromstring(text)
    assert root.tag.endswith("svg")
    said = "".join(root.itertext())
    assert "digits <1>" in said and "TOPS" in said and "GB/s" in said and "prefers-color-scheme: dark" in said
    assert "1,024 MACs/cycle = 1.23 TOPS" in said and "#row" not in text
    run = as_run(result)
    run.rows = [row for row in run.rows if not row.macs]
    with pytest.raises(ReportError, match="no layer has MACs"):
        draw(run, 0.6)


@pytest.mark.parametrize("pixels", [1, 3, 15, 16, 17, 40])
def test_operands_of_few_pixels_are_read_whole(pixels: int) -> None:
    """A stripe of fewer pixels than 16 reads as many operands as its own size says."""
    stripe = min(pixels, 16)
    shape = TaskShape(
        **{"kind": CONV, "words": 128, "pixels": pixels, "row_pixels": pixels, "octets": 4, "kept": 4},
        **{"groups": 2, "octet_cycles": 1, "surfaces": 2, "written": 2, "write_beats": 1, "write_runs": 1},
        **{"to_memory": True, "table_bytes": 256, "operand_bytes": 64 * stripe, "operand_runs": 2},
        **{"tiles": 7, "rows": 1, "row_step": 4, "first_rows": 1, "feature_beats": 7 * stripe},
        **{"feature_fills": 7 * stripe, "feature_bursts": 1, "last_beats": 7 * stripe, "last_bursts": 1},
        **{"stride": 1, "reach": 1, "weight_bytes": 832, "group_bytes": 416, "ring_bytes": 360448},
        **{"weight_head": 10, "kernel_x": 1, "kernel_y": 1, "stride_x": 1},
    )
    time = task_time(shape, Memory.of(DramConfig()), CONSTANTS)
    assert time.cycles > 112 * -(-pixels // 16) * 2


def test_words_that_leave_out_registers_of_the_task_before(monkeypatch):
    """Tasks of a .rknn file have registers that only an earlier task writes."""
    plan = compile_model(DIGITS.read_bytes()).plan
    whole, builders = planned_tasks(plan), plan.builders(BASES)
    short = [SimpleNamespace(body=builder.body[:9], amount=builder.amount) for builder in builders]
    monkeypatch.setattr(type(plan), "builders", lambda plan, bases: short)
    assert planned_tasks(plan) == whole
