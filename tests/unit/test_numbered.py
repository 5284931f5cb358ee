"""Sequences whose oldest items are gone, and the task logs of engines that are made of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rkcosim.base.numbered import Numbered
from rkcosim.engines import library as lib
from rkcosim.engines.records import TaskLog
from rkcosim.running.meter import meter


def test_numbers_count_the_items_that_are_gone():
    log = Numbered(range(10))
    log.trim(5)
    assert len(log) == 10 and not log.gone  # twice as many are allowed
    log.append(10)
    log.trim(5)
    assert len(log) == 11 and log.gone == 6 and list(log) == [6, 7, 8, 9, 10]
    assert log[8:] == [8, 9, 10] and log[:7] == [6] and log[::-3] == [10, 7] and log[-2:] == [9, 10]
    assert log[-1] == 10 == log[10] and log[6] == 6
    with pytest.raises(IndexError, match="item 5 of 11; 6 to 10 are kept"):
        log[5]
    with pytest.raises(IndexError, match="item -6 of 11"):
        log[-6]
    with pytest.raises(IndexError, match="item 0 of 3; none is kept"):
        Numbered((), 3)[0]
    assert Numbered([1, 2]) == [1, 2] and Numbered([2], 1) != [2] and Numbered([2], 1) == Numbered([2], 1)


def event(kind: int, core: int, task: int, job: int, cycle: int) -> Any:
    return lib.TaskEventC(cycle=cycle, core=core, task=task, kind=kind, job=job)


def counters(_: int) -> Any:
    return lib.CountersC()


def test_a_log_of_many_tasks_keeps_the_latest_and_the_one_that_runs():
    log = TaskLog()
    log.read([event(0, 1, 0, 0, 5)], counters, 4)  # core 1 does not end its task
    for n in range(50):
        found = log.read([event(0, 0, n, n + 1, 10 * n), event(1, 0, n, n + 1, 10 * n + 7)], counters, 4)
        assert len(found) == n + 2 and len(list(found)) <= 9
        assert found[-1].cycles == 7 and found[-1].job == n + 1
    assert found[-3:] == list(found)[-3:] and found[48:][0].task == 47
    ended = log.read([event(1, 1, 0, 0, 9000)], counters, 4)  # its record is gone
    assert len(ended) == 51 and all(record.core == 0 for record in ended)


def test_a_log_whose_next_events_are_gone_counts_on():
    log = TaskLog()
    log.read([event(0, 0, 0, 0, 1)], counters)
    log.skip(41, 21)
    found = log.read([event(1, 0, 20, 20, 900), event(0, 0, 21, 21, 901)], counters)
    assert len(found) == 22 and log.events == 43 and [record.task for record in found] == [21]


def test_measurements_go_on_where_records_are_gone():
    record = log_of([(0, 0, 0, 1), (1, 0, 0, 5)])[0]
    engine: Any = SimpleNamespace(task_log=lambda: Numbered([record], 7))
    read = meter(engine)
    assert len(read()) == 8 and read()[7:][0].cycles == 4 and not read()[:7]


def log_of(events: list[tuple[int, int, int, int]]) -> Numbered[Any]:
    return TaskLog().read([event(kind, core, task, 0, cycle) for kind, core, task, cycle in events], counters)
