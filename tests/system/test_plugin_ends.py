"""Plug-ins of LiteRT and onnxruntime when something goes wrong: damaged models, ends, kills, forks."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tflite", reason="needs the extra tflite")
pytest.importorskip("ai_edge_litert", reason="needs the extra litert")
pytest.importorskip("onnxruntime", reason="needs the extra onnx")

from tests.extent import extent
from tests.makers import ort_scripts as ort
from tests.makers.litert_scripts import delegate, inputs_of, interpreter, results, small
from tests.makers.rknn_models import image_model
from tests.programs import needs_program

pytestmark = needs_program("cc")

ROOT = Path(__file__).resolve().parents[2]


def children() -> set[int]:
    """Processes that this one has started and that have not ended."""
    own = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {int(pid) for file in own for pid in file.read_text().split()}


def python(code: str, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program with the modules of the tests."""
    begin = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n"
    command = [sys.executable, "-c", begin + code, *map(str, arguments)]
    environment = {**os.environ, **variables}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)


DAMAGED = """
import os
import numpy as np
from tests.makers.litert_scripts import *
from tests.makers import ort_scripts as ort
from tests.makers.rknn_models import image_model

out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # onnxruntime prints messages
runtime, plugin, numbers = sys.argv[1], sys.argv[2] == "1", [int(n) for n in sys.argv[3:]]
data = small() if runtime == "litert" else image_model()
shared = delegate() if runtime == "litert" and plugin else None
for number in numbers:
    rng, changed = np.random.default_rng(number), bytearray(data)
    for place in rng.integers(0, len(data), 1 + number % 4):
        changed[place] = rng.integers(256)
    if number % 5 == 0:
        changed = changed[: rng.integers(len(changed))]
    print(number, end=" ", file=out, flush=True)
    try:
        if runtime == "litert":
            made = interpreter(bytes(changed), [shared] if shared else [])
            found = results(made, inputs_of(made, 0))
        else:
            made = ort.session(bytes(changed), alone=not plugin)
            found = ort.results(made, ort.inputs_of(made, 0))
    except Exception as error:
        text = " ".join(str(error).split())
        print("ours" if "rkcosim:" in text else "error", text[:200], file=out, flush=True)
    else:
        print("ran", file=out, flush=True)
"""


@pytest.mark.parametrize(
    ("runtime", "count"),
    [
        ("litert", extent(30, 120)),
        ("onnxruntime", 10),
        pytest.param("onnxruntime", 100, marks=pytest.mark.heavy),
    ],
)
def test_damaged_models_run_or_are_errors(runtime: str, count: int) -> None:
    """What the runtime alone refuses stays refused, and no damage ends a process that it alone survives."""
    alone: dict[int, str] = {}
    left = list(range(count))
    while left:  # the runtime itself does not survive all of them
        done = python(DAMAGED, runtime, 0, *left)
        alone |= verdicts(done.stdout)
        left = [number for number in left if number not in alone and number != last(done.stdout)]
    assert len(alone) > 0.8 * count
    with_plugin = python(DAMAGED, runtime, 1, *alone)
    assert with_plugin.returncode == 0, with_plugin.stderr
    found = verdicts(with_plugin.stdout)
    assert found.keys() == alone.keys()
    worse = {
        n: (alone[n], found[n]) for n in alone if (alone[n], found[n]) in (("ran", "error"), ("error", "ran"))
    }
    assert not worse
    assert {*found.values()} >= {"ran", "error"}


def verdicts(text: str) -> dict[int, str]:
    lines = [line.split() for line in text.splitlines()]
    return {int(words[0]): words[1] for words in lines if len(words) > 1}


def last(text: str) -> int | None:
    """Return the number of the model at which a process ended."""
    words = text.splitlines()[-1].split() if text else []
    return int(words[0]) if len(words) == 1 else None


def test_values_that_cannot_be_quantised_are_an_error_and_the_session_goes_on() -> None:
    made = ort.session(image_model())
    values = ort.inputs_of(made, 3)
    bad = {name: np.where(array == array.max(), np.nan, array) for name, array in values.items()}
    before = ort.results(made, values)
    with pytest.raises(Exception, match="rkcosim: input 'x': values are not all finite"):
        ort.results(made, bad)
    assert np.array_equal(ort.results(made, values)[0], before[0])


@pytest.mark.parametrize("order", ["delegate first", "interpreter first", "two interpreters"])
def test_interpreter_and_delegate_end_in_any_order(order: str, tmp_path: Path) -> None:
    before, file = children(), tmp_path / "run.json"
    made = delegate(json=file)
    ours = interpreter(small(), [made])
    values = inputs_of(ours, 0)
    expected = results(ours, values)
    runs = 1
    if order == "delegate first":
        del made
        assert np.array_equal(results(ours, values)[0], expected[0])  # the interpreter keeps the delegate
        runs = 2
        del ours
    elif order == "interpreter first":
        del ours
        gc.collect()
        again = interpreter(small(), [made])
        assert np.array_equal(results(again, values)[0], expected[0])
        runs = 2
        del again, made
    else:
        other = interpreter(small(), [made])
        del ours, made
        gc.collect()
        assert np.array_equal(results(other, values)[0], expected[0])
        runs = 2
        del other
    gc.collect()
    assert children() == before
    assert sum(run["inferences"] for run in json.loads(file.read_text())["models"]) == runs


def test_a_destroyed_delegate_is_an_error_of_its_interpreters() -> None:
    from ctypes import c_void_p

    made = delegate()
    ours = interpreter(small(), [made])
    values = inputs_of(ours, 0)
    results(ours, values)
    made._library.tflite_plugin_destroy_delegate.argtypes = [c_void_p]
    made._library.tflite_plugin_destroy_delegate(made._get_native_delegate_pointer())
    with pytest.raises(RuntimeError, match="rkcosim: the plug-in was destroyed"):
        results(ours, values)
    with pytest.raises(RuntimeError):
        ours.resize_tensor_input(ours.get_input_details()[0]["index"], [1, 10, 10, 8])
        ours.allocate_tensors()
    del ours  # the delegate is destroyed a second time, without effect


END = """
from tests.makers.litert_scripts import *
from tests.makers import ort_scripts as ort
from tests.makers.rknn_models import image_model
import gc, sys
gc.disable()
mine = delegate(json=sys.argv[1])
first = interpreter(small(), [mine])
results(first, inputs_of(first, 0))
second = ort.session(image_model(), json=sys.argv[2])
ort.results(second, ort.inputs_of(second, 0))
circle = [first, second]
circle.append(circle)
if len(sys.argv) > 3:
    raise ValueError("the script fails")
"""


@pytest.mark.parametrize("fails", [False, True], ids=["ends", "fails"])
def test_results_are_written_at_the_end_of_a_script(fails: bool, tmp_path: Path) -> None:
    files = [tmp_path / "litert.json", tmp_path / "ort.json"]
    done = python(END, *files, *(["fail"] if fails else []))
    assert done.returncode == int(fails) and ("the script fails" in done.stderr) == fails
    for file in files:
        (run,) = json.loads(file.read_text())["models"]
        assert run["inferences"] == 1


def test_a_library_may_be_unregistered_before_its_sessions_end() -> None:
    code = """
import onnxruntime
from tests.makers.ort_scripts import *
from tests.makers.rknn_models import image_model
made, other = session(image_model()), session(image_model())
values = inputs_of(made, 0)
expected = results(made, values)
onnxruntime.unregister_execution_provider_library(NAME)
assert NAME not in onnxruntime.get_available_providers()
assert np.array_equal(results(made, values)[0], expected[0])
del made
registered()
again = session(image_model())
assert np.array_equal(results(again, values)[0], expected[0])
assert np.array_equal(results(other, values)[0], expected[0])
print("good")
"""
    done = python(code)
    assert (done.returncode, done.stdout.strip()) == (0, "good"), done.stderr


def test_a_process_that_is_killed_during_a_call_is_an_error() -> None:
    before = children()
    made = delegate()
    (pid,) = children() - before
    ours = interpreter(small(size=96), [made])
    values = inputs_of(ours, 0)
    results(ours, values)
    stopped = threading.Event()

    def kill() -> None:
        time.sleep(0.02)
        os.kill(pid, signal.SIGKILL)
        stopped.set()

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(RuntimeError, match="rkcosim: the simulator's process has ended: signal 9"):
        while not stopped.wait(0):
            results(ours, values)
        results(ours, values)
    thread.join()
    with pytest.raises(RuntimeError, match="rkcosim: the simulator's process has ended"):
        interpreter(small(), [made])
    again = interpreter(small(size=96), [delegate()])
    assert results(again, values)[0].any()


def test_a_killed_process_is_an_error_of_a_new_session_only_for_its_own() -> None:
    before = children()
    first = ort.session(image_model())
    (pid,) = children() - before
    second = ort.session(image_model())
    values = ort.inputs_of(first, 0)
    expected = ort.results(second, values)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(Exception, match="rkcosim: the simulator's process has ended: signal 9"):
        ort.results(first, values)
    del first
    assert np.array_equal(ort.results(second, values)[0], expected[0])


def test_a_forked_process_cannot_use_the_session() -> None:
    code = """
import os
from tests.makers.ort_scripts import *
from tests.makers.rknn_models import image_model
ours = session(image_model())
values = inputs_of(ours, 0)
expected = results(ours, values)
pid = os.fork()
if not pid:
    try:
        results(ours, values)
    except Exception as error:
        os._exit(17 if "rkcosim: this process was forked" in str(error) else 18)
    os._exit(19)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), np.array_equal(results(ours, values)[0], expected[0]))
"""
    done = python(code)
    assert done.stdout.split() == ["17", "True"], done.stderr


def test_two_threads_make_and_use_their_own_at_the_same_time() -> None:
    data, found, errors = small(), {}, []
    barrier = threading.Barrier(2)

    def run(number: int) -> None:
        try:
            barrier.wait(60)
            made = interpreter(data, [delegate()])
            session: Any = ort.session(image_model())
            found[number] = [
                *(results(made, inputs_of(made, seed))[0] for seed in range(3)),
                *(ort.results(session, ort.inputs_of(session, seed))[0] for seed in range(3)),
            ]
        except Exception as error:
            errors.append(error)

    ort.registered()
    threads = [threading.Thread(target=run, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert not errors
    assert len(found[0]) == 6 and all(map(np.array_equal, found[0], found[1]))
    assert not np.array_equal(found[0][0], found[0][1])


SANITIZED = """
import gc
import onnxruntime
from ai_edge_litert.interpreter import load_delegate
from rkcosim.apis.litert.library import delegate_library
from rkcosim.apis.ort.library import provider_library
from tests.makers import litert_scripts as litert
from tests.makers.ort_scripts import *
from tests.makers.rknn_models import image_model

onnxruntime.register_execution_provider_library(NAME, str(provider_library(sanitize=True)))
for data in (bodies("Loop"), divided(), floats((1, 3, "h", "w"), body=True)):
    made = session(data)
    for height in (6, 9):
        values = inputs_of(made, 1, {"h": height, "w": 10})
        results(made, values)
whole = inputs_of(session(image_model()), 0)
bad = {name: array * np.nan for name, array in whole.items()}
for wrong in (lambda: session(image_model(), engin="x"), lambda: results(session(image_model()), bad)):
    try:
        wrong()
    except Exception:
        print("error")
onnxruntime.unregister_execution_provider_library(NAME)
results(made, values)
del made
for data in (litert.small(), litert.divided()):
    delegate = load_delegate(str(delegate_library(sanitize=True)), {"engine": "golden"})
    made = litert.interpreter(data, [delegate])
    litert.results(made, litert.inputs_of(made, 0))
    made.resize_tensor_input(made.get_input_details()[0]["index"], [2, 10, 10, 8])
    made.allocate_tensors()
    del delegate
    litert.results(made, litert.inputs_of(made, 0))
    del made
    gc.collect()
print("done")
"""


def test_sanitizers_find_nothing() -> None:
    from rkcosim.devices.native_library import c_compiler, sanitizer_runtime

    if not sanitizer_runtime():
        pytest.skip("the C compiler has no address sanitizer")
    asked = [*c_compiler(), "-print-file-name=libstdc++.so.6"]  # the runtimes throw exceptions of C++
    throws = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    preload = f"{sanitizer_runtime()} {throws}"
    done = python(SANITIZED, LD_PRELOAD=preload, ASAN_OPTIONS="detect_leaks=0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["error", "error", "done"]
    assert "Sanitizer" not in done.stderr and "runtime error" not in done.stderr
