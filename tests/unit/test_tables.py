"""Tables of reports: text, HTML, data frames; and the examples that the package brings."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass

import pytest

import rkcosim
from rkcosim.measure.perf.estimator.whatif import SpeedError
from rkcosim.model.tables import Column, Table


@dataclass
class _Layer:
    name: str
    cycles: int | None
    macs: int
    reason: str = ""


def _table(numbered: bool = False) -> Table[_Layer]:
    columns = [
        Column[_Layer]("layer", lambda row: row.name),
        Column[_Layer]("cycles", lambda row: row.cycles, ","),
        Column[_Layer]("share", lambda row: None if row.cycles is None else row.cycles / 12345, ".1%"),
    ]
    rows = [_Layer("conv<1>", 12345, 7), _Layer("softmax", None, 0, "x")]
    return Table("a model", rows, columns, asdict, numbered=numbered)


def test_text_and_html_of_a_table_have_the_same_cells_and_sides():
    table = _table()
    assert repr(table).splitlines() == [
        "a model",
        "layer    cycles   share",
        "conv<1>  12,345  100.0%",
        "softmax       -       -",
    ]
    html = table._repr_html_()
    cells = re.findall(r'<t[hd] style="text-align: (\w+)">(.*?)</t[hd]>', html)
    assert cells == [
        *(("left", "layer"), ("right", "cycles"), ("right", "share")),
        *(("left", "conv&lt;1&gt;"), ("right", "12,345"), ("right", "100.0%")),
        *(("left", "softmax"), ("right", "-"), ("right", "-")),  # a value that is unknown stays in its column
    ]


def test_a_table_shows_the_numbers_of_its_rows():
    """The roofline of a report has these numbers at its points."""
    assert repr(_table(True)).splitlines()[1:] == [
        "#  layer    cycles   share",
        "0  conv<1>  12,345  100.0%",
        "1  softmax       -       -",
    ]
    assert '<td style="text-align: right">1</td><td style="text-align: left">softmax' in _table(
        True
    )._repr_html_().replace("\n", "")
    with rkcosim.load(rkcosim.example("digits/digits_int8.onnx"), engine="golden") as model:
        estimate = model.estimate()
        drawn = set(re.findall(r">(\d)</text>", estimate.roofline()))
        with_macs = {str(number) for number, row in enumerate(estimate.table) if row.macs}
        assert with_macs and with_macs <= drawn
        assert repr(estimate.table).splitlines()[1].split()[:2] == ["#", "layer"]
        assert repr(model.layers).splitlines()[1].split()[:2] == ["#", "layer"]


def test_a_frame_has_the_shown_columns_unless_everything_is_asked_for():
    pytest.importorskip("pandas", reason="needs the extra notebooks")
    shown = _table().to_pandas()
    assert list(shown.columns) == ["layer", "cycles", "share"]
    assert shown["cycles"][0] == 12345 and shown["share"][0] == 1.0 and shown["cycles"].isna()[1]
    assert list(_table().to_pandas(everything=True).columns) == ["name", "cycles", "macs", "reason"]


def test_an_arrow_table_has_everything_unless_the_shown_columns_are_asked_for():
    pytest.importorskip("pyarrow", reason="needs the extra waves")
    assert _table().to_arrow().column_names == ["name", "cycles", "macs", "reason"]
    assert _table().to_arrow(everything=False).column_names == ["layer", "cycles", "share"]


def test_headings_of_a_table_are_different_and_those_of_layers_the_same():
    """A data frame needs one name for each column; estimate and profile are read side by side.

    Before a run the layers have no cycles, and no cause of them.
    """
    model = rkcosim.load(rkcosim.example("digits/digits_int8.onnx"))
    with model:
        estimate, layers = model.estimate().table.to_arrow(everything=False), model.layers
        heads = set(layers.to_arrow(everything=False).column_names)
    assert set(estimate.column_names) - heads == {"cycles", "share", "bound by"}


def test_an_estimate_keeps_the_memory_of_the_model_at_another_clock():
    path = rkcosim.example("digits/digits_int8.onnx")
    slow, fast = rkcosim.load(path, dram={"read_latency": 400}), rkcosim.load(path)
    assert slow.estimate(clock=500).cycles > fast.estimate(clock=500).cycles
    assert slow.estimate(clock=500).cycles < slow.estimate().cycles  # fewer cycles of a slower clock pass
    assert fast.estimate(dram={"read_latency": 400}).cycles == slow.estimate().cycles
    half = rkcosim.load(path, dram="2112MT/s")
    assert half.estimate().cycles == fast.estimate(dram="2112MT/s").cycles > fast.estimate().cycles


@pytest.mark.parametrize(
    ("dram", "said"),
    [("quick", "4224MT/s"), ({"latency": 4}, "'latency'; it has peak_bytes_per_cycle, efficiency")],
)
def test_a_wrong_memory_is_refused_by_name(dram: object, said: str):
    path = rkcosim.example("digits/digits_int8.onnx")
    for act in (lambda: rkcosim.load(path, dram=dram), lambda: rkcosim.load(path).estimate(dram=dram)):
        with pytest.raises(ValueError, match=said) as caught:
            act()
        assert isinstance(caught.value, SpeedError) == isinstance(dram, str)


def test_examples_are_found_and_unknown_ones_named():
    assert rkcosim.example("streams/pool.json").is_file() and rkcosim.example("digits").is_dir()
    with pytest.raises(FileNotFoundError, match=r"no example 'digits/x'; there are digits/README\.md"):
        rkcosim.example("digits/x")
    for name in ("none/x", "../pyproject.toml", "/etc/passwd"):
        with pytest.raises(FileNotFoundError, match="there are cocotb, device, digits"):
            rkcosim.example(name)
