"""QDQ models with layers in floating point: int8 and fp16 in one graph, with equal bits on all levels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from rkcosim.cli.main import app
from rkcosim.compiler import CompiledModel, ModelError, compile_model
from rkcosim.compiler.options import using_options
from rkcosim.compiler.steps import CallStep, HostStep
from rkcosim.measure.models.compare import compare
from rkcosim.measure.models.float_units import BOUND
from tests import seeds
from tests.system.qdq_models import Net, quantise, reference
from tests.system.test_compiler_golden import run

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

PRODUCTS = ("conv0", "conv2", "conv4", "conv7", "gemm11")
NODES = (*PRODUCTS, "relu1", "relu3", "add5", "maxpool6", "sigmoid8", "globalaveragepool9", "flatten10")


def network(size: int, seed: int) -> Net:
    """Return a network of the nodes above and a Softmax."""
    n = Net((1, 3, size, size), seed)
    x = n.add("Relu", n.conv("x", 3, 12, pads=[1] * 4))
    y = n.add("Relu", n.conv(x, 12, 12, groups=12, pads=[1] * 4))
    x = n.add("Add", x, n.conv(y, 12, 12, 1))
    x = n.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = n.add("Sigmoid", n.conv(x, 12, 20))
    x = n.add("Flatten", n.add("GlobalAveragePool", x))
    n.add("Softmax", n.gemm(x, 20, 7), axis=1)
    return n


def mixed(size: int, seed: int, floats: list[str]) -> tuple[bytes, np.ndarray]:
    """Return the quantised network with some nodes in floating point, and an input."""
    n = network(size, seed)
    proto = n.model("softmax12")
    data = [n.rng.normal(size=n.shape).astype(np.float32) for _ in range(3)]
    return quantise(proto, data, exclude=floats), data[0]


def on_npu(model: CompiledModel) -> set[str]:
    """Names of the layers that the NPU computes in fp16."""
    return {s.name for s in model.plan.steps if s.output.real and not isinstance(s, HostStep)}


def hosted(model: CompiledModel) -> set[str]:
    """Names of the model's nodes that another runtime computes."""
    calls = [step for step in model.plan.steps if isinstance(step, CallStep)]
    return {item.name for step in calls for item in step.program.operators}


@pytest.mark.parametrize("number", range(10))
def test_random_layers_in_floats(number: int) -> None:
    """All products that are left in floating point run on the NPU, in fp16; both golden levels agree."""
    seed = seeds.seed(f"{__name__} {number}")
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    floats = [name for name in NODES if rng.random() < 0.35]
    data, x = mixed(int(rng.choice([12, 24])), seed, floats)
    model = compile_model(data, reuse=False)
    result, _ = run(model, x)
    assert on_npu(model) >= set(floats) & set(PRODUCTS)
    assert not hosted(model) & set(PRODUCTS)
    assert np.abs(result - reference(data, x)).max() < 0.05
    again = compile_model(model.save())
    assert np.array_equal(run(again, x)[0], result) and on_npu(again) == on_npu(model)


def test_neighbours_of_a_product() -> None:
    """Operators that read fp16, and large ones in front of a product of floats, are in fp16 as well."""
    data, _ = mixed(24, 3, ["relu3", "conv4", "conv7", "sigmoid8", "globalaveragepool9", "flatten10"])
    model = compile_model(data)
    assert {"relu3", "conv4", "conv7"} <= on_npu(model)
    small, _ = mixed(12, 3, ["relu3", "conv4"])
    assert on_npu(compile_model(small)) == {"conv4"} and "relu3" in hosted(compile_model(small))
    assert model.fp16_layers[0].startswith("Relu 'relu3'")


def test_codes_and_floats_of_one_result() -> None:
    """A result of floats that a layer in int8 and one in fp16 read, both after its quantisation."""
    data, x = mixed(24, 8, ["conv0", "conv2"])
    model = compile_model(data, reuse=False)
    run(model, x)
    assert on_npu(model) == {"conv0", "conv2"}


def test_option_float() -> None:
    data, x = mixed(12, 5, ["conv4", "gemm11"])
    with using_options(floats="host"):
        model = compile_model(data, reuse=False)
    assert not on_npu(model) and {"conv4", "gemm11"} <= hosted(model)
    run(model, x)
    with (
        using_options(floats="refuse"),
        pytest.raises(ModelError, match=r"Conv 'conv4', Gemm 'gemm11'.*fp16"),
    ):
        compile_model(data)
    with using_options(floats="refuse"):
        assert not on_npu(compile_model(mixed(12, 5, [])[0]))


def test_commands(tmp_path: Path) -> None:
    """The RTL agrees with both golden models, and the summary names the layers in fp16."""
    data, x = mixed(12, 7, ["conv2", "conv7", "gemm11"])
    path, values, out = tmp_path / "mixed.onnx", tmp_path / "x.npy", tmp_path / "run.json"
    path.write_bytes(data)
    np.save(values, x)
    words = ["run", str(path), "--input", str(values), "--check", "--json", str(out)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0 and "MATCH" in result.output, result.output
    found = json.loads(out.read_text())
    wanted = ["DepthwiseConv 'conv2'", "Conv 'conv7'"]
    assert found["verdict"]["match"] and set(wanted) < set(found["fp16_layers"])
    assert "in fp16, between layers in int8: DepthwiseConv 'conv2'" in result.output
    comparison = compare(path, [[x]])
    assert comparison.match
    layers = {layer.name: layer for layer in comparison.layers}
    assert all(layers[name].unit == "fp16" and layers[name].worst <= BOUND for name in ("conv2", "conv7"))


def attention(n: Net) -> str:
    q, k = (n.add("MatMul", "x", n.constant(n.rng.normal(size=(32, 32)) / 6)) for _ in range(2))
    scores = n.add("MatMul", q, n.add("Transpose", k, perm=[0, 2, 1]))
    y = n.add("MatMul", n.add("Softmax", scores, axis=-1), "x")
    return n.add("MatMul", y, n.constant(n.rng.normal(size=(32, 8)) / 6))


@pytest.mark.parametrize(
    ("floats", "wanted"),
    [
        (("matmul0", "matmul1", "transpose2", "matmul3", "softmax4", "matmul5"), "matmul1 matmul3 matmul5"),
        (("matmul3", "softmax4", "matmul5"), "matmul3 matmul5"),
        (("matmul3",), ""),  # between quantised tensors it looks like a product of bytes
    ],
)
def test_products_of_activations(floats: tuple[str, ...], wanted: str) -> None:
    n = Net((1, 20, 32), 3)
    proto = n.model(attention(n))
    data = [n.rng.normal(size=n.shape).astype(np.float32) for _ in range(3)]
    quantised = quantise(proto, data, exclude=floats)
    model = compile_model(quantised, reuse=False)
    result, _ = run(model, data[0])
    assert on_npu(model) >= set(wanted.split()) and bool(on_npu(model)) == bool(wanted)
    assert np.abs(result - reference(quantised, data[0])).max() < 0.1
