"""Batches of ONNX models: divided only where onnxruntime gives each sample what it gives the batch."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnxruntime import InferenceSession

from rkcosim.compiler import CompiledModel
from rkcosim.compiler.batch import BatchModel, compile_divided
from rkcosim.compiler.interpreters import MOST_SAMPLES, batch_of
from rkcosim.compiler.loaders.onnx_batch import Division, NotProven, divided
from rkcosim.compiler.loaders.onnx_file import input_shape, read_onnx
from rkcosim.compiler.options import LoadOptions, using_options
from tests.makers.batch_models import (
    APART,
    MIXED,
    N,
    Net,
    drawn,
    heads_of_an_attention,
    model,
    shapes_that_are_computed,
)
from tests.seeds import seed
from tools.graph_fuzz.search import made as graph_of


def run(proto: onnx.ModelProto, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, feed)]


def check(proto: onnx.ModelProto) -> Division:
    """Divide a model, and compare its samples with those of the batch by onnxruntime."""
    found = divided(read_onnx(proto.SerializeToString(), LoadOptions()), N)
    feed = drawn(proto)
    together = run(proto, feed)
    apart = [run(found.proto, {k: v[n : n + 1] for k, v in feed.items()}) for n in range(N)]
    for place, wanted in enumerate(together):
        got = np.concatenate([outputs[place] for outputs in apart])
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    return found


@pytest.mark.parametrize("name", APART)
def test_samples_of_a_divided_model_are_those_of_the_batch(name: str):
    check(model(name))


@pytest.mark.parametrize("name", MIXED)
def test_models_that_mix_samples_are_not_divided(name: str):
    proto = model(name)
    with pytest.raises(NotProven):
        check(proto)
    assert isinstance(compile_divided(proto.SerializeToString()), CompiledModel)


def test_a_model_may_be_read_without_folding():
    """A shape that is computed is then no constant, so nothing is proven."""
    net = Net()
    proto = net.proto(*shapes_that_are_computed(net))
    with pytest.raises(NotProven, match="Shape"):
        divided(read_onnx(proto.SerializeToString(), LoadOptions(fold=False)), N)


@pytest.mark.parametrize(
    ("shapes", "batch", "reason"),
    [
        ([(N, 4, 6, 8)], N, ""),
        ([(N, 4, 6, 8), (N, 4)], N, ""),
        ([(N, 4, 6, 8), (2, 4, 6, 8)], None, "different first dimensions: 2, 3"),
        ([(N, 4, 6, 8), (4,)], None, "different first dimensions: 3, 4"),
        ([(1, 4, 6, 8)], None, ""),
        ([(N, 16)], None, ""),
        ([(MOST_SAMPLES, 1, 2, 1)], MOST_SAMPLES, ""),
        ([(MOST_SAMPLES + 1, 1, 2, 1)], None, "1025 samples are more than 1024"),
    ],
)
def test_inputs_that_may_be_a_batch(shapes: list[tuple[int, ...]], batch: int | None, reason: str):
    net = Net()
    outputs = [net.add("Relu", net.input(*shape)) for shape in shapes]
    made = compile_divided(net.proto(*outputs).SerializeToString())
    assert getattr(made, "batch", None) == batch
    assert (made.undivided == "") == (reason == "") and reason in made.undivided
    assert [info.shape for info in made.inputs] == shapes
    assert [info.shape for info in made.outputs] == shapes


def test_a_batch_may_be_given_for_an_open_dimension():
    net = Net()
    data = net.proto(*[net.add("Relu", net.input("n", 4, 6, 8))]).SerializeToString()
    assert isinstance(compile_divided(data), CompiledModel)
    with using_options(shapes={"x0": (N, 4, 6, 8)}):
        made = compile_divided(data)
    assert isinstance(made, BatchModel) and made.inputs[0].shape == (N, 4, 6, 8)


def test_a_part_of_a_model_may_be_a_batch():
    """Up to the convolution the samples are independent, and behind it they are not."""
    net = Net()
    y = net.add("Conv", net.input(N, 4, 6, 8), net.drawn(5, 4, 1, 1))
    data = net.proto(net.add("ReduceMean", y, axes=[0])).SerializeToString()
    assert isinstance(compile_divided(data), CompiledModel)
    with using_options(outputs=(y,)):
        assert isinstance(compile_divided(data), BatchModel)


def test_each_value_has_its_axis():
    net = Net()
    found = check(net.proto(*heads_of_an_attention(net)))
    axes = {(rows.axis, rows.per) for rows in found.rows.values()}
    assert axes == {(0, 1), (0, 2)}
    assert replace(found, samples=N) == found


def test_random_graphs_are_divided_only_where_samples_stay_apart():
    """About a quarter of the graphs that `tools.graph_fuzz` draws are divided, and none of them is wrong."""
    first, counts = seed(__name__), Counter[str]()
    for number in range(first, first + 60):
        graph = graph_of(number)
        proto = read_onnx(graph.model.SerializeToString(), LoadOptions())
        samples, _ = batch_of([tuple(map(int, input_shape(item))) for item in proto.graph.input])
        try:
            found = divided(proto, samples) if samples > 1 else None
        except NotProven:
            found = None
        counts["divided" if found else "whole"] += 1
        if found is None:
            continue
        apart = [run(found.proto, {k: v[n : n + 1] for k, v in graph.feeds.items()}) for n in range(samples)]
        for place, wanted in enumerate(run(proto, graph.feeds)):
            got = np.concatenate([outputs[place] for outputs in apart])
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4, err_msg=f"{number}: {graph.text()}")
    assert counts["divided"] >= 3 and counts["whole"] >= 20, counts
