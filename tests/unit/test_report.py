"""The HTML report: pages of invented runs, their numbers, and messages for bad files."""

from __future__ import annotations

import copy
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rkcosim.measure import report
from rkcosim.measure.perf.attribution import CAUSES
from rkcosim.measure.report.advice import read_advice
from rkcosim.measure.report.figures import shorten, size
from rkcosim.waves.drawing import clip, el, ticks
from rkcosim.waves.events import Event, EventLog, spread

NASTY = "<script>alert('x')</script>\" onload=\"alert(2)"
VOID = {"meta", "input", "br", "link", "img", "hr"}


class Page(HTMLParser):
    """Checks nesting and collects the contents of a page."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def layer(name: str, op: str = "Conv", cycles: int | None = 1000, **more: Any) -> dict[str, Any]:
    whole = cycles or 0
    parts = {"array": whole * 3 // 5, "features": whole * 3 // 20, "writer": whole // 20}
    parts["task"] = whole - sum(parts.values())
    measured = {
        "core_cycles": cycles,
        "spent": {str(cause): parts.get(cause, 0) for cause in CAUSES},
        "counters": {"mac_slots": 600, "stall_write": 70},
        "read_by": {"FEATURE": 3000, "WEIGHT": 1000, "PC": 256},
        "written_by": {"DPU": 2000},
        "cores": [0],
    }
    return {
        "name": name,
        "op": op,
        "target": "npu",
        "tasks": 1,
        "cycles": cycles,
        "macs": 100_000,
        "utilisation": 0.1,
        "mac_busy": 0.6,
        "bytes_read": 4000,
        "bytes_written": 2000,
        "formula_npu": 600,
        "formula_ddr": 254,
        "formula_cycles": 600,
        "peak": 1024,
        "input_shape": [1, 3, 8, 8],
        "output_shape": [1, 8, 8, 8],
        "host_seconds": 0.0,
        "bound": "array",
        **(measured if cycles else {}),
        **more,
    }


def run(**more: Any) -> dict[str, Any]:
    host = layer("softmax", "Softmax", None, target="host", macs=0, bytes_read=0, bytes_written=0)
    layers = [
        layer("net/conv1"),
        layer(NASTY, "DepthwiseConv", 500, peak=64),
        layer("net/pool", "Pool", macs=0),
    ]
    data = {
        "schema_version": 1,
        "model": "made-up.onnx",
        "engine": "verilator",
        "cell": "cpp",
        "geometry": "rk3588",
        "cores": 1,
        "inferences": 2,
        "inference_cycles": [2600, 2590],
        "cycles": 5190,
        "cycles_per_second": 500_000,
        "host_seconds": 1.25,
        "verdict": {"match": True, "levels": ["verilator", "task golden", "graph golden"]},
        "memory": {"weights": 4096, "commands": 512, "activations": 9216, "activations_shared": 4096},
        "layers": [*layers, host],
        "tasks": [
            {
                "layer": n,
                "core": 0,
                "start": 1010 * n,
                "cycles": 990,
                "mac_busy": 600,
                "bytes_read": 4256,
                "bytes_written": 2000,
            }
            for n in range(3)
        ],
        "buffers": [
            {
                "name": "net/conv1",
                "kind": "weights",
                "address": 0x1000,
                "size": 4096,
                "first": 0,
                "last": 3,
                "used": [0],
            },
            {
                "name": "image",
                "kind": "input",
                "address": 0x4000,
                "size": 1024,
                "first": 0,
                "last": 0,
                "used": [0],
            },
            {
                "name": NASTY,
                "kind": "tensor",
                "address": 0x4400,
                "size": 8192,
                "first": 0,
                "last": 2,
                "used": [0, 1, 2],
            },
            {
                "name": "net/conv1",
                "kind": "commands",
                "address": 0x8000,
                "size": 512,
                "first": 0,
                "last": 3,
                "used": [0],
            },
        ],
        "dram": {"peak_bytes_per_cycle": 23.65, "efficiency": 1.0, "read_latency": 120},
        "peak": 1024,
    }
    return {**data, **more}


def events() -> EventLog:
    found = []
    for n in range(3):
        at = 100 + 1010 * n
        found += [
            Event("task", at, at + 990, 0, n, 1),
            Event("burst", at + 50, at + 90, 0, n, 1, "CNA", "FEATURE", 0x4000, 8, 256, "read"),
            Event("burst", at + 800, at + 830, 0, n, 1, "DPU", "DPU", 0x4400, 8, 256, "write"),
            Event("mac", at + 200, at + 800, 0, n, 1, "CNA", value=600),
            Event("busy", at + 10, at + 980, 0, n, 1, "DPU", value=970),
            Event("stall", at + 60, at + 200, 0, n, 1, value=140, reason="stall_feature"),
            Event("packet", at + 300, at + 900, 0, n, 1, "DPU", value=64),
            Event("layer", at, at + 990, 0, n, 1, value=1, reason=NASTY),
        ]
    return EventLog.of([*found, Event("irq", 3120, 3121, 0)])


def page(data: dict[str, Any], log: EventLog | None = None, clock: float = 1.0) -> tuple[str, Page]:
    html = report.render(report.from_json(data), log, clock)
    return html, Page(html)


@pytest.mark.parametrize("log", [None, events()], ids=["tasks", "events"])
def test_page_is_whole_and_alone(log):
    html, found = page(run(), log)
    for name in ("conv1", "pool", "softmax", "alert('x')", "made-up.onnx"):
        assert any(name in text for text in found.text), name
    assert found.count("tr") >= 4 + 3 and {f"row{n}" for n in range(4)} <= {
        attrs.get("id") for _, attrs in found.tags
    }
    # No external resources: no address, no source, no style sheet, no import.
    assert not re.search(
        r"https?:|//[a-z]|@import|url\(|\bsrc\s*=", html.replace("http://www.w3.org", ""), re.I
    )
    assert not {"link", "img", "iframe", "object", "embed"} & {tag for tag, _ in found.tags}
    for tag, attrs in found.tags:
        if tag == "a":
            assert (attrs["href"] or "").startswith("#")
        assert not [name for name in attrs if name.startswith("on")], (tag, attrs)
    assert found.count("script") == 2 and "<script>alert" not in html


def test_figures_are_those_of_the_run():
    html, found = page(run(), clock=0.5)
    text = " ".join(" ".join(found.text).split())
    assert "2,600 of one inference" in text and "5.2 µs at 0.5 GHz" in text
    assert "cycles of all 5,190" in text and "time at 1 GHz 2.6 µs" in text and "500 K cycles/s" in text
    assert "bit for bit: verilator = task golden = graph golden" in text
    assert "100 cycles (3.8%) are outside of the layers" in text
    shares = {part: n for part, n in report.from_json(run()).spent().items() if n}
    assert shares == {"array": 1500, "features": 375, "writer": 125, "task": 500}
    assert sum(shares.values()) == 2500
    assert "stall_write was set in 70 cycles" in html
    assert "tensors that share memory take 4.0 KiB" in text


def test_bars_are_as_wide_as_their_parts():
    html, _ = page(run())
    bars = re.findall(r'<svg viewBox="0 0 1000 16"[^>]*>(.*?)</svg>', html, re.S)
    assert len(bars) == 1 + 3 + 3, "all, cycles of three layers, bytes of three layers"
    for bar in bars:
        widths = [float(w) for w in re.findall(r'<rect x="[\d.]+" y="0" width="([\d.]+)"', bar)]
        assert abs(sum(widths) - 1000) < 0.1
    first = re.findall(r'width="([\d.]+)" height="16" class="(p-\w+)"', bars[1])
    assert first == [("600", "p-array"), ("150", "p-features"), ("50", "p-writer"), ("200", "p-task")]


def test_roofline_places_layers_by_bytes_and_cycles():
    from rkcosim.measure.report import roofline

    made = report.from_json(run())
    assert [row.number for row in roofline.shown(made)] == [0, 1]
    assert roofline.roofs(made) == [
        (1024.0, "array, 8-bit operands: 1,024 MACs/cycle"),
        (64.0, "depthwise array: 64 MACs/cycle"),
    ]
    html, _ = page(run())
    assert "16.67 MACs/byte, 100 MACs/cycle" in html and "16.67 MACs/byte, 200 MACs/cycle" in html
    assert "Not drawn, because MACs or cycles are missing: net/pool (#2), softmax (#3)" in html


def test_many_layers_at_one_place_keep_apart():
    from rkcosim.measure.report import roofline

    many = run(layers=[layer(f"l{n}") for n in range(30)])
    html, _ = page(many)
    marks = re.findall(r'cx="([\d.]+)" cy="([\d.]+)" r="5"', html)
    assert len(marks) == 30 and len(set(marks)) == 1  # all at the same place, as all have the same values
    numbers = re.findall(r'x="([\d.]+)" y="([\d.]+)" class="marktext mid"', html)
    places = [(float(x), float(y)) for x, y in numbers]
    assert len(places) == 30
    for n, a in enumerate(places):
        for b in places[:n]:
            assert abs(a[0] - b[0]) > 6 or abs(a[1] - b[1]) > 9
    near = [np.hypot(x - float(marks[0][0]), y - float(marks[0][1])) for x, y in places]
    assert min(near) > roofline.MARK and min(near) < 20


@pytest.mark.parametrize(
    "change, said",
    [
        ({"verdict": {"match": False, "inference": 1, "first_difference": f"tensor {NASTY}"}}, "inference 1"),
        ({"verdict": {"match": None}}, "not checked"),
        ({"verdict": None}, "not checked"),
    ],
)
def test_verdicts(change, said):
    _, found = page(run(**change))
    assert said in " ".join(found.text)


def test_what_is_missing_is_said():
    golden = run(engine="golden", tasks=[], inference_cycles=[77])
    for item in golden["layers"]:
        for name in ("core_cycles", "spent", "counters", "read_by", "written_by", "utilisation", "mac_busy"):
            item.pop(name, None)
    _, found = page(golden)
    text = " ".join(found.text)
    assert text.count("No engine measured this run") == 5 and "array busy" in text
    assert "77" not in text, "what the golden model calls cycles"
    old = run()
    for name in ("tasks", "buffers", "dram", "peak", "inference_cycles"):
        del old[name]
    for item in old["layers"]:
        for name in ("spent", "counters", "read_by", "written_by", "core_cycles", "peak", "cores", "bound"):
            item.pop(name, None)
    _, found = page(old)
    text = " ".join(found.text)
    assert "make it again" in text and "has no buffers" in text and "2,595" in text
    _, found = page(run(layers=[layer("pool", "Pool", macs=0)], tasks=[]))
    assert "Nothing in this run has MACs" in " ".join(found.text)
    _, found = page(run(layers=[], tasks=[], buffers=[]))
    assert "0 layers" in " ".join(found.text)


def test_streams_have_tasks():
    data = run(stream="pool.json", rows=[layer("task 0", "pool", macs=0), layer("task 1", "conv")])
    data |= {"runs": data["tasks"][:2], "regions": [{"name": "in", "address": 64, "size": 4096}]}
    for name in ("model", "layers", "inferences", "inference_cycles", "buffers", "memory"):
        del data[name]
    data["cycles"] = 2222
    _, found = page(data)
    text = " ".join(" ".join(found.text).split())
    assert (
        "pool.json" in text and "2,222 of the stream" in text and "2 tasks" in text and "0x00000040" in text
    )
    assert "model" not in text.split("Notes")[0]


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda d: d.clear(), "neither `layers` nor `rows`"),
        (lambda d: d.update(schema_version=9), "schema_version must be 1, not 9"),
        (lambda d: d.update(layers=3), "`layers` must be a list"),
        (lambda d: d["layers"][1].pop("op"), "row 1 has no text member `op`"),
        (lambda d: d["layers"][0].update(cycles="many"), r"row 0 \('net/conv1'\): `cycles` is 'many'"),
        (lambda d: d["layers"][0].update(spent=[1]), "`spent` is"),
        (lambda d: d.update(tasks=[{"layer": 99}]), "tasks"),
        (lambda d: d.update(buffers=[{"name": "x"}]), "buffers"),
    ],
)
def test_bad_files_are_told_what_is_wrong(tmp_path, change, said):
    data = copy.deepcopy(run())
    change(data)
    file = tmp_path / "run.json"
    file.write_text(json.dumps(data))
    with pytest.raises(report.ReportError, match=said) as caught:
        report.read(file)
    assert str(file) in str(caught.value)


def test_no_json_and_no_clock(tmp_path):
    file = tmp_path / "run.json"
    file.write_text("{")
    with pytest.raises(report.ReportError, match="not a run's JSON file"):
        report.read(file)
    with pytest.raises(report.ReportError, match="above 0 GHz"):
        page(run(), clock=0)


def test_files_with_the_earlier_parts_are_read():
    earlier = layer("conv")
    earlier["spent"] = {
        "busy": 600,
        "feature": 150,
        "accumulator": 20,
        "output": 30,
        "write": 50,
        "other": 150,
    }
    (row,) = report.from_json(run(layers=[earlier], tasks=[])).rows
    assert row.spent == {"array": 600, "features": 150, "dpu": 50, "writer": 50, "task": 150}


def test_spread_keeps_amounts():
    rng = np.random.default_rng(5)
    starts = rng.integers(0, 900, 200)
    ends = starts + rng.integers(0, 90, 200)
    amounts = rng.integers(1, 1000, 200)
    edges = np.linspace(0, 1000, 38)
    got = spread(starts, ends, amounts, edges)
    assert got.sum() == pytest.approx(amounts.sum())
    slow = np.zeros(37)
    for start, end, amount in zip(starts, np.maximum(ends, starts + 1), amounts, strict=True):
        for n in range(37):
            both = min(end, edges[n + 1]) - max(start, edges[n])
            slow[n] += amount * max(both, 0) / (end - start)
    assert got == pytest.approx(slow)
    assert spread([], [], [], edges).tolist() == [0.0] * 37


def test_small_helpers():
    assert str(el("a", "<b>", class_="x", data_v=1.5, none=None)) == '<a class="x" data-v="1.5">&lt;b&gt;</a>'
    assert shorten(["m/m/a", "m/m/b/c", "m/x"]) == ["a", "b/c", "x"] and shorten(["a", "b"]) == ["a", "b"]
    assert shorten(["m/a;m/x", "m/b;m/y", "c"]) == ["a", "b", "c"] and shorten(["a;1", "a;2"]) == [
        "a;1",
        "a;2",
    ]
    assert shorten(["m/a", "n/a"]) == ["m/a", "n/a"] and shorten(["x/"]) == ["x/"] and shorten([]) == []
    assert size(0) == "0 B" and size(1536) == "1.5 KiB" and size(1 << 20) == "1.0 MiB"
    assert ticks(23, 3) == [0, 10, 20] and ticks(1000, 2, binary=True) == [0, 512] and ticks(0) == [0]
    assert clip("abcdef", 4) == "abc…"


def test_two_runs_are_compared_row_by_row():
    from rkcosim.measure.report import compare

    before, after = run(), run(model="after.onnx", inference_cycles=[2400])
    changed = after["layers"][0]
    after["layers"][0] = layer("net/conv1", cycles=800)
    del after["layers"][2]
    after["layers"].append(layer("new"))
    after["tasks"] = []
    a, b = report.from_json(before), report.from_json(after)
    rows = compare.pairs(a, b)
    assert [(pair.name, pair.change) for pair in rows] == [
        ("net/conv1", -200),
        (NASTY, 0),
        ("net/pool", None),
        ("softmax", None),
        ("new", None),
    ]
    html = compare.render(a, b)
    found = Page(html)
    text = " ".join(" ".join(found.text).split())
    assert "A: made-up.onnx" in text and "B: after.onnx" in text and "-200 (-20.0%)" in text
    assert "array -120" in text and "Only in A: net/pool." in text and "Only in B: new." in text
    assert "A: 2,600, change -7.7%" in text and "<script>alert" not in html
    assert ("td", "num better") in [(tag, attrs.get("class")) for tag, attrs in found.tags]
    data = compare.as_json(a, b)
    assert data["rows"][0]["name"] == "net/conv1" and data["rows"][0]["cycles"] == [1000, 800]
    assert data["rows"][2]["cycles"] == [1000, None] and data["cycles"] == [2600, 2400]
    assert json.loads(json.dumps(data)) == data
    same = " ".join(Page(compare.render(a, a)).text)
    assert "Every layer takes the same number of cycles in both." in same and changed["cycles"] == 1000
    unmeasured = report.from_json(run(engine="golden", tasks=[]))
    Page(compare.render(a, unmeasured))
    Page(compare.render(report.from_json(run(layers=[], tasks=[])), a))


def test_events_fall_on_the_layers_of_the_first_inference():
    html, found = page(run(), events())
    text = " ".join(found.text)
    assert "0 net/conv1 (Conv): 990 cycles from 0 (cycle 100)" in html
    assert "2 net/pool (Pool): 990 cycles from 2,020 (cycle 2,120)" in html
    assert "core 0: tasks, active blocks, waits" in text and "mean of each task" not in text
    assert (
        "FEATURE" in text and "waits: features" in text and "interrupt of core 0 in cycle 3,120" not in html
    )
    # A second inference is left out, and events of another run are shown as they are.
    more = events().joined(EventLog.of([Event("task", 9000, 9990, 0, 0, 2)]))
    assert "cycle 9,000" not in page(run(), more)[0]
    other = page(run(tasks=[]), more)[0]
    assert "cycle 9,000" in other and "990 cycles from 8,900" in other
    full = events()
    full.meta["dropped"] = {"burst": 12345}
    assert "The event log was full: burst 12,345 events" in page(run(), full)[0]


def test_traffic_passes_from_the_first_beat_on():
    from rkcosim.measure.report.eventcharts import _Drawer
    from rkcosim.measure.report.overtime import TimeChart

    log = EventLog.of(
        [
            Event("burst", 100, 250, 0, 0, 1, "CNA", "FEATURE", 0, 8, 1000, "read", latency=100),
            Event("mac", 100, 400, 0, 0, 1, value=150),
        ]
    )
    drawer = _Drawer(report.from_json(run()), log, TimeChart(0, 300), 100)
    beats = drawer.beats(log.where(kind="burst"))
    assert beats[:100].sum() == 0 and beats[100:150] == pytest.approx(20) and beats[150:].sum() == 0
    assert drawer.bins(log.where(kind="mac"), "value") == pytest.approx(0.5)


def test_hangs_and_diagnostics_are_in_the_head():
    data = run(stream="hang.json", rows=[], runs=[], done=False, diagnostics=[f"cycle 7: {NASTY}"] * 25)
    for name in ("model", "layers", "tasks"):
        del data[name]
    html, found = page(data)
    text = " ".join(found.text)
    assert "no interrupt" in text and "and 5 more" in text and "<script>alert" not in html


def test_a_page_can_be_read_again(tmp_path):
    first, again = tmp_path / "first.html", tmp_path / "again.html"
    report.write(first, report.from_json(run()))
    report.write(again, report.read(first))
    assert again.read_text() == first.read_text()
    first.write_text("<!DOCTYPE html><html></html>")
    with pytest.raises(report.ReportError, match="the page does not contain the figures of one run"):
        report.read(first)


def test_advice_is_a_section(tmp_path: Path):
    found = run()
    change = {"name": NASTY, "text": "Relu", "cycles": 600, "milliseconds": 0.5, "meaning": "retraining"}
    together = {**change, "changes": ["a", "b"], "meaning": "same"}
    before = {"cycles": 1000, "milliseconds": 1.0}
    data = {"model": found["model"], "schema_version": 1, "before": before, "advice": [change]}
    file = tmp_path / "advice.json"
    file.write_text(json.dumps({**data, "combined": [together]}))
    reported = report.from_json(found)
    page = Page(report.render(reported, advice=read_advice(file, reported)))
    text = " ".join(page.text)
    assert all(word in text for word in (NASTY, "400", "50.0%", "needs training", "a + b", "same results"))
    assert "What would make it faster" not in " ".join(Page(report.render(reported)).text)
    for content, message in (
        ("[", "not a file that rkcosim advise wrote"),
        (json.dumps(found), "not a file that rkcosim advise wrote"),
        (json.dumps({**data, "combined": [], "model": "other"}), "advice about other, but the run is of"),
        (json.dumps({**data, "combined": [], "advice": [{}]}), "a member has a value that no run can have"),
    ):
        file.write_text(content)
        with pytest.raises(report.ReportError, match=message):
            read_advice(file, reported)
    with pytest.raises(report.ReportError, match="No such file"):
        read_advice(tmp_path / "none.json", reported)
