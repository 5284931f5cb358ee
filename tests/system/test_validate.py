"""Published measurements compared with the RTL: the table, the row selection, bounds, and measured rows."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

import pytest
from click.testing import CliRunner

from rkcosim.cli.main import app
from rkcosim.measure.perf.boards import known_errors
from rkcosim.measure.perf.boards import runs as board_runs
from rkcosim.measure.perf.boards import text as validate_text
from rkcosim.measure.perf.boards.expected import SUBMIT_US
from rkcosim.measure.perf.boards.language import LanguageModel
from rkcosim.measure.perf.boards.matmul_plans import resident
from rkcosim.measure.perf.boards.table import FAMILIES, BoardRow, rows
from rkcosim.measure.perf.boards.validate import Result, Setting, families, measure, validate
from rkcosim.measure.perf.page import SECTIONS, markers, read_section
from tools import calibrate
from tools.calibrate import Candidate
from tools.provenance import TABLE_SOURCES

BY_ID = {row.id: row for row in rows()}
MEASUREMENTS = Path(__file__).parents[2] / "docs" / "reference" / "12-measurements.md"

QUICK = ("UNET-64x34", "UNET-22", "CHAN-102", "CHAN-88", "MM-64x256x256", "YV10-119", "YV10-121", "CHAN-42")
"""Rows of a few hundred thousand cycles, from four families."""


def test_every_row_is_whole() -> None:
    assert len(BY_ID) == len(rows()) >= 51
    assert {row.family for row in rows()} == set(FAMILIES)
    for row in rows():
        assert 0 < row.low_us <= row.high_us and row.clock_mhz in (200, 800, 1000), row


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("CHAN-2", "activation from the LUT"),
        ("CHAN-70", "measured under 1 ms"),
        ("ALLB-8155", "clock not stated"),
        ("UNET-6", ""),
        ("UNET-9", ""),
    ],
)
def test_the_rule(name: str, why: str) -> None:
    assert BY_ID[name].excluded == why


def test_the_halves_stay_as_they_were() -> None:
    """The halves are chosen by a hash of the row's id; rows that were added later are below the others."""
    counted = [row for row in rows() if not row.excluded]
    assert {row.id for row in counted if row.half == "fitted"} == {
        "CHAN-9",
        "UNET-52",
        "MM-1024x3840x4096",
        "MM-512x1024x1024",
        "CLE-fp16",
        "MobileNetV1",
        "MM-512x3840x4096-200MHz",
        "CHAN-20",
        "Qwen2-0.5B-prefill",
        "Qwen3-0.6B-prefill",
        "TinyLLAMA-1.1B-decode",
        "InternLM2-1.8B-decode",
    }
    assert len(counted) == 33


def test_bounds_are_the_published_columns() -> None:
    """NPU cycles exactly, DRAM cycles within rounding and the bytes of biases."""
    text = MEASUREMENTS.read_text("utf-8").split("Selected rows")[1].split(TABLE_SOURCES)[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    compared = 0
    for row in rows():
        if row.section != "12.6" or row.family == "models":
            continue
        line = next(line for line in lines if row.quote in line)
        cells = [cell.strip().replace(" ", "") for cell in line.strip("|").split("|")]
        npu, ddr = int(cells[2]), int(cells[3])
        try:
            bounds = board_runs.work(row, "ours" if row.cores == 1 else "rknn").bounds
        except Exception as error:  # another test checks that every row can be built
            assert "CBUF" in str(error), row.id
            continue
        assert bounds.npu == npu, row.id
        near = 0.05 if row.type == "fp16" else 0.02  # fp16 rows hold padding and biases in 32 bits
        if ddr > 1000 and row.id != "CHAN-78":  # whose bytes are those of 64 channels, not of 4
            assert abs(bounds.ddr / ddr - 1) < near, (row.id, bounds.ddr, ddr)
        compared += 1
    assert compared > 30


def test_quick_rows_lie_between_formula_and_board() -> None:
    """(a) at least the formula's cycles, (b) at most the measured time."""
    for result in validate([BY_ID[name] for name in QUICK], setting=Setting("rtl")):
        assert result.how == "RTL" and result.why == "", result
        assert result.above_formula and result.below_board, result
        assert result.ran is not None and sum(result.ran.spent.values()) == result.cycles
        assert result.microseconds is not None
        assert result.error == pytest.approx(result.microseconds / result.row.measured_us - 1)


def test_memory_of_a_slower_clock() -> None:
    """DRAM has its own clock: at 200 MHz a core gets five times the bytes per cycle, so it waits less."""
    row = BY_ID["MM-64x256x256"]
    slow = BoardRow(**{**row.__dict__, "clock_mhz": 200.0})
    fast, slower = measure(row, Setting("rtl")), measure(slow, Setting("rtl"))
    assert fast.cycles is not None and slower.cycles is not None
    assert slower.cycles < fast.cycles and slower.cycles / 200 > fast.cycles / 1000


@pytest.mark.heavy
def test_every_row_lies_between_formula_and_board_or_is_explained() -> None:
    results = validate(rows())
    for result in results:
        if result.row.cores > 1 and result.row.operation in board_runs.SHARED:
            assert result.ran is None and "divides only convolutions" in result.why
            continue
        assert result.ran is not None, (result.row.id, result.why)
        assert result.above_formula, result.row.id
        if not result.below_board:
            assert known_errors.reason(result.row) != "not known", result.row.id
        if result.ratio and result.ratio > 1.3 and result.how == "RTL":
            assert validate_text.explained(result), result.row.id
    found = {entry["family"]: entry for entry in families(results)}
    assert found["dense"]["median_error"] < 0.1
    assert found["models"]["median_error"] < 0.2


def _result(name: str, factor: float) -> Result:
    """A row with `factor` of its measured time."""
    row = BY_ID[name]
    cycles = round(row.measured_us * row.clock_mhz * factor)
    ran = board_runs.Ran(cycles, 1, 2, {"busy": cycles, "dpu": 0})
    return Result(row, board_runs.Bounds(cycles // 2, 1, cycles // 2), ran, "RTL")


def test_families_count_held_back_rows_only() -> None:
    held = [
        row.id for row in rows() if not row.excluded and row.half == "held back" and row.family == "dense"
    ]
    assert len(held) == 3
    results = [_result(name, factor) for name, factor in zip(held, (0.9, 0.8, 1.1), strict=True)]
    results += [_result("CHAN-70", 0.1), _result("CHAN-9", 0.1)]
    found = {entry["family"]: entry for entry in families(results)}
    assert found["dense"]["counted"] == 3 and found["dense"]["rows"] == 4
    assert found["dense"]["median_error"] == pytest.approx(0.1, abs=1e-3)
    assert found["dense"]["mean_error"] == pytest.approx(statistics.fmean((0.1, 0.2, 0.1)), abs=1e-3)
    assert found["dense"]["bias"] == pytest.approx(-0.0667, abs=1e-3)
    assert found["memory"]["run"] == 1 and found["memory"]["median_error"] is None


def test_models_hold_the_drivers_time() -> None:
    result = _result("ResNet50", 0.5)
    assert result.driver_us == 2 * SUBMIT_US
    assert result.error is not None and result.error_without_driver == pytest.approx(-0.5)
    assert result.error == pytest.approx(-0.5 + 2 * SUBMIT_US / 9080)
    assert _result("UNET-9", 0.5).driver_us == 0


def test_what_breaks_a_bound_is_named_with_its_reason() -> None:
    results = [_result("CHAN-4", 1.2), _result("UNET-9", 0.9)]
    (broken,) = validate_text.violations(results)
    assert broken["id"] == "CHAN-4" and broken["what"] == "above the board"
    assert broken["reason"].startswith("activations from the LUT")
    assert any("CHAN-4" in line for line in validate_text.findings(results))
    assert validate_text.findings(results[1:]) == [
        "every row takes at least the formula's cycles and at most the time measured"
    ]


def test_every_row_has_a_reason() -> None:
    """For every row, whatever its error is, the page states the reason as far as it is known."""
    for row in rows():
        assert known_errors.reason(row) != "not known", row.id


def test_the_fit_takes_the_least_error_that_keeps_below_boards() -> None:
    candidates = [
        Candidate(10.0, 0.1, ("CHAN-8",), ()),
        Candidate(12.0, 0.2, (), ()),
        Candidate(14.0, 0.3, (), ()),
    ]
    assert calibrate.choose(candidates).value == 12.0
    with pytest.raises(ValueError, match="slower than its board"):
        calibrate.choose(candidates[:1])


def test_fitted_rows_are_of_the_fitted_half() -> None:
    chosen = calibrate.fitted_rows()
    assert {"CHAN-8", "CHAN-9", "UNET-52", "MobileNetV1"} <= {row.id for row in chosen}
    for row in chosen:
        assert row.half == "fitted" and row.activation != "swish" and row.measured_us >= 300


SMALL_PLANS = ("UNET-64x34", "CHAN-102", "MM-64x256x256", "MM-256x1024x1024", "CHAN-8-three-cores")


def test_rows_with_the_plans_of_what_was_measured() -> None:
    """They take longer than ours, and the tasks and submits are those that the sources count."""
    ours = {r.row.id: r for r in validate([BY_ID[n] for n in SMALL_PLANS], setting=Setting("estimate"))}
    theirs = {r.row.id: r for r in validate([BY_ID[n] for n in SMALL_PLANS], setting=Setting(plan="rknn"))}
    for name in SMALL_PLANS[:4]:
        assert theirs[name].how == "estimator"
        assert (theirs[name].cycles or 0) > (ours[name].cycles or 0)
    assert "divides only convolutions" in ours["CHAN-8-three-cores"].why
    assert theirs["CHAN-8-three-cores"].below_board and theirs["CHAN-8-three-cores"].above_formula
    product = theirs["MM-256x1024x1024"].ran
    assert product is not None and (product.tasks, product.submits) == (16, 2)


def test_submits_of_products_are_those_that_were_counted() -> None:
    """The column "submits" of `notes-device-split` for its seven products."""
    sizes = (
        (64, 256, 256, 1),
        (128, 512, 512, 1),
        (256, 1024, 1024, 2),
        (512, 1024, 1024, 2),
        (512, 2048, 2048, 4),
        (512, 3840, 4096, 8),
        (1024, 3840, 4096, 16),
    )
    for m, k, n, submits in sizes:
        assert resident(m, k, n)[1] == submits


def test_products_of_a_language_model() -> None:
    """TinyLLAMA: 22 layers of 44 million weights and a head of 65.5 million, all read for each token."""
    model = LanguageModel(22, 2048, 2048, 256, 5632, 32000)
    assert model.weights() == 22 * 44_040_192 + 65_536_000
    assert model.macs(128) == 128 * 22 * 44_040_192 + 65_536_000
    assert model.products(1).total() == 22 * 7 + 1
    row = BY_ID["TinyLLAMA-1.1B-decode"]
    assert row.input == (22, 2048, 2048, 256, 5632, 32000) and row.output == (1,)
    refused = measure(row, Setting("rtl"))
    assert refused.ran is None and "only estimated" in refused.why


def rkcosim(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    return result.exit_code, result.stdout, result.stderr


def test_command(tmp_path: Path) -> None:
    out = tmp_path / "validate.json"
    code, text, errors = rkcosim("validate", "--rows", "UNET-22", "--rows", "MM-64x256x256", "--json", out)
    assert code == 0, errors
    assert re.search(r"UNET-22 +depthwise RTL", text)
    data = json.loads(out.read_text())
    assert [row["id"] for row in data["rows"]] == ["UNET-22", "MM-64x256x256"]
    assert [entry["family"] for entry in data["families"]] == list(FAMILIES)
    assert {"family", "rows", "median_error", "mean_error"} <= data["families"][0].keys()
    assert data["rows"][0]["rtl_above_formula"] is True and data["rows"][0]["how"] == "RTL"
    assert data["left_out"] and data["memory"] == "fitted"


def test_command_estimates_and_lists(tmp_path: Path) -> None:
    code, text, _ = rkcosim("validate", "--estimate", "--rows", "MM-1024x3840x4096", "--rows", "UNET-47")
    assert code == 0 and " RTL " not in text
    code, text, _ = rkcosim("validate", "--list", "--family", "memory")
    assert code == 0 and len(text.splitlines()) == 10
    code, text, _ = rkcosim("validate", "--constants", "--json", tmp_path / "constants.json")
    listed = json.loads((tmp_path / "constants.json").read_text())["constants"]
    assert code == 0 and len(listed) > 40 and all({"id", "value", "kind"} <= entry.keys() for entry in listed)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--rows", "UNET-99"), "UNET-99"),
        (("--rtl", "--estimate"), "--rtl and --estimate"),
        (("--rows", "UNET-22", "--page", "page.md"), "--page needs all rows"),
    ],
)
def test_command_refuses(arguments: tuple[str, ...], named: str) -> None:
    code, _, errors = rkcosim("validate", *arguments)
    assert code == 2 and named in errors and len(errors.strip().splitlines()) == 1


def test_page(tmp_path: Path) -> None:
    """Both sections of a page, from (invented) results of every row."""
    results = [_result(row.id, 0.9) for row in rows()]
    text = validate_text.section(results, families(results), Setting(), families(results))
    for row in rows():
        assert f"| {row.id} |" in text
    known = validate_text.errors_section(results)
    for entry in known_errors.KNOWN:
        assert entry.where in known
    page = tmp_path / "page.md"
    page.write_text("\n".join(line for name in SECTIONS for line in markers(name)) + "\n")
    code, _, errors = rkcosim("validate", "--constants", "--page", page)
    assert code == 0, errors
    assert "dram.read_latency" in read_section("constants", page)
