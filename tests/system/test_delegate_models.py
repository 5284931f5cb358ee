"""`benchmarks.delegate_models` on small files: records, resuming, divided graphs, refusals and the page."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tflite", reason="needs the extra tflite")
pytest.importorskip("ai_edge_litert", reason="needs the extra litert")
pytest.importorskip("onnxruntime", reason="needs the extra onnx")

from benchmarks import ort_nodes
from benchmarks.delegate_models import __main__ as command
from benchmarks.delegate_models.measure import check_parts
from benchmarks.delegate_models.page import good, page, state
from benchmarks.onnx_nodes import cases, with_constants
from benchmarks.ort_nodes import grouped, run_case, run_together
from benchmarks.public_models.files import Public
from tests.makers.litert_scripts import delegate, divided, inputs_of, interpreter, results, small
from tests.makers.ort_scripts import floats
from tests.programs import needs_program

pytestmark = needs_program("cc")


def test_a_folder_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Whole and divided graphs of both runtimes, and a file that LiteRT refuses; then nothing is repeated."""
    (tmp_path / "small.tflite").write_bytes(small())
    (tmp_path / "divided.tflite").write_bytes(divided())
    (tmp_path / "floats.onnx").write_bytes(floats((1, 3, "h", "w")))
    (tmp_path / "broken.tflite").write_bytes(small()[:200])
    names = ("small.tflite", "divided.tflite", "floats.onnx", "broken.tflite")
    files = [Public("Small files", "here", name) for name in names]
    monkeypatch.setattr(command, "FILES", [*files, Public("Small files", "here", "absent.tflite")])
    record, text = tmp_path / "results.json", tmp_path / "page.md"
    words = [str(tmp_path), "--results", str(record), "--page", str(text), "--rtl", "100000"]
    assert command.main(words) == 0
    known = json.loads(record.read_text())
    whole, two, open_sizes, refused = (known[name] for name in names)
    assert whole["result"]["equal"] and whole["plugin"]["taken"] == whole["plugin"]["operators"] == 3
    assert whole["plugin"]["cycles"] > 1000 and whole["plugin"]["engine"] == "verilator"
    assert 0 < whole["plugin"]["beside"] < whole["plugin"]["call"] < whole["plugin"]["start"]
    assert two["plugin"]["parts"] == 2 and [one["kind"] for one in two["plugin"]["left"]] == ["REVERSE_V2"]
    assert good(two) and (two["result"]["equal"] or two["parts"] == [True, True])
    assert open_sizes["result"]["equal"] and open_sizes["plugin"]["parts"] == 1
    assert refused["expected"] and "error" in refused and "error" in refused["alone"]
    written = text.read_text()
    assert "Of 4 files, 3 run. The NPU takes the whole graph of 2." in written
    assert "1 files are refused by the runtime itself" in written and "1 files of the list" in written
    assert "| small.tflite | all | 1 | equal | " in written and "| divided.tflite | 2 of 3 | 2 | " in written
    assert "| divided.tflite | REVERSE\\_V2: the delegate does not know this operator" in written
    assert len(capsys.readouterr().out.splitlines()) == 5
    monkeypatch.setattr(command, "record_of_process", lambda *_: pytest.fail("measured again"))
    assert command.main(words) == 0 and text.read_text() == written


def test_differences_are_found_and_shown(tmp_path: Path) -> None:
    made = delegate(parts=tmp_path)
    ours = interpreter(small(), [made])
    results(ours, inputs_of(ours, 1))
    assert check_parts(tmp_path) == [True]
    saved = np.load(tmp_path / "part-1-output-1.npy")
    saved.reshape(-1)[0] += 1
    np.save(tmp_path / "part-1-output-1.npy", saved)
    assert check_parts(tmp_path) == [False]
    row = {"name": "y", "elements": 10, "equal": False, "differing": 3, "steps": 2.0, "whole": False}
    record = {
        "stage": "done",
        "seconds": {},
        "formula_cycles": 1234,
        "plugin": {
            **{"operators": 3, "taken": 3, "parts": 1, "engine": "golden", "cycles": None, "left": []},
            **{"start": 1.0, "calls": 1, "call": 2.0, "simulated": 1.9, "beside": 0.1},
        },
        "result": {"equal": False, "outputs": [row | {"relative": 0.5}]},
        "plain_result": {"equal": False, "outputs": [row | {"relative": 0.5}]},
        "parts": [False],
    }
    assert not good(record) and "1 parts differ**; at most 2 steps in 3 of 10 elements" in state(record)
    item = Public("Small files", "here", "a.tflite")
    assert "| ~1,234 | 1.0 s | 2.0 s | 100 ms\\* |" in page({item: record}, [], 0)
    same = copy.deepcopy(record) | {"plain_result": {"equal": True, "outputs": []}}
    assert good(same) and "equal with the same kernels and optimisation" in state(same)


def test_node_tests_in_a_session_with_the_provider() -> None:
    case = next(cases("test_basic_conv_without_padding"))
    constant = with_constants(case)
    assert constant is not None
    assert run_case(constant).verdict == "npu" and run_case(case).verdict == "host"
    broken = copy.deepcopy(constant)
    broken.model.graph.node[0].op_type = "NoSuchOperator"
    (group,) = grouped([constant, case, broken], 8)
    assert [result.verdict for result in run_together(group)] == ["refused", "npu", "host"]
    names = [[one.name for one in found] for found in grouped([constant, case, constant], 2)]
    assert [len(found) for found in names] == [2, 1]
    assert [result.verdict for result in run_together([constant, case])] == ["npu", "host"]


def test_a_wrong_result_of_a_node_test_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    constant = with_constants(next(cases("test_basic_conv_without_padding")))
    assert constant is not None
    good = ort_nodes._results

    def spoiled(data: bytes, feeds: list[dict[str, Any]], given: dict[str, str] | None) -> list[list[Any]]:
        return [[array + (given is not None) for array in found] for found in good(data, feeds, given)]

    monkeypatch.setattr(ort_nodes, "_results", spoiled)
    result = run_case(constant)
    assert result.verdict == "wrong" and "9 of 9 elements differ" in result.text
