"""Resizes by any ratio and copies of lines, beside onnxruntime; equal on RTL and golden."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

from rkcosim.compiler import CompiledModel, LoadedModel, compile_model
from rkcosim.compiler.limits import MOST_DEPTH
from rkcosim.compiler.loaders.resizes import divided
from rkcosim.compiler.resampling import Sampling
from rkcosim.compiler.steps import AtomsStep, CallStep, CopyStep, HostStep, ProductStep
from rkcosim.driver import Driver
from rkcosim.engines.engine import Engine, open_engine
from rkcosim.verify.crosscheck.model_check import ModelChecker
from tests.system.qdq_models import Net, quantise
from tests.system.test_compiler_golden import run

Size = tuple[int, int]


def reference(data: bytes, x: np.ndarray) -> np.ndarray:
    """Return onnxruntime's result, without rewriting the graph."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return np.asarray(ort.InferenceSession(data, options, ["CPUExecutionProvider"]).run(None, {"x": x})[0])


def network(
    size: Size, out: Size | tuple[float, float], codes: bool, **attributes: object
) -> tuple[bytes, np.ndarray]:
    """Return a model of a Resize to a size, or by real factors, and its input.

    With `codes` it is quantised, behind a maximum of single pixels, which changes no number.
    """
    net = Net((1, 12, *size), 3)
    x = net.rng.normal(size=net.shape).astype(np.float16).astype(np.float32)
    inputs = [net.add("MaxPool", "x", kernel_shape=[1, 1]) if codes else "x"]
    if isinstance(out[0], float):
        inputs += ["", net.constant(np.array([1, 1, *out]))]
    else:
        inputs += ["", "", net.constant(np.array([1, 12, *out]), np.int64)]
    model = net.model(net.add("Resize", *inputs, **attributes), opset=19)
    return (quantise(model, [x]) if codes else model.SerializeToString()), x


def near(data: bytes, x: np.ndarray, codes: bool) -> CompiledModel:
    """Assert that the NPU computes everything, within roundings of fp16 or one step of the codes."""
    compiled = compile_model(data, reuse=False)
    assert not any(isinstance(step, HostStep) for step in compiled.plan.steps)
    got, _ = run(compiled, x)
    want = reference(data, x)
    bound = 2.0**-10 * np.abs(want).max()
    if codes:
        bound = 1.001 * compiled.graph.tensors[compiled.graph.outputs[0].value].scale
    assert np.abs(got - want).max() <= bound
    return compiled


RATIOS: list[tuple[str, Size, Size | tuple[float, float]]] = [
    ("half_pixel", (6, 5), (9, 10)),
    ("half_pixel", (6, 5), (18, 80)),
    ("half_pixel", (12, 14), (6, 7)),
    ("half_pixel", (16, 18), (2, 1)),
    ("half_pixel", (9, 4), (6, 5)),
    ("half_pixel", (10, 10), (1.5, 0.3)),
    ("half_pixel_symmetric", (10, 10), (1.25, 0.35)),
    ("pytorch_half_pixel", (6, 5), (1, 15)),
    ("asymmetric", (6, 10), (9, 4)),
    ("align_corners", (5, 7), (13, 5)),
]


@pytest.mark.parametrize("codes", [False, True], ids=["fp16", "int8"])
@pytest.mark.parametrize(("form", "size", "out"), RATIOS)
def test_linear(form: str, size: Size, out: Size, codes: bool) -> None:
    near(*network(size, out, codes, mode="linear", coordinate_transformation_mode=form), codes)


@pytest.mark.parametrize(
    ("form", "out"),
    [
        *((form, out) for form in ("half_pixel", "asymmetric") for out in ((12, 10), (3, 5), (24, 2))),
        *(("half_pixel_symmetric", (12, 5)), ("align_corners", (11, 9)), ("pytorch_half_pixel", (1, 20))),
    ],
)
def test_cubic(form: str, out: Size) -> None:
    near(*network((6, 5), out, False, mode="cubic", coordinate_transformation_mode=form), False)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_sizes_of_some_axes(mode: str) -> None:
    net = Net((1, 12, 6, 5), 3)
    x = net.rng.normal(size=net.shape).astype(np.float16).astype(np.float32)
    sizes = net.constant(np.array([10, 9]), np.int64)
    y = net.add("Resize", "x", "", "", sizes, mode=mode, axes=[-1, 2])
    near(net.model(y, opset=19).SerializeToString(), x, False)


def test_cubic_with_another_coefficient() -> None:
    more = {"mode": "cubic", "cubic_coeff_a": -0.5}
    near(*network((6, 5), (12, 10), False, **more), False)


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize(
    ("form", "out"),
    [
        *((form, (9, 3)) for form in ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")),
        *(("half_pixel", (7, 15)), ("asymmetric", (32, 5))),
    ],
)
def test_nearest(form: str, rounding: str, out: Size) -> None:
    """Also of sizes without a ratio, whose lines are copied; bytes are moved as they are."""
    more = {"coordinate_transformation_mode": form, "nearest_mode": rounding}
    data, x = network((6, 5), out, True, mode="nearest", **more)
    compiled = near(data, x, True)
    got, _ = run(compiled, x)
    assert np.array_equal(got, reference(data, x))


def test_copied_lines() -> None:
    """A range of lines that follow each other is one task."""
    compiled = near(*network((38, 20), (15, 21), False, mode="nearest"), False)
    assert {type(step) for step in compiled.plan.steps} == {CopyStep} and len(compiled.plan.steps) == 17


@pytest.mark.parametrize(
    "mode", [{"mode": "linear"}, {"mode": "cubic"}, {"mode": "cubic", "cubic_coeff_a": -0.5}]
)
@pytest.mark.parametrize(
    ("form", "size", "out"),
    [
        ("half_pixel", (6, 5), (11, 5)),
        ("half_pixel", (7, 40), (7, 37)),
        ("half_pixel", (10, 10), (1.37, 0.71)),
        ("pytorch_half_pixel", (13, 5), (1, 11)),
        ("align_corners", (9, 12), (13, 24)),
        ("asymmetric", (6, 32), (11, 31)),
    ],
)
def test_products(form: str, size: Size, out: Size, mode: dict[str, object]) -> None:
    """Other ratios of floats are products with a matrix of weights."""
    compiled = near(*network(size, out, False, coordinate_transformation_mode=form, **mode), False)
    assert any(isinstance(step, ProductStep) for step in compiled.plan.steps)


def test_product_of_many_kernels() -> None:
    """Kernels whose atoms are further apart than a register holds are transposed in several tasks."""
    net = Net((1, 64, 37, 34), 3)
    x = net.rng.normal(size=net.shape).astype(np.float16).astype(np.float32)
    sizes = net.constant(np.array([1, 64, 37, 35]), np.int64)
    data = net.model(net.add("Resize", "x", "", "", sizes, mode="linear"), opset=19).SerializeToString()
    plan = near(data, x, False).plan
    tasks = plan.tasks_by_step()
    (atoms,) = (tasks[i] for i, step in enumerate(plan.steps) if isinstance(step, AtomsStep))
    assert len(atoms) == 2


@pytest.mark.parametrize(
    ("size", "out", "more"),
    [
        ((6, 5), (3, 5), {"mode": "linear", "antialias": 1}),
        ((13, 40), (26, 15), {"mode": "cubic", "antialias": 1}),
        ((13, 40), (11, 9), {"mode": "cubic", "antialias": 1, "exclude_outside": 1}),
        ((13, 40), (6, 80), {"mode": "cubic", "exclude_outside": 1}),
        ((13, 9), (5, 1), {"mode": "linear", "antialias": 1, "coordinate_transformation_mode": "asymmetric"}),
        ((300, 5), (330, 5), {"mode": "linear", "coordinate_transformation_mode": "align_corners"}),
        ((2, 900), (2, 100), {"mode": "linear", "antialias": 1}),
    ],
)
def test_weights_of_more_elements_and_longer_axes(size: Size, out: Size, more: dict[str, object]) -> None:
    """Antialiased resizes, without elements outside, and axes that are divided among products."""
    compiled = near(*network(size, out, False, **more), False)
    assert any(isinstance(step, ProductStep) for step in compiled.plan.steps)


@pytest.mark.parametrize(("size", "out"), [(600, 700), (257, 1000), (900, 12)])
def test_parts_of_a_long_axis(size: int, out: int) -> None:
    """Each result is in one part, and no part has more elements than a product takes."""
    matrix = Sampling("linear", 0.1, size / out, reach=max(1.0, size / out)).matrix(size, out)
    ranges = divided(matrix)
    assert [at for first, last in ranges for at in range(first, last)] == list(range(out))
    assert all(np.ptp(np.flatnonzero(matrix[a:b].any(axis=0))) < MOST_DEPTH for a, b in ranges)


@pytest.mark.parametrize(
    ("size", "out", "more", "words"),
    [
        ((2, 600), (2, 2), {"mode": "linear", "antialias": 1}, ["600 to 2 columns", "256 elements for each"]),
        ((6, 5), (3, 5), {"mode": "nearest", "antialias": 1}, ["antialias"]),
        ((6, 5), (9, 9), {"keep_aspect_ratio_policy": "not_larger", "axes": [2, 3]}, ["not_larger"]),
    ],
)
def test_stays_on_the_host(size: Size, out: Size, more: dict[str, object], words: list[str]) -> None:
    """The reason names the axis and what the NPU can do."""
    net = Net((1, 12, *size), 3)
    sizes = net.constant(np.array(out if "axes" in more else [1, 12, *out]), np.int64)
    y = net.add("Resize", net.conv("x", 12, 12, 1), "", "", sizes, **more)
    reason = reason_of(net.model(y, opset=19).SerializeToString())
    assert all(word in reason for word in words)


def reason_of(data: bytes) -> str:
    """Return why the host computes the only Resize of a model."""
    hosted = [step for step in compile_model(data).plan.steps if isinstance(step, CallStep)]
    (reason,) = (item.reason for step in hosted for item in step.program.operators if item.kind == "Resize")
    return reason


def test_cubic_of_codes() -> None:
    """Two passes would round and saturate between them; onnxruntime's quantiser leaves it in floats."""
    net = Net((1, 12, 6, 5), 3)
    scale, zero = net.constant(np.float32(0.05)), net.constant(np.int8(3), np.int8)
    x = net.add("DequantizeLinear", net.add("QuantizeLinear", "x", scale, zero), scale, zero)
    y = net.add("Resize", x, "", "", net.constant(np.array([1, 12, 12, 10]), np.int64), mode="cubic")
    y = net.add("DequantizeLinear", net.add("QuantizeLinear", y, scale, zero), scale, zero)
    y = net.add("QuantizeLinear", net.add("MaxPool", y, kernel_shape=[2, 2]), scale, zero)
    data = net.model(net.add("DequantizeLinear", y, scale, zero), opset=19).SerializeToString()
    assert "between two convolutions" in reason_of(data)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """The default engine, built on first use."""
    opened = open_engine(cores=1)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("size", "out", "codes", "mode"),
    [((6, 5), (9, 4), True, "linear"), ((5, 6), (10, 3), False, "cubic"), ((7, 9), (17, 5), True, "nearest")],
)
def test_on_rtl(engine: Engine, size: Size, out: Size, codes: bool, mode: str) -> None:
    """RTL = task golden = graph golden, bit for bit."""
    data, x = network(size, out, codes, mode=mode)
    with LoadedModel(compile_model(data, reuse=False), Driver(engine, 2_000_000)) as loaded:
        loaded.set_input(0, x)
        loaded.run()
        checker = ModelChecker(loaded, engine.name)
        found = checker.check([x])
        assert found.match, str(found.first)
        assert checker.check_memory() is None
        checker.close()
