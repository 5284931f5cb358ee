"""Values of normalisations, softmax, products and conversions of `.rknn` files, by onnxruntime."""

from __future__ import annotations

import struct
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from rkcosim.compiler.graph import Tensor
from rkcosim.rknn_file.container import FileTensor
from rkcosim.rknn_file.schema import Kind
from rkcosim.verify.crosscheck.file_norms import converted, normalised, product, softmax
from rkcosim.verify.crosscheck.file_tables import NotJudged

EPSILON = 1e-5


def by_onnxruntime(kind: str, arrays: list[np.ndarray], **attributes: Any) -> np.ndarray:
    """The result of one operator of ONNX."""
    names = [f"i{n}" for n in range(len(arrays))]
    ports = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape)
        for n, a in zip(names, arrays, strict=True)
    ]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node(kind, names, ["y"], **attributes)], "one", ports, [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, dict(zip(names, arrays, strict=True)))[0])


def constant(array: np.ndarray, kind: Kind, scale: float = 1.0, zero_point: int = 0) -> FileTensor:
    shape, data = tuple(array.shape), array.tobytes()
    return FileTensor(0, "c", array.dtype, 0, kind, shape, shape, scale, zero_point, len(data), 0, data)


def node(name: str, x: Tensor, cube: np.ndarray, y: Tensor, constants: list[FileTensor]) -> Any:
    step = SimpleNamespace(inputs=[x], output=y)
    own = SimpleNamespace(name=name, inputs=list(range(len(constants))))
    return SimpleNamespace(step=step, node=own, cubes=[cube], file=SimpleNamespace(tensors=constants))


def tasks_of(epsilon: float) -> list[Any]:
    """The task of a vendor's exNorm that sums the squares in bf16, with what it adds."""
    bits = struct.unpack("<I", struct.pack("<f", epsilon))[0]
    given = {"PROC_PRECISION": 3, "BS_ALU_BYPASS": 0, "BS_ALU_OPERAND": bits}
    registers = SimpleNamespace(get=lambda block, register, name=None: given.get(name or register, 0))
    return [(("CNA", "CORE", "DPU"), registers)]


def real(name: str, shape: tuple[int, ...]) -> Tensor:
    return Tensor(name, shape, 1.0, 0, (shape[1], shape[2], shape[3]), real=True)


def byte(name: str, shape: tuple[int, ...], scale: float, zero_point: int) -> Tensor:
    return Tensor(name, shape, scale, zero_point, (shape[1], shape[2], shape[3]))


def test_a_layer_normalisation():
    """VitTrack of frodik13/rknn-vit-tracker-rust: 48 channels of 320 pixels; its tasks add 48 times 1e-5."""
    rng = np.random.default_rng(1)
    x = rng.normal(0.01, 0.02, size=(48, 1, 20)).astype(np.float16)
    w, b = rng.normal(1, 0.5, 48).astype(np.float16), rng.normal(size=48).astype(np.float32)
    held = [
        constant(w.reshape(1, 48, 1, 1), Kind.HOST_CONSTANT),
        constant(b.reshape(1, 48, 1, 1), Kind.HOST_CONSTANT),
    ]
    rows = np.ascontiguousarray(x[:, 0].T.astype(np.float32))
    wanted = by_onnxruntime("LayerNormalization", [rows, w.astype(np.float32), b], epsilon=EPSILON).T
    tensors = real("x", (1, 48, 1, 20)), real("y", (1, 48, 1, 20))
    values, errors = normalised(node("exNorm:a_2ln", tensors[0], x, tensors[1], held), tasks_of(48 * EPSILON))
    assert np.abs(values[:, 0] - wanted).max() < 1e-4
    share = errors[:, 0] / np.maximum(np.abs(wanted - b[:, None]), 0.5)
    assert 0.002 < np.median(share) < 0.01  # bf16 and fp16 steps, and no more
    other, _ = normalised(node("exNorm:a_2ln", tensors[0], x, tensors[1], held), tasks_of(0.0))
    assert (np.abs(other[:, 0] - wanted) > errors[:, 0]).mean() > 0.5  # epsilon is not left out
    with pytest.raises(NotJudged, match="does not say which normalisation"):
        normalised(node("exNorm:a", tensors[0], x, tensors[1], held), tasks_of(0.0))
    with pytest.raises(NotJudged, match="a layer normalisation with 1 constants"):
        normalised(node("exNorm:a_2ln", tensors[0], x, tensors[1], held[:1]), tasks_of(0.0))
    with pytest.raises(NotJudged, match="not those of a known normalisation"):
        normalised(node("exNorm:a_2ln", tensors[0], x, tensors[1], held), [])


def test_a_division_by_the_length():
    """OSNet of ayerzcc/rknn_det_track_reid: 512 channels, int8."""
    codes = np.random.default_rng(2).integers(-128, 128, size=(512, 1, 1)).astype(np.int8)
    x, y = byte("x", (1, 512, 1, 1), 0.0748, 6), byte("y", (1, 512, 1, 1), 0.00184, 7)
    numbers = ((codes.astype(np.float32) - 6) * np.float32(0.0748)).reshape(1, 512)
    wanted = by_onnxruntime("LpNormalization", [numbers], axis=1, p=2).reshape(-1) / 0.00184 + 7
    values, errors = normalised(node("exNorm:n_2lpnorm2", x, codes, y, []), tasks_of(1e-12))
    assert np.abs(values.reshape(-1) - wanted).max() < 1e-2
    assert 0.5 <= errors.min() and errors.max() < 1.0


def test_a_softmax_over_channels():
    x = np.random.default_rng(3).normal(0, 3, size=(7, 1, 5)).astype(np.float16)
    wanted = by_onnxruntime("Softmax", [x.astype(np.float32)], axis=0)
    made = node("exSoftmax13:s", real("x", (1, 7, 1, 5)), x, real("y", (1, 7, 1, 5)), [])
    values, errors = softmax(made)
    assert np.abs(values - wanted).max() < 1e-3 and (np.abs(values - wanted) <= errors).all()
    assert errors.max() < 0.03


def test_a_product_with_a_constant():
    """OSNet writes a mean as the product with a constant of equal codes."""
    rng = np.random.default_rng(4)
    codes, factors = (
        rng.integers(-128, 128, size=(32, 1, 24)).astype(np.int8),
        rng.integers(-128, 128, 32).astype(np.int8),
    )
    held = constant(factors.reshape(1, 32, 1, 1), Kind.CONSTANT, 1.2e-4, -128)
    x, y = byte("x", (1, 32, 1, 24), 0.0287, -19), byte("y", (1, 24, 1, 1), 0.0146, -1)
    a = np.ascontiguousarray((codes[:, 0].T.astype(np.float32) + 19) * np.float32(0.0287))
    b = ((factors.astype(np.float32) + 128) * np.float32(1.2e-4)).reshape(32, 1)
    wanted = by_onnxruntime("MatMul", [a, b]).reshape(-1) / 0.0146 - 1
    values, errors = product(node("exMatMul:m", x, codes, y, [held]))
    assert np.abs(values.reshape(-1) - wanted).max() < 1e-3 and not errors.any()
    with pytest.raises(NotJudged, match="a product of 1 tensors and 0 constants"):
        product(node("exMatMul:m", x, codes, y, []))
    with pytest.raises(NotJudged, match="its constant has 16 bytes of int8 for 32 numbers"):
        short = replace(held, data=held.data[:16])
        product(node("exMatMul:m", x, codes, y, [short]))


def test_a_conversion():
    codes = np.arange(-128, 128, dtype=np.int8).reshape(256, 1, 1)
    x, y = byte("x", (1, 256, 1, 1), 0.25, -3), real("y", (1, 256, 1, 1))
    wanted = by_onnxruntime("Mul", [codes.astype(np.float32) + 3, np.array([0.25], np.float32)])
    values, errors = converted(node("exDataConvert", x, codes, y, []))
    assert np.array_equal(values, wanted) and (errors <= 0.016).all()
