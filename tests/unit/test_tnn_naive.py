"""NAIVE against onnxruntime: each layer from its definition, and the ONNX nodes that the compiler reads."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from rkcosim.apis.tnn import NetworkConfig
from rkcosim.apis.tnn.loader import to_onnx
from rkcosim.apis.tnn.loader.params import PARAMS
from tests.makers.tnn_layers import CASES, INT8, coded_network, inputs_of, network_of, run

SEEDS = range(8)


def _onnxruntime(net, inputs):
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    data = to_onnx(net).SerializeToString()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return dict(zip(net.structure.outputs, session.run(None, inputs), strict=True))


def test_every_type_is_tried():
    assert set(CASES) == set(PARAMS) - {"Const"}


@pytest.mark.parametrize("kind", CASES)
def test_a_layer_equals_its_onnx_nodes(kind):
    for seed in SEEDS:
        rng = np.random.default_rng([seed, len(kind)])
        net = network_of(kind, CASES[kind](rng))
        inputs = inputs_of(net, kind, rng)
        ours, theirs = run(net, NetworkConfig(), inputs), _onnxruntime(net, inputs)
        for name, values in ours.items():
            assert values.shape == theirs[name].shape, f"seed {seed}"
            np.testing.assert_allclose(values, theirs[name], 2e-4, 2e-5, err_msg=f"{kind}, seed {seed}")


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", INT8)
def test_an_int8_layer_is_within_a_step_of_its_onnx_nodes(kind, per_channel):
    for seed in SEEDS:
        net, inputs = coded_network(kind, np.random.default_rng([seed, len(kind), per_channel]), per_channel)
        ours, theirs = run(net, NetworkConfig(), inputs), _onnxruntime(net, inputs)
        for name, values in ours.items():
            dims = values.shape
            step = net.scale_of(name, dims[1] if len(dims) > 1 else 1).scale
            step = step.reshape((1, -1) + (1,) * (values.ndim - 2)) if step.size > 1 else step
            apart = np.abs(values - theirs[name]) / step
            assert apart.max() < 1.001, f"{kind}, seed {seed}: {apart.max()} steps"
