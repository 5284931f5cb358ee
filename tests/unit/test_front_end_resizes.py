"""Resizes of every front end, also to one row or column, against onnxruntime, LiteRT and the definitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from rkcosim.apis.link.instruments import open_machine
from rkcosim.apis.nnapi.prepared import prepare
from rkcosim.compiler import LoadedModel, compile_model
from rkcosim.compiler.graph import ModelError
from rkcosim.running.machine import Machine
from rkcosim.running.settings import Settings
from rkcosim.verify.crosscheck.model_check import GoldenDriver
from tests.makers.hexagon_graphs import run_node, whole
from tests.makers.nnapi_models import F16, F32, Builder
from tests.seeds import seed

Array = npt.NDArray[Any]

SIZES = [(1, 1), (1, 8), (6, 1), (3, 4), (8, 8), (6, 12), (2, 3)]
X = np.random.default_rng(seed(__name__)).normal(size=(1, 8, 3, 4)).astype(np.float16).astype(np.float32)
"""Maps of three rows and four columns."""


@pytest.fixture(scope="module")
def golden() -> Iterator[Machine]:
    """A device of the golden model."""
    machine = open_machine(Settings(engine="golden"))
    yield machine
    machine.close()


FORMS = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")


def onnx_resize(size: tuple[int, int], **attributes: str) -> bytes:
    """Return the model of a Resize and a ReLU."""
    sizes = numpy_helper.from_array(np.array([1, 8, *size]), "sizes")
    nodes = [
        helper.make_node("Resize", ["x", "", "", "sizes"], ["z"], **attributes),
        helper.make_node("Relu", ["z"], ["y"]),
    ]
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 8, *shape))]
        for name, shape in (("x", X.shape[2:]), ("y", size))
    ]
    graph = helper.make_graph(nodes, "resize", *ends, [sizes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    model.ir_version = 9
    data: bytes = model.SerializeToString()
    return data


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("mode", "rounding"),
    [("linear", ""), ("nearest", "floor"), ("nearest", "round_prefer_floor"), ("nearest", "ceil")],
)
def test_onnx(form: str, mode: str, rounding: str) -> None:
    more = {"nearest_mode": rounding} if rounding else {}
    for size in SIZES:
        data = onnx_resize(size, mode=mode, coordinate_transformation_mode=form, **more)
        want = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": X})[0]
        try:
            model = compile_model(data, reuse=False)
        except ModelError:  # it names what is not supported
            continue
        with LoadedModel(model, GoldenDriver()) as loaded:
            loaded.set_input(0, X)
            loaded.run()
            found = loaded.get_output(0)
        np.testing.assert_allclose(found, want, 2e-3, 2e-3, err_msg=f"{size} {form} {mode} {rounding}")


def bilinear(x: Array, size: tuple[int, int], align: bool, half: bool) -> Array:
    """Return the maps (H, W, C) of TFLite's resize, whose definition NNAPI has, pixel by pixel."""
    made = np.zeros((*size, x.shape[2]))
    for place in np.ndindex(*size):
        parts = []
        for at, old, new in zip(place, x.shape[:2], size, strict=True):
            step = (old - 1) / (new - 1) if align and new > 1 else old / new
            where = max((at + 0.5) * step - 0.5, 0.0) if half else at * step
            first = min(int(where), old - 1)
            parts.append(((first, 1 - (where - first)), (min(first + 1, old - 1), where - first)))
        made[place] = sum(x[i, j] * a * b for i, a in parts[0] for j, b in parts[1])
    return made


@pytest.mark.parametrize("kind", [F16, F32])
@pytest.mark.parametrize(("align", "half"), [(False, False), (True, False), (False, True)])
def test_nnapi(golden: Machine, kind: Any, align: bool, half: bool) -> None:
    x = X[0].transpose(1, 2, 0)
    for size in SIZES:
        b = Builder()
        scalars = [b.scalar(n) for n in (size[1], size[0], False, align, half)]
        b.add("RESIZE_BILINEAR", [b.input(kind, (1, *x.shape)), *scalars], b.output(kind, ()))
        with prepare(b.model(relaxed=True), machine=golden) as prepared:
            (found,) = prepared.execute([x[None].astype(kind.dtype)])
        np.testing.assert_allclose(found[0], bilinear(x, size, align, half), 4e-3, 4e-3, err_msg=str(size))


@pytest.mark.parametrize("align", [False, True])
def test_hexagon(align: bool) -> None:
    """nnlib's op_resizebilinear.c has the same definition, without half pixels."""
    x = X[0].transpose(1, 2, 0)
    for size in SIZES:
        found = run_node("ResizeBilinear_f", [x[None], whole(*size), whole(align)])[0]
        np.testing.assert_allclose(found.reals[0], bilinear(x, size, align, False), 1e-5, 1e-5)
