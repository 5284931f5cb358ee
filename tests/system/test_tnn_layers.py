"""Layers of TNN on the device RK3588, with NAIVE as the standard, for every layer type."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from rkcosim.apis.tnn import DeviceType, Instance, NetworkConfig, NetworkType, get_device
from rkcosim.apis.tnn.loader import TnnNetwork
from rkcosim.apis.tnn.network import DefaultNetwork
from rkcosim.apis.tnn.rk3588 import Rk3588LayerAcc
from rkcosim.compiler.steps import Step
from tests.makers.tnn_layers import CASES, INT8, coded_network, inputs_of, network_of, run, run_instance

EXACT = {
    *("ReLU", "Abs", "Neg", "Floor", "Ceil", "Sign", "Dropout", "Identity", "Split", "Concat", "SplitV"),
    *(
        "Reshape",
        "Flatten",
        "Permute",
        "Squeeze",
        "Unsqueeze",
        "StridedSlice",
        "StridedSliceV2",
        "Pad",
        "PadV2",
    ),
    *("PixelShuffle", "ShuffleChannel", "ReduceMax", "ReduceMin"),
}
"""Types that move, choose or round numbers of fp16, which fp16 represents without an error."""

ROUNDINGS = 4
"""Roundings to fp16, of half a place (2^-11) each: weights, two intermediate results, and the result."""

PRODUCTS = {"filter", "weight", "scale", "slope"}


def _config(engine: str | None) -> NetworkConfig:
    return NetworkConfig(
        device_type=DeviceType.DEVICE_RK3588, network_type=NetworkType.NETWORK_TYPE_DEFAULT, engine=engine
    )


@pytest.fixture(scope="module", params=["golden"])
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """The golden engine, kept open."""
    context = get_device(DeviceType.DEVICE_RK3588).CreateContext(0, request.param)
    yield request.param
    context.close()


def _largest(net: TnnNetwork, inputs: dict[str, np.ndarray], outputs: dict[str, np.ndarray]) -> float:
    """Return the largest result, or for products the largest sum of absolute products."""
    found = max(float(np.abs(values).max()) for values in outputs.values())
    arrays = net.resources.get("layer", {})
    if PRODUCTS & set(arrays):
        absolute = TnnNetwork(net.structure, {"layer": {name: np.abs(a) for name, a in arrays.items()}})
        sums = run(absolute, NetworkConfig(), {name: np.abs(values) for name, values in inputs.items()})
        found = max(found, *(float(np.abs(values).max()) for values in sums.values()))
    return found


def _check(kind: str, seed: int, engine: str | None) -> dict[str, np.ndarray]:
    rng = np.random.default_rng([seed, len(kind), 7])
    net = network_of(kind, CASES[kind](rng))
    inputs = inputs_of(net, kind, rng)
    standard, ours = run(net, NetworkConfig(), inputs), run(net, _config(engine), inputs)
    bound = 0.0 if kind in EXACT else ROUNDINGS * 2.0**-11 * _largest(net, inputs, standard)
    for name, values in ours.items():
        assert values.shape == standard[name].shape
        apart = np.abs(values.astype(np.float64) - standard[name]).max()
        assert apart <= bound, f"{kind}, seed {seed}: {apart:.3e} apart, bound {bound:.3e}"
    return ours


@pytest.mark.parametrize("kind", CASES)
def test_a_layer_is_within_roundings_of_naive(kind: str, engine: str):
    for seed in range(3):
        _check(kind, seed, engine)


@pytest.mark.heavy
@pytest.mark.parametrize("kind", CASES)
def test_many_layers_are_within_roundings_of_naive(kind: str, engine: str):
    for seed in range(3, 60):
        _check(kind, seed, engine)


def test_layers_on_the_rtl_equal_those_of_the_golden_engine():
    """One layer of each type on the RTL: the bytes of the golden engine, within the bounds of NAIVE."""
    device = get_device(DeviceType.DEVICE_RK3588)
    contexts = [device.CreateContext(0, name) for name in (None, "golden")]
    try:
        for kind in CASES:
            rtl, golden = _check(kind, 101, None), _check(kind, 101, "golden")
            for name, values in rtl.items():
                np.testing.assert_array_equal(values, golden[name], err_msg=kind)
    finally:
        for context in contexts:
            context.close()


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", INT8)
def test_an_int8_layer_is_within_a_step_of_naive(kind: str, per_channel: bool, engine: str):
    for seed in range(3):
        net, inputs = coded_network(kind, np.random.default_rng([seed, len(kind), per_channel]), per_channel)
        standard = run(net, NetworkConfig(), inputs)
        with Instance(net, _config(engine), {}) as instance:
            ours = run_instance(instance, inputs)
        for name, values in ours.items():
            channels = values.shape[1] if values.ndim > 1 else 1
            step = net.scale_of(name, channels).scale
            step = step.reshape((1, -1) + (1,) * (values.ndim - 2)) if step.size > 1 else step
            apart = np.abs(values - standard[name]) / step
            assert apart.max() < 1.001, f"{kind}, seed {seed}: {apart.max():.2f} steps apart"


def _steps_on(kind: str, activation: str, engine: str) -> list[Step]:
    """Return the products in the plan of an int8 layer whose result has a scale for each channel."""
    seeds = (coded_network(kind, np.random.default_rng(seed), True)[0] for seed in range(100))
    net = next(n for n in seeds if kind != "Convolution" or n.structure.layers[0].params[-1] == activation)
    with Instance(net, _config(engine), {}) as instance:
        assert isinstance(instance.network, DefaultNetwork)
        acc = next(one.acc for one in instance.network.layers if one.info.type == kind)
        assert isinstance(acc, Rk3588LayerAcc)
        return [step for step in acc.model.plan.steps if step.kind in ("Conv", "DepthwiseConv", "Gemm")]


def test_int8_products_run_on_the_npu_as_int8(engine: str):
    for kind, activation in (("Convolution", "0"), ("Convolution", "1"), ("InnerProduct", "")):
        products = _steps_on(kind, activation, engine)
        assert products and not any(step.outputs[0].real for step in products)


def test_a_bound_for_each_channel_is_computed_in_fp16(engine: str):
    """ReLU6 of a blob with a scale for each channel is a bound for each channel, which int8 steps lack."""
    products = _steps_on("Convolution", "2", engine)
    assert products and all(step.outputs[0].real for step in products)
