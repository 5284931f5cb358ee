"""The estimate of energy: its table and sources, the counts of a layer, and the published power."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rkcosim.cli.main import app
from rkcosim.measure.energy import NotCountedError, energy_of, events, sources
from rkcosim.measure.energy.published import published
from rkcosim.measure.energy.table import calculate, registers, scales
from rkcosim.measure.energy.text import basis_page, events_page
from rkcosim.measure.perf.page import read_section
from rkcosim.measure.report.data import from_json

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/energy.md"

ROW = {
    "name": "conv",
    "op": "Conv",
    "cycles": 2000,
    "macs": 1_000_000,
    "bytes_read": 3000,
    "bytes_written": 1000,
    "peak": 1024,
    "spent": {"array": 1500, "features": 500},
    "counters": {"mac_slots": 1200},
    "read_by": {"FEATURE": 1800, "WEIGHT": 1200, "PC": 64},
    "written_by": {"DPU": 1000},
}


def a_run(**changed: Any) -> Any:
    return from_json(
        {"schema_version": 1, "model": "m", "engine": "fast", "cycles": 2000, "layers": [ROW | changed]}
    )


def counts(**changed: Any) -> dict[tuple[str, str], float]:
    (layer,) = energy_of(a_run(**changed)).layers
    return layer.layer.counts


def test_every_energy_has_a_source_that_is_used() -> None:
    used = {key for event in events().values() for key in event.sources}
    assert used == set(sources())
    for event in events().values():
        assert 0 < event.low <= event.typical <= event.high, event.name
        assert event.kind == "assumed" or all(not key.startswith("logs") for key in event.sources)


def test_scales_are_those_of_the_published_equations() -> None:
    assert scales() == pytest.approx({"from45": 0.0967, "from7": 1.2487, "from7high": 1.4722}, rel=1e-3)
    assert events()["mac_int8"].typical == pytest.approx(1.2487 * (0.07 + 0.03), rel=1e-3)


@pytest.mark.parametrize("text", ["1-2", "other*2", "2**3", "print(1)", "1+", "'a'"])
def test_only_calculations_are_energies(text: str) -> None:
    with pytest.raises(ValueError, match="no calculation"):
        calculate(text)


def test_flip_flops_are_those_of_the_synthesis() -> None:
    """The array's are divided into those of its float path and the others of CORE."""
    text = (ROOT / "docs/results/synthesis.md").read_text()

    def of(block: str) -> int:
        found = re.search(rf"^\| `{block}` \| [\d,]+ \| [\d,]+ \| ([\d,]+) \|", text, re.M)
        assert found is not None, block
        return int(found[1].replace(",", ""))

    own = dict(registers())
    floats, integers = own.pop("array of floats"), own.pop("array of integers")
    assert floats == of("core_block.array_cell.floats") and floats + integers == of("core_block")
    names = {"DMA": "ddma"}
    assert own == {block: of(names.get(block, block.lower())) for block in own}


def test_counts_of_a_convolution() -> None:
    found = counts()
    assert found["mac_int8", "array"] == 1_000_000
    assert found["accumulate", "array"] == 1200 * 32
    assert found["cbuf_write", "CBUF"] == 3000 and found["cbuf_read", "CBUF"] == 1200 * 128
    assert found["element", "DPU"] == 1000 and ("lookup", "DPU") not in found
    assert found["dram", "DRAM"] == found["dma", "DMA"] == 4064
    assert found["clock", "CNA"] == 2000 * 10389 and ("clock", "DPU_RDMA") not in found
    assert found["static", "static"] == 2000


@pytest.mark.parametrize(
    ("changed", "event", "number"),
    [
        ({"peak": 512, "itemsize": 2}, ("element_float", "DPU"), 500),
        ({"peak": 512, "itemsize": 2}, ("mac_16", "array"), 1_000_000),
        ({"peak": 2048}, ("mac_int4", "array"), 1_000_000),
        ({"peak": 64}, ("cbuf_read", "CBUF"), 1200 * 68),
        ({"spent": {"array": 1500, "lut": 500}}, ("lookup", "DPU"), 1000),
        ({"spent": {"array": 1500, "cores": 500}}, ("clock", "CNA"), 1500 * 10389),
        ({"macs": 0, "read_by": {"PPU": 3000}}, ("window", "PPU"), 3000),
        ({"slots": 7, "loaded": 5, "counters": {}, "read_by": {}}, ("cbuf_write", "CBUF"), 5),
    ],
)
def test_counts_of_other_layers(changed: dict[str, Any], event: tuple[str, str], number: float) -> None:
    assert counts(**changed)[event] == number


def test_blocks_and_layers_add_up() -> None:
    found = energy_of(a_run(), clock_mhz=500)
    assert sum(found.blocks().values()) == pytest.approx(found.joules())
    assert sum(layer.joules for layer in found.layers) == pytest.approx(found.joules())
    assert found.joules("low") < found.joules() < found.joules("high")
    assert found.watts() == pytest.approx(found.joules() / 4e-6)
    assert found.counts["static", "static"] == 4000  # nanoseconds
    widths = [high - low for _, low, high in found.sensitivity()]
    assert widths == sorted(widths, reverse=True)
    assert all(low < found.joules() < high for _, low, high in found.sensitivity())
    json.dumps(found.as_json())


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ({"engine": "golden"}, "no engine counted cycles"),
        ({"layers": [ROW | {"spent": {}}]}, "no causes of cycles"),
        ({"layers": [ROW | {"target": "host", "cycles": None}]}, "the host computes every layer"),
    ],
)
def test_what_was_not_counted_has_no_energy(run: dict[str, Any], words: str) -> None:
    data = {"schema_version": 1, "model": "m", "engine": "fast", "cycles": 2000, "layers": [ROW]} | run
    with pytest.raises(NotCountedError, match=words):
        energy_of(from_json(data))
    with pytest.raises(ValueError, match="above 0 MHz"):
        energy_of(a_run(), 0)


def test_the_estimate_stays_below_published_boards() -> None:
    """A board has processors and regulators besides NPU and DRAM; a tenth of its power is too little."""
    rows = published()
    assert len(rows) == 18
    for row in rows:
        watts = row.energy().watts()
        assert 0.1 * row.npu_watts < watts < row.npu_watts, (row.model, row.type)


def test_page_has_the_table() -> None:
    anew = "python -m benchmarks.energy --page docs/energy.md"
    assert read_section("energies", PAGE) == events_page(), anew
    assert read_section("calculations", PAGE) == basis_page(), anew


def test_commands(tmp_path: Path) -> None:
    file = tmp_path / "estimate.json"
    words = ["estimate", str(ROOT / "examples/digits/digits_int8.onnx"), "--energy", "--json", str(file)]
    said = CliRunner().invoke(app, words)
    assert said.exit_code == 0, said.output
    assert "energy of NPU and DRAM:" in said.output and "not measured" in said.output
    document = json.loads(file.read_text())
    assert document["energy"]["estimate"] is True and len(document["energy"]["layers"]) == 10
    assert document["plans"]["ours"]["said"] == "this compiler's plan, as the RTL runs it"
    assert f"one inference; {document['plans']['ours']['said']}" in said.output
    run = tmp_path / "run.json"
    run.write_text(json.dumps(a_run().raw))
    page = tmp_path / "run.html"
    pytest.importorskip("jinja2", reason="needs the extra report")
    said = CliRunner().invoke(app, ["report", str(run), "-o", str(page)])
    assert said.exit_code == 0, said.output
    assert "while the NPU works at 1000 MHz" in said.output
    assert "Energy, estimated" in page.read_text()
