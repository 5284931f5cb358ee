"""Einsum of two factors runs as a product of the NPU, with onnxruntime's values."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import rkcosim
from rkcosim.compiler.loaders.onnx_parts import ValueTypes, describe
from rkcosim.compiler.loaders.onnx_products import products
from tests.makers.onnx_graphs import network


def _proto(equation: str, first: tuple[int, ...], second: tuple[int, ...]) -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Einsum", ["a", "b"], ["y"], name="einsum", equation=equation)],
        "einsum",
        [value("a", TensorProto.FLOAT, first), value("b", TensorProto.FLOAT, second)],
        [value("y", TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def _drawn(shape: tuple[int, ...], seed: int) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float16).astype(np.float32)


@pytest.mark.parametrize(
    ("equation", "first", "second"),
    [
        ("bhid,bhjd->bhij", (1, 4, 9, 32), (1, 4, 9, 32)),
        ("bhij,bhjd->bhid", (1, 4, 9, 9), (1, 4, 9, 32)),
        ("bihd,bjhd->bhij", (1, 9, 4, 32), (1, 9, 4, 32)),
        ("bhij,bjhd->bihd", (1, 4, 9, 9), (1, 9, 4, 32)),
        ("b i d, d h k -> b i h k", (1, 9, 24), (24, 2, 16)),
        ("bihk,hkd->bid", (1, 9, 2, 16), (2, 16, 24)),
        ("ij,jk->ki", (6, 16), (16, 8)),
        ("kj,ji", (6, 16), (16, 8)),  # the result is implicit: ik
        ("...ij,...jk->...ik", (2, 3, 5, 32), (2, 3, 32, 8)),
        ("b...d, ...dk", (4, 3, 32), (3, 32, 8)),
    ],
)
def test_the_npu_computes_a_product(equation: str, first: tuple[int, ...], second: tuple[int, ...]):
    import onnxruntime

    proto, a, b = _proto(equation, first, second), _drawn(first, 0), _drawn(second, 1)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    right = session.run(None, {"a": a, "b": b})[0]
    with rkcosim.load(proto, engine="golden") as model:
        found = model(a, b)
        assert found.shape == right.shape and np.abs(found - right).max() < 2e-3 * np.abs(right).max()
        assert model.mac_share == 1 and any(layer.macs for layer in model.layers)
        assert model.check([a, b])


@pytest.mark.parametrize(
    ("equation", "first", "second"),
    [
        ("ii,ij->j", (4, 4), (4, 5)),
        ("i,j->ij", (4,), (5,)),
        ("...ij,...jk->...ik", (2, 3, 4), (1, 4, 5)),  # repeated matrices
        ("ijk,jl->il", (3, 4, 5), (4, 6)),
        ("ij,jk->ik", (3, 1), (4, 5)),
    ],
)
def test_other_equations_stay(equation: str, first: tuple[int, ...], second: tuple[int, ...]):
    proto = _proto(equation, first, second)
    assert products(proto) == proto


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bhid,bhjd->bhij", [(2, 3, 5, 7), (2, 3, 4, 7)]),
        ("ij,jk->ik", [(5, 7), (7, 3)]),
        ("...ij,...jk->...ik", [(2, 3, 5, 7), (3, 7, 4)]),
        ("bi,oij,bj->bo", [(4, 5), (6, 5, 7), (4, 7)]),
    ],
)
def test_products_on_the_host_are_counted(equation: str, shapes: list[tuple[int, ...]]):
    """numpy's naive count has a multiplication for each factor after the first, and an addition."""
    names = [f"x{n}" for n in range(len(shapes))]
    node = helper.make_node("Einsum", names, ["y"], name="sum", equation=equation)
    proto = network([node], dict(zip(names, shapes, strict=True)))
    told = np.einsum_path(equation, *(np.zeros(shape) for shape in shapes))[1]
    naive = float(next(line.split(":")[1] for line in told.splitlines() if "Naive FLOP" in line))
    count = describe(node, "", ValueTypes(proto)).macs
    assert f"{count * len(shapes) / (len(shapes) - 1):.3e}" == f"{naive:.3e}"
