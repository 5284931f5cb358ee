"""Shards: where chains are cut, memory images, joining, refused input."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rkcosim.base import QUERY, version
from rkcosim.compiler.runtime import TaskMeasure
from rkcosim.engines.library import DramConfig
from rkcosim.engines.settings import axis, dram_settings
from rkcosim.golden.task import Memory
from rkcosim.measure.shards.cluster import ClusterError
from rkcosim.measure.shards.images import PAGE, Expected, Tracker, merged
from rkcosim.measure.shards.join import join
from rkcosim.measure.shards.plan import Unit, cut, leads, shards_for
from rkcosim.measure.shards.run import Counted, Order, ShardError, check_version
from rkcosim.measure.shards.sweep import SweepRow, geometry_settings, points
from rkcosim.spec.config import RK3588

quietly = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""No deadline: other work may run on the machine."""

COSTS = st.integers(1, 10_000)


@st.composite
def chains(draw: st.DrawFn) -> list[Unit]:
    """Units of some jobs: chains of tasks, or whole jobs of several cores."""
    chain: list[Unit] = []
    task = 0
    for job in range(draw(st.integers(1, 5))):
        if draw(st.booleans()):
            count = draw(st.integers(2, 6))
            chain.append(Unit(job, task, count, draw(COSTS)))
            task += count
            continue
        for place in range(draw(st.integers(1, 8))):
            chain.append(Unit(job, task, 1, draw(COSTS), place > 0 and draw(st.booleans())))
            task += 1
    return chain


@quietly
@given(chains(), st.integers(1, 12))
def test_every_task_counts_once(chain: list[Unit], count: int):
    shards = cut(chain, count)
    assert len(shards) == min(count, len(chain))
    spans = [span for shard in shards for span in shard.spans]
    assert [n for span in spans for n in range(span.first, span.end)] == list(
        range(chain[-1].first + chain[-1].count)
    )
    assert [shard.number for shard in shards] == list(range(len(shards)))
    borders = {unit.first for unit in chain}
    first = {unit.job: unit.first for unit in reversed(chain)}
    last = {unit.job: unit.first + unit.count for unit in chain}
    for span in spans:
        assert {span.start, span.first} <= borders
        assert span.begins == (span.first == first[span.job]) and span.ends == (span.end == last[span.job])
        assert (span.lead == 0) == span.begins, "inside a job the task before is simulated too"
        assert span.start >= first[span.job]
    for shard in shards:
        assert all(span.lead == 0 for span in shard.spans[1:])


@quietly
@given(chains(), st.integers(1, 12))
def test_nothing_leans_on_what_was_not_simulated(chain: list[Unit], count: int):
    units = {unit.first: unit for unit in chain}
    for shard in cut(chain, count):
        span = shard.spans[0]
        assert not units[span.start].leans


@quietly
@given(chains(), st.integers(1, 5))
def test_shards_are_as_even_as_can_be(chain: list[Unit], count: int):
    """No other division has a smaller largest cost (all divisions tried)."""
    import itertools

    chain = chain[:9]
    ahead = leads(chain)
    count = min(count, len(chain))

    def costliest(starts: tuple[int, ...]) -> int:
        edges = itertools.pairwise([0, *starts, len(chain)])
        return max(sum(unit.cost for unit in chain[low - ahead[low] : high]) for low, high in edges)

    best = min(map(costliest, itertools.combinations(range(1, len(chain)), count - 1)))
    assert max(shard.cost for shard in cut(chain, count)) == best


@quietly
@given(chains(), st.integers(1, 4))
def test_automatic_number(chain: list[Unit], workers: int):
    assert 1 <= shards_for(chain, workers) <= len(chain)


def test_automatic_number_of_long_chains():
    long = [Unit(0, n, 1, 500_000) for n in range(40)]
    assert shards_for(long, 1) == 1
    assert shards_for(long, 4) >= 4


def test_no_shards():
    with pytest.raises(ValueError, match="at least one shard, not 0"):
        cut([Unit(0, 0, 1, 1)], 0)
    assert cut([], 3) == []


@quietly
@given(chains(), st.integers(1, 12), st.randoms(use_true_random=False))
def test_cut_and_join(chain: list[Unit], count: int, random):
    """The counts of a sequential run are reproduced for every division."""
    tasks = chain[-1].first + chain[-1].count
    starts, ends, clock = [0] * tasks, [0] * tasks, 0
    jobs: dict[int, list[int]] = {}
    for unit in chain:  # a sequential run with gaps before, between and after tasks
        jobs.setdefault(unit.job, [clock, clock])
        for n in range(unit.first, unit.first + unit.count):
            starts[n] = clock + random.randrange(100)
            clock = ends[n] = starts[n] + random.randrange(1, 1000)
        if unit is chain[-1] or chain[chain.index(unit) + 1].job != unit.job:
            clock += random.randrange(50)
        jobs[unit.job][1] = clock
    shards = cut(chain, count)
    counted = []
    for shard in shards:
        parts = []
        for span in shard.spans:
            begin = jobs[span.job][0] if span.begins else ends[span.first - 1]
            end = jobs[span.job][1] if span.ends else ends[span.end - 1]
            measures = [
                TaskMeasure(ends[n] - starts[n], n, 0, start=starts[n] - begin)
                for n in range(span.first, span.end)
            ]
            parts.append(Counted(end - begin, tuple(measures)))
        counted.append(parts)
    joined = join(shards, counted)
    assert joined.jobs == tuple(end - begin for begin, end in jobs.values())
    assert joined.cycles == clock
    assert [m.start for m in joined.measures] == starts
    assert [m.bytes_read for m in joined.measures] == list(range(tasks))
    if len(shards) > 1:
        with pytest.raises(ValueError):
            join(shards[1:], counted[1:])


def _memory(random: np.random.Generator) -> Memory:
    memory = Memory()
    for base, size in ((0x10_0000, 3 * PAGE), (0x20_0000, 8 * PAGE)):
        memory.map(base, size)
    memory.write(0x10_0000, random.integers(0, 256, PAGE, dtype=np.uint8))
    return memory


def test_images_follow_a_memory():
    random = np.random.default_rng(1)
    memory = _memory(random)
    tracker = Tracker(memory)
    assert list(tracker.base.pages) == [0x10_0000] and tracker.base.size == PAGE
    changes, copies = [], []
    for _ in range(6):
        address = 0x20_0000 + int(random.integers(0, 7 * PAGE))
        memory.write(address, random.integers(0, 256, 700, dtype=np.uint8))
        changes.append(tracker.take())
        copies.append(memory.copy())
        assert 1 <= len(changes[-1]) <= 2
    assert tracker.take() == {}
    expected = Expected(tracker.base)
    expected.apply(merged(changes[:4]))
    assert expected.difference(copies[3]) is None
    assert expected.difference(copies[5]) is not None
    expected.apply(merged(changes[4:]))
    assert expected.difference(memory) is None
    fresh = Memory()
    again = Expected(tracker.base)
    again.apply(tracker.since_base())
    again.map_into(fresh)
    assert fresh.ranges == memory.ranges and expected.difference(fresh) is None


def test_first_wrong_byte():
    memory = _memory(np.random.default_rng(2))
    expected = Expected(Tracker(memory).base)
    last = 0x20_0000 + 8 * PAGE - 1  # a guard zone is compared like all other memory
    memory.view(last, 1)[:] ^= 5
    wrong = expected.difference(memory)
    assert wrong is not None and (wrong.address, wrong.ours, wrong.wanted, wrong.count) == (last, 5, 0, 1)
    memory.view(0x10_0000, 2)[:] ^= 1
    wrong = expected.difference(memory)
    assert wrong is not None and (wrong.address, wrong.count) == (0x10_0000, 3)
    expected.fill(memory)
    assert expected.difference(memory) is None


def test_images_of_fixed_ranges_only():
    memory = _memory(np.random.default_rng(3))
    tracker = Tracker(memory)
    memory.map(0x30_0000, PAGE)
    with pytest.raises(RuntimeError, match="mapped"):
        tracker.take()


def test_versions():
    assert eval(QUERY) == version()
    check_version(version())
    with pytest.raises(ClusterError) as caught:
        check_version("0.0.1 (sources 0123)")
    assert version() in str(caught.value) and "0.0.1 (sources 0123)" in str(caught.value)


def test_errors_travel():
    error = pickle.loads(pickle.dumps(ShardError("shard 1: broken", ValueError("why"))))
    assert str(error) == "shard 1: broken" and isinstance(error.cause, ValueError)
    local = type("Local", (Exception,), {})
    assert pickle.loads(pickle.dumps(ShardError("gone", local()))).cause is None


def test_without_dask(monkeypatch: pytest.MonkeyPatch):
    from rkcosim.measure.shards.cluster import open_cluster

    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ClusterError, match=r"pip install 'rkcosim\[shards\]'"), open_cluster():
        pass


def test_axes():
    assert axis("read_latency=60,120", dram_settings(), "--dram") == ("read_latency", [60, 120])
    name, values = axis("peak_bytes_per_cycle=11,23.65", dram_settings(), "--dram")
    assert name == "peak_bytes_per_cycle" and values == [11.0, 23.65]
    for text, words in (
        ("latency=1", "no setting 'latency'"),
        ("read_latency", "gives read_latency no values"),
        ("read_latency=", "gives read_latency no values"),
        ("read_latency=1.5", "'1.5' is not a whole number"),
        ("efficiency=fast", "'fast' is not a number"),
    ):
        with pytest.raises(ValueError, match=words):
            axis(text, dram_settings(), "--dram")
    with pytest.raises(ValueError, match="no setting 'cbuf_banks', there are read_fifo_beats"):
        axis("cbuf_banks=8", geometry_settings(), "--geometry")


def test_points():
    every = points(["a", "b"], [1, 3], {"read_latency": [60, 120]}, {"read_fifo_beats": [64, 256]})
    assert len(every) == 16 and [str(p) for p in every[:2]] == [
        "a, cores=1, read_latency=60, read_fifo_beats=64",
        "a, cores=1, read_latency=60, read_fifo_beats=256",
    ]
    assert every[1].config is RK3588 and every[0].config.read_fifo_beats == 64
    assert every[0].config.name != RK3588.name
    row = SweepRow(every[0], cycles=2_000_000).as_json(800)
    assert row["geometry"] == "not the RK3588: read_fifo_beats=64" and row["ms"] == 2.5
    assert SweepRow(every[1]).as_json(1000)["geometry"] == "rk3588"
    for bad, words in (
        ({"cores": [4]}, "cores must be 1 to 3"),
        ({"dram": {"read_latency": [0]}}, "read_latency must be"),
        ({"geometry": {"read_fifo_beats": [16]}}, "read_fifo_beats must be 32"),
    ):
        with pytest.raises(ValueError, match=words):
            points(["a"], **bad)


def test_orders_are_small():
    """The data sent for a shard, without its pages."""
    order = Order("shard 0", (), version(), dram=DramConfig())
    assert len(pickle.dumps(order)) < 2000
