"""Published measurements compared with the RTL: the table, the row selection, bounds, and measured rows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from rkcosim.cli.main import app
from rkcosim.measure.perf.boards import known_errors, layers, terms
from rkcosim.measure.perf.boards import runs as board_runs
from rkcosim.measure.perf.boards import text as validate_text
from rkcosim.measure.perf.boards.language import LanguageModel
from rkcosim.measure.perf.boards.matmul_plans import resident
from rkcosim.measure.perf.boards.table import FAMILIES, LAYERS, BoardRow, rows
from rkcosim.measure.perf.boards.validate import Result, Setting, errors_of, families, measure, validate
from rkcosim.measure.perf.page import SECTIONS, markers, read_section
from rkcosim.spec.submit import SUBMIT_US
from tools import calibrate
from tools.calibrate import Candidate
from tools.provenance import TABLE_SOURCES

BY_ID = {row.id: row for row in rows()}
MEASUREMENTS = Path(__file__).parents[2] / "docs" / "reference" / "12-measurements.md"

QUICK = ("UNET-64x34", "UNET-22", "CHAN-102", "CHAN-88", "MM-64x256x256", "YV10-119", "YV10-121", "CHAN-42")
"""Rows of a few hundred thousand cycles, from four families."""


def test_every_row_is_whole() -> None:
    assert len(BY_ID) == len(rows()) >= 316
    assert {row.family for row in rows()} == set(FAMILIES)
    for row in rows():
        assert 0 < row.low_us <= row.high_us and row.clock_mhz in (200, 800, 1000), row
        assert (row.operation in layers.OPERATIONS) == (row.family in (*LAYERS, "operators")), row


def test_every_profile_has_rows_of_both_halves() -> None:
    for series in terms.PROFILES:
        of = [row for row in rows() if row.series == series]
        assert {row.half for row in of} == {"fitted", "held back"}, series
        assert all(row.family in LAYERS for row in of), series
    assert {row.series for row in rows()} == {"", *terms.SERIES}


def test_the_halves_stay_as_they_were() -> None:
    """The halves are chosen by a hash of the row's id, which does not depend on other rows."""
    earlier = (
        "CHAN-9 UNET-52 MM-1024x3840x4096 MM-512x1024x1024 CLE-fp16 MobileNetV1 CHAN-20 Qwen2-0.5B-prefill"
    )
    assert {BY_ID[name].half for name in earlier.split()} == {"fitted"}
    later = "UNET-6 UNET-9 UNET-47 CHAN-48 CHAN-55 CHAN-56 ResNet50 MobileNetV2 CLE-int8 MM-512x2048x2048"
    assert {BY_ID[name].half for name in later.split()} == {"held back"}


def test_terms_are_fitted_to_the_fitted_half_only() -> None:
    for name, fitted in terms.fitted().items():
        assert fitted.value >= 0 and name in terms.TERMS
        assert {BY_ID[row].half for row in fitted.rows} == {"fitted"}, name
        included = (set(terms.outside(BY_ID[row])) | {terms.STREAM} for row in fitted.rows)
        assert all(name in names for names in included), name


def test_the_constant_of_a_profile_is_the_one_with_the_least_relative_error() -> None:
    """Of three rows, two agree; the third, which is ten times as long, does not move the constant."""
    results = [
        _result(name, factor) for name, factor in (("UNET-22", 0.5), ("UNET-23", 0.4), ("UNET-47", 0.9))
    ]
    fit = calibrate.constant(results)
    assert fit is not None and fit.rows == ("UNET-22", "UNET-23", "UNET-47")

    def mean(value: float) -> float:
        return sum(abs((r.npu_us or 0) + value - r.row.measured_us) / r.row.measured_us for r in results)

    assert all(mean(fit.value) <= mean(other) + 1e-3 for other in (0.0, 20.0, 24.0, 30.0, 300.9))
    assert calibrate.constant([]) is None


OTHER_SIZES = {"pad": (16, 14, 14), "slice": (8, 12, 12), "conv": (8, 12, 12), "conv+add": (8, 12, 12)}
"""Output sizes of operations that do not keep C x H x W."""


@pytest.mark.parametrize("operation", sorted(layers.OPERATIONS))
def test_every_operation_of_a_layer_has_a_model(operation: str) -> None:
    """A small layer of each operation gives a model whose last input has the sizes of the row."""
    import onnx

    row = next(r for r in rows() if r.operation == operation)
    output = OTHER_SIZES.get(operation, (16, 12, 12))
    window = {"kernel": 1, "stride": 1, "pad": 0} if operation.startswith("conv") else {}
    small = BoardRow(**{**row.__dict__, "input": (16, 12, 12), "output": output, **window})
    graph = onnx.load_from_string(layers.model_of(small, 16)).graph
    (_, *sizes) = (side.dim_value for side in graph.input[-1].type.tensor_type.shape.dim)
    expected = {
        "conv+add": output,
        "concat": (4, 12, 12),
        "mul-channel": (16, 1, 1),
        "add-channel": (16, 1, 1),
    }
    assert tuple(sizes) == expected.get(operation, (16, 12, 12))


def test_operations_that_this_compiler_leaves_to_the_host_are_rows_without_a_time() -> None:
    small = BoardRow(**{**BY_ID["UNET-61"].__dict__, "input": (16, 4, 4), "output": (4, 4, 1, 16)})
    result = measure(small, Setting("estimate"))
    assert result.ran is None and "to the host" in result.why


def test_bounds_are_the_published_columns() -> None:
    """NPU cycles exactly, DRAM cycles within rounding and the bytes of biases."""
    text = MEASUREMENTS.read_text("utf-8").split("Selected rows")[1].split(TABLE_SOURCES)[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    compared = 0
    for row in rows():
        if row.section != "12.6":
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
        if result.ran is None:
            assert "to the host" in result.why, (result.row.id, result.why)
            continue
        assert result.above_formula, result.row.id
        if not result.below_board:
            assert known_errors.reason(result.row) != "not known", result.row.id
        if result.ratio and result.ratio > 1.3 and result.how == "RTL":
            assert validate_text.explained(result), result.row.id
    found = {entry.family: entry for entry in families(results)}
    assert found["conv"].held_back.median < 0.15
    assert found["models"].held_back.median < 0.2


def _result(name: str, factor: float) -> Result:
    """A row with `factor` of its measured time."""
    row = BY_ID[name]
    cycles = round(row.measured_us * row.clock_mhz * factor)
    ran = board_runs.Ran(cycles, 1, 2, {"busy": cycles, "dpu": 0})
    return Result(row, board_runs.Bounds(cycles // 2, 1, cycles // 2), ran, "RTL")


def test_families_have_all_rows_and_the_held_back_ones() -> None:
    """Errors of rows without terms; the 90th percentile is the nearest rank."""
    held = [row.id for row in rows() if row.family == "matmul" and row.half == "held back"]
    fitted = [row.id for row in rows() if row.family == "matmul" and row.half == "fitted"]
    results = [_result(name, factor) for name, factor in zip(held, (0.9, 0.8, 1.1), strict=False)]
    results += [_result(fitted[0], 0.1), _result("UNET-6", 1.0), Result(BY_ID["UNET-61"], why="not run")]
    found = {entry.family: entry for entry in families(results)}
    assert list(found) == [*FAMILIES, "layers", "all"]
    assert (found["matmul"].published, found["matmul"].every.rows, found["matmul"].held_back.rows) == (
        4,
        4,
        3,
    )
    assert found["matmul"].held_back.median == pytest.approx(0.1, abs=1e-3)
    assert found["matmul"].held_back.p90 == pytest.approx(0.2, abs=1e-3)
    assert found["matmul"].held_back.bias == pytest.approx(-0.0667, abs=1e-3)
    assert found["transpose"].published == 1 and found["transpose"].every.median is None
    assert (found["all"].published, found["all"].every.rows) == (6, 5)
    constant = terms.value("profiling of unet-256") / BY_ID["UNET-6"].measured_us
    assert found["layers"].every.bias == pytest.approx(constant, abs=1e-3)
    assert found["layers"].plain.bias == pytest.approx(0, abs=1e-3)
    assert errors_of([]).rows == 0


def test_models_hold_the_drivers_time() -> None:
    result = _result("ResNet50", 0.5)
    assert result.terms == {"submit": 5.0, "interrupt": 4.0, "wake-up": 36.0}
    assert result.error is not None and result.error_without_terms == pytest.approx(-0.5)
    assert result.error == pytest.approx(-0.5 + 2 * SUBMIT_US / 9080)
    assert _result("MM-512x2048x2048", 0.5).outside_us == 0


def test_layers_of_a_profile_hold_what_profiling_adds() -> None:
    result = _result("UNET-9", 0.5)
    added = terms.value("profiling of unet-256")
    assert result.terms == {"profiling of unet-256": added}
    assert result.error == pytest.approx(-0.5 + added / BY_ID["UNET-9"].measured_us)
    assert result.as_json()["terms_us"] == {"profiling of unet-256": added}


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
    assert re.search(r"UNET-22 +depthwise +RTL", text)
    data = json.loads(out.read_text())
    assert [row["id"] for row in data["rows"]] == ["UNET-22", "MM-64x256x256"]
    assert [entry["family"] for entry in data["families"]] == [*FAMILIES, "layers", "all"]
    assert {"rows", "median", "p90", "bias"} == data["families"][0]["held_back"].keys()
    assert data["rows"][0]["rtl_above_formula"] is True and data["rows"][0]["how"] == "RTL"
    assert data["left_out"] and data["memory"] == "fitted"


def test_command_estimates_and_lists(tmp_path: Path) -> None:
    code, text, _ = rkcosim("validate", "--estimate", "--rows", "MM-1024x3840x4096", "--rows", "UNET-47")
    assert code == 0 and " RTL " not in text
    code, text, _ = rkcosim("validate", "--list", "--family", "pooling")
    assert code == 0 and len(text.splitlines()) == 7
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
