"""TNN's calls answer with a Status: wrong words and arguments, and one device in several threads."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from rkcosim.apis.tnn import (
    TNN,
    DeviceType,
    Instance,
    Mat,
    MatType,
    ModelConfig,
    NetworkConfig,
    NetworkType,
    StatusCode,
)
from tests.makers.tnn_layers import CASES, inputs_of, network_of, run_instance
from tests.seeds import seed

MUTATIONS = 12
"""Networks with changed words of each layer type."""

NUMBERS = ("0", "-1", "2", "1000000", "0.0", "-2147483648", "7")


def on_device(number: int = 0) -> NetworkConfig:
    """Return the settings of a network on the golden engine."""
    return NetworkConfig(
        device_type=DeviceType.DEVICE_RK3588,
        device_id=number,
        network_type=NetworkType.NETWORK_TYPE_DEFAULT,
        engine="golden",
    )


@pytest.mark.parametrize("network_type", [NetworkType.NETWORK_TYPE_DEFAULT, NetworkType.NETWORK_TYPE_RK_NPU])
def test_one_device_in_three_threads(network_type: NetworkType) -> None:
    """Instances of three threads on one device, made, run and ended at the same time: 30 right results."""
    rng = np.random.default_rng(seed(__name__))
    cases = []
    for kind in ("Convolution", "ReLU", "Pooling"):
        net = network_of(kind, CASES[kind](rng))
        cases.append((net, inputs_of(net, kind, rng)))
    config = NetworkConfig(device_type=DeviceType.DEVICE_RK3588, network_type=network_type, engine="golden")
    wanted = []
    for net, inputs in cases:
        with Instance(net, config, {}) as instance:
            wanted.append(run_instance(instance, inputs)["y0"])
    right: list[bool] = []
    failures: list[BaseException] = []

    def work(number: int) -> None:
        net, inputs = cases[number]
        try:
            for _ in range(2):
                with Instance(net, config, {}) as instance:
                    for _ in range(5):
                        found = run_instance(instance, inputs)["y0"]
                        right.append(np.array_equal(found, wanted[number]))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert right == [True] * 30


@pytest.mark.parametrize("kind", sorted(CASES))
def test_wrong_words_are_a_status(kind: str) -> None:
    """A network with a changed word is created and runs, or the reason is a Status."""
    rng = np.random.default_rng([seed(__name__), len(kind)])
    for _ in range(MUTATIONS):
        shapes, words, arrays, count = CASES[kind](rng)
        changed = [str(word) for word in words] or ["0"]
        changed[int(rng.integers(0, len(changed)))] = str(rng.choice(NUMBERS))
        net = network_of(kind, (shapes, changed, arrays, count))
        tnn = TNN()
        tnn._net = net
        for config in (NetworkConfig(), on_device()):
            status, instance = tnn.CreateInst(config)
            assert bool(status) == (instance is not None)
            if instance is None:
                assert status.code is not StatusCode.TNN_OK and status.text
                continue
            for name, blob in instance.GetAllInputBlobs()[1].items():
                dims = blob.desc.dims
                mat = Mat(DeviceType.DEVICE_NAIVE, MatType.NCHW_FLOAT, dims, np.ones(dims, np.float32))
                assert instance.SetInputMat(mat, name=name)
            with np.errstate(all="ignore"):
                status = instance.Forward()
            assert status or status.text
            assert instance.DeInit()


def test_wrong_arguments_are_a_status() -> None:
    tnn: Any = TNN()
    assert tnn.Init(None).code is StatusCode.TNNERR_PARAM_ERR
    assert tnn.Init(ModelConfig(params=(None, None))).code is StatusCode.TNNERR_PARAM_ERR
    assert tnn.CreateInst(None)[0].code is StatusCode.TNNERR_PARAM_ERR
    tnn._net = network_of("ReLU", ([(1, 2, 3, 4)], [], {}, 1))
    status, instance = tnn.CreateInst(NetworkConfig())
    assert status
    assert not instance.SetInputMat(None) and not instance.Reshape(None) and not instance.Reshape({"x0": 3})
    assert not instance.GetOutputMat(mat_type=None)[0]
    assert instance.Forward() and instance.DeInit() and instance.DeInit()
    assert tnn.DeInit()
