"""Meanings of nodes that our own files do not have: tables of functions, and what moves elements."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rkcosim.compiler.programs.task import Setting
from rkcosim.verify.crosscheck.file_meaning import FUNCTIONS, Meaning, NotJudged, _Node, _Table, beyond, ulp16

STEP, ENTRIES = 32, 513


def node_with(values: dict[str, np.ndarray]) -> Any:
    """A node whose task loads two tables: LE from -16384 to 0, LO from 0 to 16384, a value every 32."""
    settings = []
    for number, name in enumerate(("LE", "LO")):
        fields = {"LUT_ACCESS_TYPE": 1, "LUT_TABLE_ID": number, "LUT_ADDR": 0}
        settings.append(Setting("DPU", "LUT_ACCESS_CFG", fields))
        data = [{"LUT_ACCESS_DATA": int(value) & 0xFFFF} for value in values[name]]
        settings += [Setting("DPU", "LUT_ACCESS_DATA", fields) for fields in data]
    registers = {"LUT_LE_START": -16384, "LUT_LE_END": 0, "LUT_LO_START": 0, "LUT_LO_END": 16384}
    return SimpleNamespace(
        tasks=[SimpleNamespace(settings=settings)],
        get=lambda block, register, name: 5,
        signed=lambda block, register, name: registers[register],
    )


def table_of(function: Any, units: float) -> dict[str, np.ndarray]:
    places = {"LE": -16384 + STEP * np.arange(ENTRIES), "LO": STEP * np.arange(ENTRIES)}
    return {name: np.rint(32768 * function(at / units)).clip(-32768, 32767) for name, at in places.items()}


@pytest.mark.parametrize("units", [2596.0, 1024.0, 5001.5])
def test_a_table_is_recognised_as_its_function(units: float):
    found, error = _Table(node_with(table_of(FUNCTIONS["Sigmoid"], units))).fit(FUNCTIONS["Sigmoid"])
    assert abs(found / units - 1) < 2e-4
    steepest = 32768 / 4 / units / 2  # half an index where the function rises most
    tail = 32768 * FUNCTIONS["Sigmoid"](np.array([-16384 / units]))[0]
    assert max(steepest, tail) <= error < max(steepest, tail) + 8


def test_a_table_of_something_else_is_not_judged():
    values = table_of(FUNCTIONS["Sigmoid"], 2596.0)
    values["LO"] = values["LO"] - 300
    with pytest.raises(NotJudged, match="no table of the function"):
        _Table(node_with(values)).fit(FUNCTIONS["Sigmoid"])
    with pytest.raises(NotJudged, match="no table of the function"):
        _Table(node_with({name: np.zeros(ENTRIES) for name in ("LE", "LO")})).fit(FUNCTIONS["Sigmoid"])


def test_values_between_entries_lie_on_lines():
    table = _Table(node_with(table_of(FUNCTIONS["Tanh"], 2596.0)))
    at = np.array([-16384.0, -48.0, 0.0, 16.0, 16384.0, 1e9])
    assert table.at(at)[[0, 2, 4, 5]].tolist() == [-32768, 0, 32767, 32767]
    assert table.at(at)[3] == (table.at(np.array([0.0]))[0] + table.at(np.array([32.0]))[0]) / 2


def test_nearest_resize():
    x = np.arange(2 * 3 * 4, dtype=np.int8).reshape(1, 2, 3, 4)
    y = _Node._resized(x, (1, 2, 6, 12))
    assert (
        y.shape == (1, 2, 6, 12) and (y[0, :, ::2, ::3] == x[0]).all() and (y[0, :, 1::2, 2::3] == x[0]).all()
    )
    with pytest.raises(NotJudged):
        _Node._resized(x, (1, 2, 5, 4))


def test_units_in_the_last_place():
    values = np.array([0.0, 2.0**-14, 1.0, 1.5, -3.0, 60000.0])
    spacing = np.spacing(np.abs(values).astype(np.float16)).astype(np.float64)
    assert np.array_equal(ulp16(values), spacing)


def test_what_is_beyond_a_bound():
    values = np.array([1.0, 1.0, 70000.0, 70000.0, 1.0, -70000.0])
    actual = np.array([1.0, 1.01, np.inf, 65504, np.nan, np.inf], np.float16)
    judged = Meaning(values, 2 * ulp16(values))
    assert beyond(actual, judged).tolist() == [False, True, False, True, True, True]
