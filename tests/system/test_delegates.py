"""LiteRT's external delegate: interpreters on the simulated NPU, beside `rkcosim run` and LiteRT alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tflite", reason="needs the extra tflite")
pytest.importorskip("ai_edge_litert", reason="needs the extra litert")

from rkcosim.apis.litert.library import delegate_library
from rkcosim.hostops.quantise import dequantize
from rkcosim.measure.models.run import run_model
from tests.makers.litert_scripts import delegate, divided, inputs_of, interpreter, parts, results, small
from tests.makers.tflite_models import Tf
from tests.makers.tflite_networks import NETWORKS
from tests.programs import needs_program

pytestmark = needs_program("cc")

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "litert" / "classify.py"
STEPS = 3
"""Largest difference from LiteRT in steps, for random weights: each layer may round in another way."""


def children() -> set[int]:
    """Processes that this one has started and that have not ended."""
    own = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {int(pid) for file in own for pid in file.read_text().split()}


def of_run(path: Path, made: Any, values: list[np.ndarray], engine: str = "golden") -> list[np.ndarray]:
    """Results of `rkcosim run` as real numbers, with the channels last."""
    real = []
    for array, detail in zip(values, made.get_input_details(), strict=True):
        scale, zero = detail["quantization"]
        array = dequantize(array, scale, zero) if scale else array
        real.append(array.transpose(0, 3, 1, 2) if array.ndim == 4 else array)
    found = run_model(path, [real], engine=engine, check=False).results[0]
    return [array.transpose(0, 2, 3, 1) if array.ndim == 4 else array for array in found]


def real_results(made: Any, values: list[np.ndarray]) -> list[np.ndarray]:
    found = []
    for array, detail in zip(results(made, values), made.get_output_details(), strict=True):
        scale, zero = detail["quantization"]
        found.append(dequantize(array, scale, zero) if scale else array)
    return found


@pytest.mark.parametrize(
    "name", [name if name == "keywords" else pytest.param(name, marks=pytest.mark.heavy) for name in NETWORKS]
)
def test_whole_networks_equal_rkcosim_run(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.tflite"
    path.write_bytes(NETWORKS[name][0]())
    ours = interpreter(path.read_bytes(), [delegate()])
    assert parts(ours) == 1
    values = inputs_of(ours, 7)
    for mine, theirs in zip(real_results(ours, values), of_run(path, ours, values), strict=True):
        assert np.array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("dtype", "form"),
    [("uint8", ""), pytest.param("float32", "", marks=pytest.mark.heavy), ("float32", "float16")],
)
def test_types(dtype: str, form: str, tmp_path: Path) -> None:
    path = tmp_path / "small.tflite"
    path.write_bytes(small(dtype, form))
    ours = interpreter(path.read_bytes(), [delegate(check=1)])
    assert parts(ours) == 1
    values = inputs_of(ours, 3)
    (mine,), (theirs,) = real_results(ours, values), of_run(path, ours, values)
    assert np.array_equal(mine, theirs) and mine.any()


def test_floats_can_stay_with_litert() -> None:
    ours, alone = interpreter(small("float32"), [delegate(float="host")]), interpreter(small("float32"))
    values = inputs_of(ours, 3)
    assert parts(ours) == 0
    assert np.array_equal(results(ours, values)[0], results(alone, values)[0])


def test_a_divided_graph(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    made = delegate(check=1, json=file)
    ours, alone = interpreter(divided(), [made]), interpreter(divided())
    assert parts(ours) == 2
    for seed in range(3):
        values = inputs_of(ours, seed)
        for mine, theirs in zip(results(ours, values), results(alone, values), strict=True):
            assert np.abs(mine.astype(int) - theirs).max() <= STEPS
    del ours, made
    document = json.loads(file.read_text())
    assert [(run["inferences"], run["verdict"]["match"]) for run in document["models"]] == [(3, True)] * 2
    assert [(left["kind"], left["name"]) for left in document["left"]] == [("REVERSE_V2", "t5")]


def test_resized_inputs() -> None:
    ours, alone = interpreter(small(), [delegate()]), interpreter(small())
    for shape in ((1, 12, 10, 8), (3, 8, 8, 8), (1, 8, 8, 8)):
        for made in (ours, alone):
            made.resize_tensor_input(made.get_input_details()[0]["index"], list(shape))
            made.allocate_tensors()
        values = inputs_of(ours, 5)
        assert parts(ours) == 1 and values[0].shape == shape
        mine, theirs = results(ours, values)[0], results(alone, values)[0]
        assert mine.shape == theirs.shape and np.abs(mine.astype(int) - theirs).max() <= STEPS


def test_parameters_of_operators_arrive() -> None:
    """Each operator with parameters that differ from the defaults, beside LiteRT."""
    t = Tf(seed=4)
    x = t.conv(
        t.input((1, 12, 12, 8)), 16, 3, DilationHFactor=2, DilationWFactor=2, FusedActivationFunction=3
    )
    x = t.depthwise(x, 3, 1, Padding=1)
    item = t.items[x]
    x = t.add("LEAKY_RELU", [x], item.shape, scale=item.scale, Alpha=0.25)
    window = {"FilterHeight": 2, "FilterWidth": 2, "StrideH": 2, "StrideW": 2}
    x = t.add("MAX_POOL_2D", [x], (1, 5, 5, 16), Padding=1, scale=item.scale, **window)
    y = t.conv(x, 16, 1, scale=item.scale)
    x = t.add("CONCATENATION", [x, y], (1, 5, 5, 32), scale=item.scale, Axis=3)
    data = t.bytes(t.dense(x, 10, FusedActivationFunction=1))
    ours, alone = interpreter(data, [delegate(check=1)]), interpreter(data)
    assert parts(ours) == 1
    values = inputs_of(ours, 2)
    mine, theirs = results(ours, values)[0], results(alone, values)[0]
    assert np.abs(mine.astype(int) - theirs).max() <= STEPS and np.unique(theirs).size > 2


def test_threads_with_a_delegate_each_and_with_one_delegate() -> None:
    data, found = small(), {}
    shared = delegate()
    made = [interpreter(data, [shared]), interpreter(data, [shared]), interpreter(data, [delegate()])]
    pictures = [inputs_of(made[0], seed) for seed in range(3)]

    def run(number: int) -> None:
        found[number] = [results(made[number], picture)[0] for picture in pictures]

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(made))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    expected = [results(made[0], picture)[0] for picture in pictures]
    assert not np.array_equal(expected[0], expected[1])
    for number in range(len(made)):
        assert all(np.array_equal(a, b) for a, b in zip(found[number], expected, strict=True))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"engin": "golden"}, "did you mean engine"),
        ({"trace": "x.vcd"}, "writes no waveforms"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_options_are_errors_of_load_delegate(options: dict[str, str], text: str) -> None:
    before = children()
    with pytest.raises(ValueError, match="rkcosim: ") as raised:
        delegate(**options)
    assert text in str(raised.value)
    assert children() == before


def test_a_process_that_ends_is_an_error() -> None:
    before = children()
    made = delegate()
    (pid,) = children() - before
    ours = interpreter(small(), [made])
    values = inputs_of(ours, 0)
    results(ours, values)
    os.kill(pid, signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="the simulator's process has ended: signal 9"):
            results(ours, values)


def test_a_process_that_does_not_answer_is_an_error() -> None:
    before = children()
    made = delegate(timeout=1)
    (pid,) = children() - before
    ours = interpreter(small(), [made])
    values = inputs_of(ours, 0)
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(RuntimeError, match="has not answered within 1 s"):
        results(ours, values)
    assert pid not in children()


def test_a_forked_process_does_not_use_the_connection() -> None:
    code = f"""
import os, sys
sys.path.insert(0, {str(ROOT)!r})
from tests.makers.litert_scripts import *
ours = interpreter(small(), [delegate()])
values = inputs_of(ours, 0)
pid = os.fork()
if not pid:
    try:
        results(ours, values)
    except RuntimeError as error:
        os._exit(17 if "was forked" in str(error) else 18)
    os._exit(19)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), results(ours, values)[0].any())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.split() == ["17", "True"], done.stderr


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
    model, result, page = tmp_path / "m.tflite", tmp_path / "run.json", tmp_path / "run.html"
    model.write_bytes(NETWORKS["keywords"][0]())
    named = run_script(model, "--delegate", delegate_library(), "--option", "engine=golden")
    assert named.returncode == 0 and named.stdout.count("class") == 2, named.stderr
    start = (sys.executable, "-m", "rkcosim", "litert", "--engine", "golden", "--check", "--json", result)
    done = run_script(model, start=(*start, "--html", page, "--"))
    assert (done.returncode, done.stdout) == (0, named.stdout), done.stderr
    assert "MATCH: golden = task golden = graph golden" in done.stderr
    document = json.loads(result.read_text())
    assert document["exit_code"] == 0 and document["left"] == []
    assert [(run["model"], run["inferences"]) for run in document["models"]] == [("m.tflite", 2)]
    assert "m.tflite" in page.read_text()


def test_a_graph_with_sizes_that_depend_on_data(tmp_path: Path) -> None:
    """LiteRT refuses the delegate, with an exception without text, unless the option dynamic allows it."""
    t = Tf(seed=3)
    x = t.conv(t.input((1, 4, 4, 8)), 8)
    numbers = [t.tensor((), None, None, dtype="int32", data=np.array(n, np.int32)) for n in (1, 4, 4, 8)]
    sizes = t.tensor((4,), None, None, dtype="int32")
    t.nodes.append(("PACK", numbers, [sizes], {"ValuesCount": 4}))
    x = t.add("RESHAPE", [x, sizes], (1, 4, 4, 8), scale=t.items[x].scale)
    model = tmp_path / "m.tflite"
    model.write_bytes(t.bytes(t.conv(x, 4)))
    with pytest.raises(RuntimeError, match=r"^$"):
        interpreter(model.read_bytes(), [delegate()])
    file = tmp_path / "run.json"
    ours, alone = (
        interpreter(model.read_bytes(), [delegate(dynamic=1, json=file)]),
        interpreter(model.read_bytes()),
    )
    values = inputs_of(ours, 3)
    (mine,), (theirs,) = results(ours, values), results(alone, values)
    assert np.abs(mine.astype(int) - theirs).max() <= STEPS and np.unique(mine).size > 10
    ours.resize_tensor_input(ours.get_input_details()[0]["index"], [2, 4, 4, 8])
    with pytest.raises(RuntimeError, match="rkcosim: with the option dynamic, tensors keep the sizes"):
        ours.allocate_tensors()
    del ours
    (graph,) = json.loads(file.read_text())["graphs"]
    assert graph == {"operators": 4, "taken": 3}
    done = run_script(model, start=(sys.executable, "-m", "rkcosim", "litert", "--engine", "golden", "--"))
    assert done.returncode == 0 and done.stdout.count("class") == 2, done.stderr


def test_a_constant_that_the_runtime_uses_divides_nothing(tmp_path: Path) -> None:
    """Weights of float16 are converted by LiteRT if they are also an output, and again within the part."""
    t = Tf(seed=1, dtype="float32", form="float16")
    x = t.conv(t.input((1, 8, 8, 8)), 8)
    (weights,) = next(outputs for op, _, outputs, _ in t.nodes if op == "DEQUANTIZE")
    data, file = t.bytes(t.conv(x, 4), weights), tmp_path / "run.json"
    ours, alone = interpreter(data, [delegate(json=file)]), interpreter(data)
    assert parts(ours) == 1
    values = inputs_of(ours, 3)
    for mine, theirs in zip(results(ours, values), results(alone, values), strict=True):
        assert np.abs(mine - theirs).max() <= 0.01 * np.abs(theirs).max() and mine.any()
    del ours
    document = json.loads(file.read_text())
    assert [left["kind"] for left in document["left"]] == ["DEQUANTIZE"]
    assert "its result is constant, and the runtime uses it" in document["left"][0]["reason"]


def test_the_parts_are_files_that_rkcosim_run_computes_alike(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    ours = interpreter(divided(), [delegate(parts=folder)])
    results(ours, inputs_of(ours, 3))
    for name in ("part-1", "part-2"):
        values = [np.load(folder / f"{name}-input-1.npy")]
        (found,) = run_model(folder / f"{name}.tflite", [values], engine="golden", check=False).results[0]
        assert np.array_equal(found, np.load(folder / f"{name}-output-1.npy")) and found.any()


def test_on_the_rtl_with_a_timeline(tmp_path: Path) -> None:
    pytest.importorskip("perfetto", reason="needs the extra waves")
    path, timeline, file = tmp_path / "m.tflite", tmp_path / "run.perfetto-trace", tmp_path / "run.json"
    path.write_bytes(small())
    made = delegate(engine="verilator", cores=2, timeline=timeline, json=file, check=1)
    ours = interpreter(path.read_bytes(), [made])
    values = inputs_of(ours, 7)
    (mine,), (theirs,) = real_results(ours, values), of_run(path, ours, values)
    assert np.array_equal(mine, theirs)
    del ours, made
    (run,) = json.loads(file.read_text())["models"]
    assert run["cycles"] > 1000 and run["verdict"]["match"] is True and run["cores"] == 2
    assert timeline.stat().st_size > 1000
