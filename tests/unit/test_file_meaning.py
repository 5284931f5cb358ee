"""Meanings of nodes that our own files do not have: tables of functions, and what moves elements."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rkcosim.compiler.programs.task import Setting
from rkcosim.golden.task.dpu_lut import LutTables, look_up
from rkcosim.golden.task.registers import View
from rkcosim.spec.regs import registers
from rkcosim.verify.crosscheck.file_meaning import Meaning, _Node, beyond, ulp16
from rkcosim.verify.crosscheck.file_tables import FUNCTIONS, NotJudged, Table, function_name

STEP, ENTRIES = 32, 513

ENDS = {"LUT_LE_START": -16384, "LUT_LE_END": 0, "LUT_LO_START": 0, "LUT_LO_END": 16384}
VENDOR = {
    **{name: {name: value} for name, value in ENDS.items()},
    "LUT_CFG": {"LUT_HYBRID_PRIORITY": 1, "LUT_OFLOW_PRIORITY": 1, "LUT_LO_LE_MUX": 2},
    "LUT_INFO": {"LUT_LE_INDEX_SELECT": 5, "LUT_LO_INDEX_SELECT": 5},
}
"""Settings of the tables in vendor-compiled files (a YOLOv5n of the toolkit 1.5.2 and others)."""


def node_with(values: dict[str, np.ndarray], slopes: dict[str, dict[str, int]] | None = None) -> Any:
    """A node whose task loads two tables: LE from -16384 to 0, LO from 0 to 16384, a value every 32."""
    settings = []
    for number, name in enumerate(("LE", "LO")):
        fields = {"LUT_ACCESS_TYPE": 1, "LUT_TABLE_ID": number, "LUT_ADDR": 0}
        settings.append(Setting("DPU", "LUT_ACCESS_CFG", fields))
        data = [{"LUT_ACCESS_DATA": int(value) & 0xFFFF} for value in values[name]]
        settings += [Setting("DPU", "LUT_ACCESS_DATA", fields) for fields in data]
    given = VENDOR | (slopes or {})

    def get(block: str, register: str, name: str | None = None) -> int:
        return given.get(register, {}).get(name or register, 0)

    def signed(block: str, register: str, name: str | None = None, bits: int = 32) -> int:
        return get(block, register, name)

    return SimpleNamespace(tasks=[SimpleNamespace(settings=settings)], get=get, signed=signed, given=given)


def table_of(function: Any, units: float, full: float = 32768.0) -> dict[str, np.ndarray]:
    places = {"LE": -16384 + STEP * np.arange(ENTRIES), "LO": STEP * np.arange(ENTRIES)}
    return {name: np.rint(full * function(at / units)).clip(-32768, 32767) for name, at in places.items()}


@pytest.mark.parametrize("units", [2596.0, 1024.0, 5001.5])
def test_a_table_is_recognised_as_its_function(units: float):
    table = Table(node_with(table_of(FUNCTIONS["Sigmoid"], units)))
    found, full = table.fit("Sigmoid")
    assert abs(found / units - 1) < 2e-4 and full == 32768
    error = table.judged("Sigmoid", (found, full), np.zeros(1), 0.0)[1][0]
    steepest = 32768 / 4 / units / 2  # half an index where the function rises most
    assert steepest <= error < steepest + 8


@pytest.mark.parametrize(
    ("name", "units", "full", "slope"),
    [
        ("Swish", 2823.7, 5664.2, (16434, 13)),
        ("HardSwish", 5461.3, 10922.7, (16384, 13)),
        ("HardSigmoid", 5461.3, 32768.0, (0, 0)),
    ],
)
def test_tables_of_vendor_files_go_on_beyond_their_ends(name: str, units: float, full: float, slope):
    """Scales and slopes as they stand in vendor-compiled files of the toolkits 1.5.2 and 2.3.2."""
    slopes = {
        "LUT_LO_SLOPE_SCALE": {"OFLOW_SCALE": slope[0]},
        "LUT_LO_SLOPE_SHIFT": {"OFLOW_SHIFT": slope[1]},
    }
    table = Table(node_with(table_of(FUNCTIONS[name], units, full), slopes))
    scales = table.fit(name)
    assert abs(scales[0] / units - 1) < 5e-4 and abs(scales[1] / full - 1) < 5e-4
    far = np.array([-40000.0, -20000.0, 17000.0, 30000.0, 60000.0])
    truth = FUNCTIONS[name](far / units) * full
    values, error = table.judged(name, scales, far, 0.0)
    assert np.abs(values - truth).max() < 0.02 * full and error.max() < 3
    clamped = Table(node_with(table_of(FUNCTIONS[name], units, full)))
    assert clamped.at(np.array([1e6]))[0] == 32767
    apart = np.abs(clamped.judged(name, scales, far, 0.0)[0] - truth).max()
    assert (apart > 5 * full) == bool(slope[0])  # without its slopes the table is another function


def test_a_table_is_that_of_the_hardware():
    """The same values as the look-up of the golden model, which rounds down, inside and beyond the ends."""
    slopes = {
        "LUT_LE_SLOPE_SCALE": {"UFLOW_SCALE": 23107},
        "LUT_LE_SLOPE_SHIFT": {"UFLOW_SHIFT": 22},
        "LUT_LO_SLOPE_SCALE": {"OFLOW_SCALE": -3000},
        "LUT_LO_SLOPE_SHIFT": {"OFLOW_SHIFT": 7},
    }
    node = node_with(table_of(FUNCTIONS["Swish"], 2823.7, 5664.2), slopes)
    dpu = registers()["DPU"]
    lut = LutTables(lambda *_: None)
    for setting in node.tasks[0].settings:
        register = dpu[setting.register]
        lut.write(register.offset, register.encode(**setting.fields))
    values = {
        dpu[name].offset: dpu[name].encode(
            **{n: v % (1 << dpu[name].fields[n].width) for n, v in fields.items()}
        )
        for name, fields in node.given.items()
    }
    index = np.concatenate([np.arange(-17000, 17001, 7), [-(1 << 20), 1 << 20]])
    expected = look_up(View("DPU", values), lut, index)
    found = Table(node).at(index.astype(np.float64))
    assert ((found - expected >= -1e-6) & (found - expected < 2.0)).all()


def test_the_longest_name_of_a_function_counts():
    names = {
        "ConvHardSigmoid": "HardSigmoid",
        "ConvSigmoid": "Sigmoid",
        "Sigmoid": "Sigmoid",
        "ConvHardSwish": "HardSwish",
        "ConvExSwish": "Swish",
        "exSwish": "Swish",
        "ConvRelu": None,
        "ConvAddRelu": None,
        "PRelu": None,
        "Add": None,
    }
    assert {kind: function_name(kind) for kind in names} == names


def test_the_first_entry_of_a_table_may_clear_what_is_below():
    """ConvExGelu of frodik13/rknn-vit-tracker-rust c47c7e0: its first entries are 0, -78, -79, -80, its last
    ones -64, -32, 0, and 32636, 32702, 32767; the entry at index -8192 is -1292, at 8192 15130."""
    units, full = 5793.0, 11612.87
    values = table_of(FUNCTIONS["Gelu"], units, full)
    found = [*values["LE"][1:4], values["LE"][256], values["LO"][256], *values["LE"][-3:], *values["LO"][-3:]]
    theirs = [-78, -79, -80, -1292, 15130, -64, -32, 0, 32636, 32702, 32767]
    assert np.abs(np.subtract(found, theirs)).max() <= 4
    values["LE"][0] = 0
    table = Table(node_with(values))
    scales = table.fit("Gelu")
    assert abs(scales[0] / units - 1) < 5e-4 and abs(scales[1] / full - 1) < 5e-4
    index = np.array([-16384.0, -16380.0, -16300.0, 0.0, 16000.0])
    exact, error = table.judged("Gelu", scales, index, 0.0)
    assert np.abs(exact - FUNCTIONS["Gelu"](index / units) * full).max() < 1
    assert (error[:2] > 70).all() and (error[2:] < 12).all()
    for place in (1, 300):
        other = {name: entries.copy() for name, entries in values.items()}
        other["LE"][place] += 40
        with pytest.raises(NotJudged, match="no table of the function"):
            Table(node_with(other)).fit("Gelu")


def test_a_table_of_something_else_is_not_judged():
    values = table_of(FUNCTIONS["Sigmoid"], 2596.0)
    values["LO"] = values["LO"] - 300
    with pytest.raises(NotJudged, match="no table of the function"):
        Table(node_with(values)).fit("Sigmoid")
    with pytest.raises(NotJudged, match="no table of the function"):
        Table(node_with({name: np.zeros(ENTRIES) for name in ("LE", "LO")})).fit("Sigmoid")
    with pytest.raises(NotJudged, match="no table of the function"):
        Table(node_with(table_of(FUNCTIONS["Sigmoid"], 2596.0))).fit("HardSigmoid")


def test_values_between_entries_lie_on_lines():
    table = Table(node_with(table_of(FUNCTIONS["Tanh"], 2596.0)))
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


def test_a_maximum_behind_a_table_cuts_off_its_tail():
    """EW_CFG 0x302 with the registers of the operand 0, as Sigmoid nodes of the toolkit 2.3 have it."""
    fields = {"EW_RELU_BYPASS": 1, "EW_OP_CVT_BYPASS": 1}
    node = object.__new__(_Node)
    node.real = False
    node.get = lambda block, register, name=None: fields.get(name or register, 0)
    assert node._behind_table(np.array([-241.0, 0.0, 59.0])).tolist() == [[[0.0, 0.0, 59.0]]]
    fields["EW_OP_BYPASS"] = 1
    assert node._behind_table(np.array([-241.0, 59.0])).tolist() == [-241.0, 59.0]
    fields |= {"EW_OP_BYPASS": 0, "EW_OP_SRC": 1}
    with pytest.raises(NotJudged, match="operand from memory"):
        node._behind_table(np.zeros(1))
