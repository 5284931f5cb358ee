"""onnxruntime's execution provider: sessions on the simulated NPU, beside `rkcosim run` and the processor."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

import onnxruntime

from rkcosim.apis.ort.library import provider_library
from rkcosim.measure.models.run import run_model
from tests.makers.ort_scripts import (
    NAME,
    bodies,
    divided,
    flattened,
    floats,
    inputs_of,
    registered,
    results,
    session,
)
from tests.makers.rknn_models import image_model
from tests.programs import needs_program

pytestmark = needs_program("cc")

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"
SCRIPT = ROOT / "examples" / "ort" / "classify.py"
HALF = 2.0**-11
"""Half a step of fp16, relative."""


def children() -> set[int]:
    """Processes that this one has started and that have not ended."""
    own = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {int(pid) for file in own for pid in file.read_text().split()}


def of_run(path: Path, values: dict[str, np.ndarray], engine: str = "golden") -> list[np.ndarray]:
    """Results of `rkcosim run`."""
    return run_model(path, [list(values.values())], engine=engine, check=False).results[0]


def digits() -> dict[str, np.ndarray]:
    """One of the pictures that the network was not trained with, as `rkcosim run` reads it."""
    with np.load(DIGITS.parent / "held_back.npz") as file:
        picture = file["images"][7].astype(np.float32) * file["scale"]
    return {"image": picture.reshape(1, 1, 16, 16)}


def test_whole_networks_equal_rkcosim_run(tmp_path: Path) -> None:
    real = tmp_path / "floats.onnx"
    real.write_bytes(floats())
    for path in (DIGITS, real):
        file = tmp_path / "run.json"
        made = session(path, check=1, json=file)
        values = digits() if path == DIGITS else inputs_of(made, 7)
        mine = results(made, values)
        del made
        for ours, theirs in zip(mine, of_run(path, values), strict=True):
            assert np.array_equal(ours, theirs) and ours.any()
        document = json.loads(file.read_text())
        assert [(run["model"], run["verdict"]["match"]) for run in document["models"]] == [(path.name, True)]
        assert document["left"] == []


@pytest.mark.parametrize("way", ["devices", "policy"])
def test_other_ways_to_select_the_provider(way: str) -> None:
    registered()
    options = onnxruntime.SessionOptions()
    if way == "devices":
        found = [device for device in onnxruntime.get_ep_devices() if device.ep_name == NAME]
        assert [device.device.type for device in found] == [onnxruntime.OrtHardwareDeviceType.NPU]
        options.add_provider_for_devices(found, {"engine": "golden"})
    else:
        options.set_provider_selection_policy(onnxruntime.OrtExecutionProviderDevicePolicy.PREFER_NPU)
        options.add_session_config_entry("ep.rkcosim.engine", "golden")
    made = onnxruntime.InferenceSession(image_model(), options)
    assert made.get_providers()[0] == NAME
    values = inputs_of(made, 7)
    (ours,), (theirs,) = results(made, values), results(session(image_model(), alone=True), values)
    assert np.abs(ours - theirs).max() <= 1  # a step of the output


def test_a_divided_graph(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    ours, alone = session(divided(), check=1, json=file), session(divided(), alone=True)
    for seed in range(3):
        values = inputs_of(ours, seed)
        for mine, theirs in zip(results(ours, values), results(alone, values), strict=True):
            assert np.abs(mine - theirs).max() <= 1 and np.unique(mine).size > 10
    del ours
    document = json.loads(file.read_text())
    assert [(run["inferences"], run["verdict"]["match"]) for run in document["models"]] == [(3, True)] * 2
    assert [left["kind"] for left in document["left"]] == ["CumSum"]


def test_floats_can_stay_with_onnxruntime(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    ours, alone = session(floats(), float="host", json=file), session(floats(), alone=True)
    values = inputs_of(ours, 3)
    assert np.array_equal(results(ours, values)[0], results(alone, values)[0])
    del ours
    document = json.loads(file.read_text())
    assert document["models"] == [] and {left["kind"] for left in document["left"]} >= {"Conv", "MaxPool"}


def test_attributes_open_sizes_and_nodes_with_subgraphs() -> None:
    data = floats((1, 3, "height", "width"), body=True)
    ours, alone = session(data, check=1), session(data, alone=True)
    for height, width in ((6, 10), (9, 7), (6, 10)):
        values = inputs_of(ours, 4, {"height": height, "width": width})
        (mine,), (theirs,) = results(ours, values), results(alone, values)
        assert mine.shape == theirs.shape == (1, 8, -(-height // 2) - 1, -(-width // 2) - 1)
        assert np.allclose(mine, theirs, rtol=4 * HALF, atol=0.5) and not np.array_equal(mine, np.abs(mine))


@pytest.mark.parametrize(("kind", "runs"), [("If", 1), ("Loop", 3), ("Scan", 4)])
def test_nodes_inside_bodies_run_on_the_npu(kind: str, runs: int, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    ours, alone = session(bodies(kind), check=1, json=file), session(bodies(kind), alone=True)
    for sign in (1, -1):  # both branches of the If
        values = {name: sign * np.abs(array) for name, array in inputs_of(ours, 4).items()}
        for mine, theirs in zip(results(ours, values), results(alone, values), strict=True):
            limit = 64 * HALF * np.abs(theirs).max()
            assert mine.shape == theirs.shape and np.abs(mine - theirs).max() <= limit and mine.any()
    del ours
    document = json.loads(file.read_text())
    assert kind in {left["kind"] for left in document["left"]}
    assert len(document["graphs"]) == (3 if kind == "If" else 2)
    assert all(graph["taken"] for graph in document["graphs"])
    assert all(run["verdict"]["match"] is True for run in document["models"])
    calls = sorted(run["inferences"] for run in document["models"])
    assert calls[0] == (1 if kind == "If" else 2) and calls[-1] >= 2 * runs / (2 if kind == "If" else 1)


def test_scalars_and_shape_arithmetic_are_in_the_part(tmp_path: Path) -> None:
    """A Reshape to sizes that are computed, as exporters write a flattening, divides nothing."""
    file = tmp_path / "run.json"
    data = flattened()
    ours, alone = session(data, plain=True, json=file), session(data, alone=True)
    for batch in (1, 3):
        values = inputs_of(ours, 4, {"batch": batch})
        (mine,), (theirs,) = results(ours, values), results(alone, values)
        assert mine.shape == theirs.shape == (batch, 5)
        assert np.abs(mine - theirs).max() <= 8 * HALF * np.abs(theirs).max()
    del ours
    (graph,) = json.loads(file.read_text())["graphs"]
    assert graph["taken"] == graph["operators"] == 7


def test_threads_with_a_session_each_and_with_one_session() -> None:
    data, found = image_model(), {}
    shared = session(data)
    made = [shared, shared, session(data)]
    pictures = [inputs_of(shared, seed) for seed in range(3)]

    def run(number: int) -> None:
        found[number] = [results(made[number], picture)[0] for picture in pictures]

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(made))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    expected = [results(shared, picture)[0] for picture in pictures]
    assert not np.array_equal(expected[0], expected[1])
    for number in range(len(made)):
        assert all(np.array_equal(a, b) for a, b in zip(found[number], expected, strict=True))


def test_a_wrong_option_is_an_error_of_the_session() -> None:
    before = children()
    with pytest.raises(Exception, match="INVALID_ARGUMENT : rkcosim: ") as raised:
        session(image_model(), engin="golden")
    assert "did you mean engine" in str(raised.value)
    assert children() == before


def test_a_process_that_ends_is_an_error() -> None:
    before = children()
    made = session(image_model())
    (pid,) = children() - before
    values = inputs_of(made, 0)
    results(made, values)
    os.kill(pid, signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(Exception, match="rkcosim: the simulator's process has ended: signal 9"):
            results(made, values)
    assert pid not in children()


def test_a_runtime_with_another_interface_is_an_error_of_the_registration() -> None:
    before = onnxruntime.get_available_providers()
    with pytest.raises(Exception, match="does not have version 9999 of the C interface") as raised:
        onnxruntime.register_execution_provider_library("another", str(provider_library(api=9999)))
    assert f"rkcosim: onnxruntime {onnxruntime.__version__}" in str(raised.value)
    assert onnxruntime.get_available_providers() == before


def run_script(*arguments: object, start: tuple[object, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [*start, sys.executable, SCRIPT, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment,
    )


def test_the_example_runs_unchanged_by_the_command_and_with_the_option(tmp_path: Path) -> None:
    result, page = tmp_path / "run.json", tmp_path / "run.html"
    named = run_script(DIGITS, "--provider", provider_library(), "--option", "engine=golden")
    assert named.returncode == 0 and named.stdout.count("class") == 2, named.stderr
    start = (sys.executable, "-m", "rkcosim", "ort", "--engine", "golden", "--check", "--json", result)
    done = run_script(DIGITS, start=(*start, "--html", page, "--"))
    assert (done.returncode, done.stdout) == (0, named.stdout), done.stderr
    assert "MATCH: golden = task golden = graph golden" in done.stderr
    document = json.loads(result.read_text())
    assert document["exit_code"] == 0 and document["left"] == []
    assert [(run["model"], run["inferences"]) for run in document["models"]] == [("digits_int8.onnx", 2)]
    assert "digits_int8.onnx" in page.read_text()


def test_on_the_rtl_with_a_timeline(tmp_path: Path) -> None:
    pytest.importorskip("perfetto", reason="needs the extra waves")
    path, timeline, file = tmp_path / "m.onnx", tmp_path / "run.perfetto-trace", tmp_path / "run.json"
    path.write_bytes(image_model(dtype=np.uint8))
    made = session(path, engine="verilator", cores=2, timeline=timeline, json=file, check=1)
    values = inputs_of(made, 7)
    (mine,), (theirs,) = results(made, values), of_run(path, values)
    assert np.array_equal(mine, theirs)
    del made
    (run,) = json.loads(file.read_text())["models"]
    assert run["cycles"] > 100 and run["verdict"]["match"] is True and run["cores"] == 2
    assert timeline.stat().st_size > 1000
