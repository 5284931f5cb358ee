"""The additional time of a driver, and what commands print about published boards."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from rkcosim.cli.main import app
from rkcosim.engines.library import DramConfig
from rkcosim.measure.perf.boards import expected
from rkcosim.measure.perf.boards.expected import (
    board_errors,
    board_json,
    board_milliseconds,
    published_line,
    time_line,
    write_errors,
)
from rkcosim.measure.perf.boards.table import FAMILIES, rows
from rkcosim.measure.perf.boards.validate import Errors, FamilyErrors
from rkcosim.measure.perf.page import read_section
from rkcosim.spec.submit import SUBMIT_US

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"


def test_each_submit_costs_the_drivers_time() -> None:
    assert board_milliseconds(1_000_000, 0) == 1
    assert board_milliseconds(1_000_000, 2) == pytest.approx(1 + 2 * SUBMIT_US / 1000)
    assert board_milliseconds(600_000, 1, 600) == pytest.approx(1 + SUBMIT_US / 1000)
    assert time_line(1_000_000, 1) == "time with a driver: 1.022 ms, of which 22.5 us for one submit"
    assert time_line(1_000_000, 3).endswith("1.067 ms, of which 22.5 us for each of 3 submits")
    assert time_line(1_000_000, 3, hosted=2).endswith("3 submits; the host's 2 operators are not in it")


@pytest.mark.parametrize("plan", ["ours", "rknn"])
def test_the_stored_errors_are_those_of_the_page(plan: expected.Plan) -> None:
    """`rkcosim validate --page` writes both."""
    section = "validate" if plan == "ours" else plan
    page = read_section(section, ROOT / "docs" / "results" / "performance.md")
    errors = board_errors(plan)
    known = {row.id: row for row in rows()}
    assert [network.name for network in errors.networks] == [
        row.id for row in rows() if row.family == "models"
    ]
    for network in errors.networks:
        assert network.fitted == (known[network.name].half == "fitted")
        lines = re.findall(rf"^\| {network.name} \|.*$", page, re.MULTILINE)
        assert f"| {network.error:+.1%} |" in lines[0]
    for family, error in errors.families.items():
        assert family in {*FAMILIES, "layers", "all"}
        (line,) = re.findall(rf"^\| {family} \|.*$", page, re.MULTILINE)
        assert f"| {error.rows} | {error.median:.1%} | {error.p90:.1%} | {error.bias:+.1%} |" in line


def test_what_the_readme_says_follows_the_stored_errors() -> None:
    longer = [network.longer for network in board_errors("ours").networks]
    said = re.search(r"published boards took (\d+) to (\d+) % longer", (ROOT / "README.md").read_text())
    assert said is not None
    assert (int(said[1]), int(said[2])) == (round(100 * min(longer)), round(100 * max(longer)))


def test_rows_on_the_page_about_boards_are_those_of_the_measured_table() -> None:
    """The page explains errors that `rkcosim validate` wrote, with this compiler's plan and with RKNN's."""
    text = (ROOT / "docs" / "board_times.md").read_text()
    rows = re.findall(
        r"^\| ([\w-]+), (?:fitted|held back) \| [\d,]+ \| (\S+)%.*\| (\S+)% \|$", text, re.MULTILINE
    )
    assert len(rows) == 8
    results = ROOT / "docs" / "results" / "performance.md"
    for section, column in (("validate", 1), ("rknn", 2)):
        written = read_section(section, results)
        for row in rows:
            line = re.findall(rf"^\| {row[0]} \|.*$", written, re.MULTILINE)[0]
            errors = [float(value) for value in re.findall(r"\| ([-+][\d.]+)% \|", line)]
            assert abs(errors[0] - float(row[column])) <= 0.5, (section, row)


def test_what_is_said_follows_the_stored_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    found = expected.BoardErrors(
        [expected.NetworkError("Slow", -0.5, False), expected.NetworkError("Fast", 0.25, True)],
        {"conv": expected.FamilyError(9, 0.03, 0.1, -0.02)},
    )
    monkeypatch.setattr(expected, "board_errors", lambda plan="ours": found)
    assert published_line() == (
        "published boards took 20% less to 100% longer than such figures (2 networks; rkcosim validate)"
    )
    assert published_line("rknn").endswith("(2 networks; rkcosim validate --plan rknn)")
    assert board_json(1000, 1)["networks"][0] == {"name": "Slow", "error": -0.5, "fitted": False}


def test_errors_are_stored_and_read(tmp_path: Path) -> None:
    class Row:
        id, family, half = "A", "models", "fitted"

    class Result:
        row, error = Row(), -0.12345

    path = tmp_path / "errors.json"
    found, none = Errors(3, 0.1, 0.2, -0.05), Errors(0, None, None, None)
    families = [
        FamilyErrors("models", 3, found, found, found),
        FamilyErrors("conv", 3, found, found, found),
        FamilyErrors("first", 1, none, none, none),
    ]
    write_errors([Result()], families, path)
    assert json.loads(path.read_text()) == {
        "schema_version": expected.SCHEMA_VERSION,
        "networks": [{"name": "A", "error": -0.12345, "fitted": True}],
        "families": {"conv": {"rows": 3, "median": 0.1, "p90": 0.2, "bias": -0.05}},
    }


def test_estimates_say_it(tmp_path: Path) -> None:
    out = tmp_path / "e.json"
    result = CliRunner().invoke(app, ["estimate", str(DIGITS), "--json", str(out)])
    assert result.exit_code == 0, result.output
    data = json.loads(out.read_text())
    assert data["board"].items() >= board_json(data["cycles"], data["jobs"]).items()
    assert data["dram"]["gigabytes_per_second"] == DramConfig().core_bytes_per_cycle
    assert time_line(data["cycles"], data["jobs"]) in result.output
    assert published_line() in result.output
    assert data["plan"] == "ours" and data["plans"]["ours"] == data["board"]
    assert published_line("rknn") in result.output
    assert data["plans"]["rknn"]["milliseconds"] > data["board"]["milliseconds"]


def test_estimates_of_the_other_plan(tmp_path: Path) -> None:
    out = tmp_path / "e.json"
    given = ["estimate", str(DIGITS), "--plan", "rknn", "--cores", "3", "--json", str(out)]
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 0, result.output
    data = json.loads(out.read_text())
    assert data["plan"] == "rknn" and data["board"] == data["plans"]["rknn"]
    assert data["board"]["submits"] == 1 < data["jobs"]
    result = CliRunner().invoke(app, ["estimate", str(DIGITS), "--plan", "rknn", "--what-if"])
    assert result.exit_code == 2 and "--what-if varies" in result.output


def test_what_several_cores_move() -> None:
    dram = DramConfig()
    assert dram.bandwidth() == 11.75 and dram.bandwidth(2) == 23.5 and dram.bandwidth(3) == 23.65
    assert dram.unshared.bandwidth() == 23.65
    half = dram.faster(0.5)
    assert (half.peak_bytes_per_cycle, half.core_bytes_per_cycle) == (11.825, 5.875)
    slow = dram.at_clock(0.6)
    assert slow.core_bytes_per_cycle == pytest.approx(11.75 / 0.6)
    assert (slow.read_latency, slow.write_latency, slow.port_bytes_per_cycle) == (72, 36, 32.0)
    with pytest.raises(ValueError, match="core_bytes_per_cycle must be above 0"):
        DramConfig(core_bytes_per_cycle=0)
