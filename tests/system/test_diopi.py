"""DIOPI's operators on the NPU: each within its bound of the host's, on the golden engine and on the RTL."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rkcosim.apis.diopi import runtime
from rkcosim.apis.diopi.enums import Error
from rkcosim.apis.diopi.npu import COMPARE_VARIABLE, OPTIONS_VARIABLE
from tests.makers.diopi_tensors import Calls, scalar, size

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "diopi" / "block.py"

Draw = Callable[..., Any]
ONE, NONE, TWO = size(1, 1), size(0, 0), size(2, 2)


@pytest.fixture(params=["golden", "verilator"])
def calls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    """Calls on an engine, each compared with the host's operator."""
    monkeypatch.setenv(OPTIONS_VARIABLE, f"engine={request.param}\n")
    monkeypatch.setenv(COMPARE_VARIABLE, "1")
    runtime.finalize_library()
    runtime.init_library()
    yield Calls()
    runtime.finalize_library()


def cases(h: Draw) -> dict[str, tuple[tuple[int, ...], tuple[Any, ...]]]:
    """Return for each operator the shape of its result and its arguments, of random numbers of float16."""
    x = h(2, 5, 9, 7)
    positive = np.abs(h(5)).astype(np.float32) + 0.5
    figures = (positive, h(5).astype(np.float32), h(5).astype(np.float32), positive)
    pool = (TWO, TWO, NONE)
    return {
        **{name: (x.shape, (x,)) for name in ("Relu", "Hardswish", "Tanh", "Sigmoid", "Silu")},
        "Gelu": (x.shape, (x, "none")),
        "LeakyRelu": (x.shape, (x, scalar(0.25))),
        "Hardtanh": (x.shape, (x, scalar(-1.0), scalar(0.5))),
        "Threshold": (x.shape, (x, scalar(0), scalar(0))),
        "ClampScalar": (x.shape, (x, None, scalar(0.5))),
        "Clamp": (x.shape, (x, h(9, 7) - np.float16(1), h(9, 7) + np.float16(1))),
        "Add": (x.shape, (x, h(5, 1, 7), scalar(0.5))),
        "Sub": (x.shape, (x, h(7), scalar(1))),
        "Mul": (x.shape, (x, h(1, 5, 9, 1))),
        "AddScalar": (x.shape, (x, scalar(1.5), scalar(2))),
        "MulScalar": (x.shape, (x, scalar(-3))),
        "Maximum": (x.shape, (x, h(7))),
        "Minimum": (x.shape, (x, h(7))),
        "Convolution2d": ((2, 6, 5, 7), (x, h(6, 5, 3, 3), h(6), size(2, 1), ONE, ONE, 1)),
        "ConvTranspose2d": ((2, 3, 19, 15), (x, h(5, 3, 3, 3), h(3), TWO, NONE, NONE, 1, ONE)),
        "AvgPool2d": ((2, 5, 4, 3), (x, *pool, False, True, None)),
        "MaxPool2d": ((2, 5, 4, 3), (x, *pool, ONE, False)),
        "AdaptiveAvgPool2d": ((2, 5, 3, 1), (x, size(3, 1))),
        "AdaptiveMaxPool2d": ((2, 5, 3, 7), (x, size(3, 7))),
        "UpsampleNearest": ((2, 5, 18, 14), (x, size(18, 14))),
        "Linear": ((3, 4, 6), (h(3, 4, 32), h(6, 32), h(6))),
        "Mm": ((5, 7), (h(5, 32), h(32, 7))),
        "Bmm": ((3, 5, 7), (h(3, 5, 16), h(3, 16, 7))),
        "Matmul": ((2, 5, 7), (h(2, 5, 16), h(16, 7))),
        "Addmm": ((5, 7), (h(7), h(5, 32), h(32, 7), scalar(0.5), scalar(-2))),
        "Baddbmm": ((3, 5, 7), (h(3, 5, 7), h(3, 5, 16), h(3, 16, 7), 1.0, 0.5)),
        "Mean": ((2, 7), (x, size(1, 2))),
        "Sum": ((2, 9, 7), (x, size(1))),
        "BatchNorm": (x.shape, (positive * 0, positive * 0, x, *figures, False, 0.1, 1e-5)),
    }


def test_operators_are_the_npu_s(calls: Calls) -> None:
    """Each operator of float16 runs on the NPU, within four units in the last place of the host's result."""
    random = np.random.default_rng(11)
    drawn = cases(lambda *shape: random.normal(size=shape).astype(np.float16))
    for name, (shape, arguments) in drawn.items():
        calls.compute(name, shape, *arguments)
        account = runtime.NPU.accounts[f"diopi{name}"]
        assert account.npu == 1 and not account.host, (name, account)


def test_in_place_and_strided(calls: Calls) -> None:
    """In-place operators, and operands that are not dense."""
    x = np.random.default_rng(2).normal(size=(4, 6, 5)).astype(np.float16)
    turned = calls.tensor(x)
    assert calls.result("ReluInp", turned)[0] is Error.diopi_success
    assert (turned.array() == np.maximum(x, 0)).all()
    channels_last = np.asfortranarray(x)
    assert (calls.compute("Relu", x.shape, channels_last) == np.maximum(x, 0)).all()


def test_float32_is_the_host_s(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """float32 is computed on the host with all its bits; with float=fp16 the NPU may round it."""
    x = np.float32([[1 + 2**-20, 2]])
    made = calls.compute("MulScalar", (1, 2), x, scalar(1.0), dtype=np.float32)
    assert (made == x).all()
    account = runtime.NPU.accounts["diopiMulScalar"]
    assert account.host == 1 and list(account.reasons) == ["float32 without the option float=fp16"]
    runtime.finalize_library()
    monkeypatch.setenv(OPTIONS_VARIABLE, "engine=golden\nfloat=fp16\n")
    runtime.init_library()
    assert calls.compute("MulScalar", (1, 2), x, scalar(1.0), dtype=np.float32).tolist() == [[1, 2]]
    assert runtime.NPU.accounts["diopiMulScalar"].npu == 1


@pytest.mark.parametrize("calls", ["golden"], indirect=True)
def test_a_difference_is_an_error(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong result of the NPU is found by the comparison, and `out` keeps its bytes."""
    assert calls.context is not None
    right = runtime.NPU.run
    monkeypatch.setattr(runtime.NPU, "run", lambda *given: np.asarray(right(*given)) * np.float32(1.01))
    x = np.ones((2, 3), np.float16)
    out = calls.empty(x.shape)
    code, text = calls.result("Relu", out, calls.tensor(x))
    assert code is Error.diopi_error_occurred and "6 of 6 elements are not within 4 units" in text
    assert not out.array().any()


def test_wrong_options(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong option is the error of the first operator."""
    runtime.finalize_library()
    runtime.init_library()
    monkeypatch.setenv(OPTIONS_VARIABLE, "float=int4\n")
    x = np.ones((2, 3), np.float32)
    code, text = calls.result("Relu", calls.empty(x.shape, np.float32), calls.tensor(x))
    assert code is Error.diopi_error_occurred and "the option float is fp16 or host, not 'int4'" in text


def test_two_threads(calls: Calls) -> None:
    """Two threads share the NPU."""
    wrong: list[str] = []

    def work(number: int) -> None:
        mine, random = Calls(), np.random.default_rng(number)
        for _ in range(4):
            x = random.normal(size=(3, 5 + number)).astype(np.float16)
            if (mine.compute("Relu", x.shape, x) != np.maximum(x, 0)).any():
                wrong.append(f"thread {number}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and runtime.NPU.accounts["diopiRelu"].npu == 8


def test_the_example(tmp_path: Path) -> None:
    """The example runs through `rkcosim diopi` on the RTL, and equals both golden models."""
    file = tmp_path / "run.json"
    words = [sys.executable, "-m", "rkcosim", "diopi", "--check", "--json", str(file), "--"]
    done = subprocess.run([*words, sys.executable, str(EXAMPLE)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].startswith("class ")
    document = json.loads(file.read_text())
    (operators,) = document["diopi"]
    on_npu = {name for name, account in operators.items() if name != "process" and account["npu"]}
    assert on_npu == {f"diopi{n}" for n in ("Convolution2d", "BatchNorm", "ReluInp", "MaxPool2d", "Linear")}
    assert operators["diopiSoftmax"]["host"] == 1
    assert len(document["models"]) == 5 and all(one["verdict"]["match"] for one in document["models"])


def test_the_command_s_errors(tmp_path: Path) -> None:
    """`--prefix` writes the package; a program and `--prefix`, or neither, are errors."""
    words = [sys.executable, "-m", "rkcosim", "diopi"]
    subprocess.run([*words, "--prefix", str(tmp_path / "here")], check=True, cwd=ROOT)
    assert (tmp_path / "here" / "diopilib" / "__init__.py").is_file()
    for more in ([], ["--prefix", str(tmp_path), "--", "true"]):
        done = subprocess.run([*words, *more], capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 2 and "diopi" in done.stderr


def test_nan_is_kept(calls: Calls) -> None:
    """NaN stays NaN: operators whose form on the NPU would lose it run on the host."""
    x = np.float16([np.nan, -1, 2, np.nan])
    y = x[::-1].copy()
    bounds = scalar(-1.0), scalar(1.0)
    for name, arguments in (
        *(
            ("Maximum", (x, y)),
            ("Minimum", (x, y)),
            ("Hardtanh", (x, *bounds)),
            ("ClampScalar", (x, *bounds)),
        ),
        *((kind, (x,)) for kind in ("Relu", "Tanh", "Sigmoid", "Silu", "Hardswish")),
        *(("AddScalar", (x, scalar(1), scalar(1))), ("LeakyRelu", (x, scalar(0.5))), ("Gelu", (x, "none"))),
    ):
        made = calls.compute(name, x.shape, *arguments)
        assert np.isnan(made[[0, 3]]).all() and not np.isnan(made[[1, 2]]).any(), name


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "1 / 0", "d.finalize_library()"])
def test_the_account_of_a_program_that_just_ends(tmp_path: Path, end: str) -> None:
    """Without finalize_library, and by an exception, the account is written all the same."""
    program = tmp_path / "program.py"
    program.write_text(
        "import diopilib as d\n"
        "d.init_library(); c = d.Context()\n"
        "t = lambda: d.diopiTensor(d.diopiSize([8], 1), None, d.Dtype.float16, d.Device.AIChip, c)\n"
        f"assert not d.diopiRelu(c, t(), t())\n{end}\n"
    )
    words = [sys.executable, "-m", "rkcosim", "diopi", "--engine", "golden", "--", sys.executable, program]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=300)
    assert done.returncode == {"raise SystemExit(3)": 3, "1 / 0": 1}.get(end, 0)
    assert "diopiRelu: 1 calls on the NPU" in done.stdout + done.stderr
    assert "no operator ran" not in done.stderr
