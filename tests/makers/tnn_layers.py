"""Random networks of one TNN layer, for every layer type, and their results on a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rkcosim.apis.tnn import DeviceType, Instance, Mat, MatType, NetworkConfig
from rkcosim.apis.tnn.loader import TnnNetwork
from rkcosim.apis.tnn.loader.params import BINARY, REDUCTIONS, UNARY
from rkcosim.apis.tnn.loader.proto import VERSION_2, LayerInfo, NetInput, NetStructure
from rkcosim.apis.tnn.loader.resources import SCALE_SUFFIX
from rkcosim.apis.tnn.loader.shapes import bind

Rng = np.random.Generator
Case = tuple[list[tuple[int, ...]], Sequence[object], dict[str, np.ndarray], int]
"""Shapes of the inputs, parameters, arrays, and number of outputs."""


def _map(rng: Rng, low: int = 1, high: int = 24) -> tuple[int, int, int, int]:
    c, h, w = rng.integers(low, high, 3)
    return 1, int(c), int(h), int(w)


def _reals(rng: Rng, *shape: int) -> np.ndarray:
    return rng.normal(0, 0.5, shape).astype(np.float32)


def _convolution(rng: Rng) -> Case:
    group = int(rng.choice([1, 1, 2, 4]))
    shape = (1, group * int(rng.integers(1, 9)), int(rng.integers(5, 20)), int(rng.integers(5, 20)))
    if rng.random() < 0.3:
        group = shape[1]
    kernel, stride, pad = (rng.integers(1, 4, 2), rng.integers(1, 3, 2), rng.integers(0, 2, 2))
    outputs = group * int(rng.integers(1, 5))
    bias = int(rng.random() < 0.7)
    arrays = {"filter": _reals(rng, outputs, shape[1] // group, *kernel)}
    if bias:
        arrays["bias"] = _reals(rng, outputs)
    pad_type = int(rng.choice([-1, -1, 0, 1]))
    words = [group, shape[1] // group, outputs, *kernel, *stride, *pad, bias, pad_type, 1, 1]
    return [shape], [*words, int(rng.choice([0, 1, 2, 0x100]))], arrays, 1


def _deconvolution(rng: Rng) -> Case:
    shape, outputs = _map(rng, 2, 9), int(rng.integers(1, 9))
    stride = int(rng.integers(1, 3))
    kernel, pad = stride + int(rng.integers(0, 3)), int(rng.integers(0, 2))
    pad = min(pad, kernel - 1)
    arrays = {"filter": _reals(rng, shape[1], outputs, kernel, kernel), "bias": _reals(rng, outputs)}
    words = [1, shape[1], outputs, kernel, kernel, stride, stride, pad, pad, 1, -1, 1, 1, 0]
    return [shape], words, arrays, 1


def _pooling(rng: Rng) -> Case:
    shape, kind = _map(rng, 4, 20), int(rng.integers(0, 2))
    if rng.random() < 0.3:
        return [shape], [kind, 0, 0, 1, 1, 0, 0, -1, -1, -1, 0], {}, 1
    kernel = int(rng.integers(2, 4))
    pad, ceil = int(kernel > 2 and rng.integers(0, 2)), int(rng.integers(0, 2))
    return [shape], [kind, kernel, kernel, 2, 2, pad, pad, -1, -1, -1, ceil], {}, 1


def _inner_product(rng: Rng) -> Case:
    shape, count = _map(rng, 1, 7), int(rng.integers(1, 40))
    arrays = {"weight": _reals(rng, count, int(np.prod(shape))), "bias": _reals(rng, count)}
    return [shape], [count, 1, 0, 1], arrays, 1


def _matmul(rng: Rng) -> Case:
    m, k, n = (int(x) for x in rng.integers(1, 20, 3))
    return [(1, m, k)], [1], {"weight": _reals(rng, k, n)}, 1


def _binary(rng: Rng) -> Case:
    shape = _map(rng)
    if rng.random() < 0.5:
        return [shape, shape], [1], {}, 1
    values = rng.choice([1, shape[1]])
    return [shape], [1], {"element": np.abs(_reals(rng, values)) + np.float32(0.5)}, 1


def _channels(*names: str) -> Callable[[Rng], Case]:
    def make(rng: Rng) -> Case:
        shape = _map(rng)
        return [shape], [], {name: _reals(rng, shape[1]) for name in names}, 1

    return make


def _prelu(rng: Rng) -> Case:
    shape = _map(rng)
    return [shape], [0, 1], {"slope": _reals(rng, int(rng.choice([1, shape[1]])))}, 1


def _concat(rng: Rng) -> Case:
    n, c, h, w = _map(rng)
    return [(n, c, h, w), (n, int(rng.integers(1, 24)), h, w)], [1], {}, 1


def _split(rng: Rng) -> Case:
    n, _, h, w = _map(rng)
    sizes = rng.integers(1, 30, 2)
    return [(n, int(sizes.sum()), h, w)], [1, 2, *sizes], {}, 2


def _reshape(rng: Rng) -> Case:
    n, c, h, w = _map(rng, 1, 12)
    kind = int(rng.integers(0, 2))
    return [(n, c, h, w)], [0, 4, 4, 0, -1, w, 1] if not kind else [0, 4, 4, 0, -1, h * w, 1, kind], {}, 1


def _slice(rng: Rng) -> Case:
    shape = _map(rng, 3, 16)
    begins = [0, *(int(rng.integers(0, x // 2)) for x in shape[1:])]
    ends = [1, *(int(rng.integers(x // 2 + 1, x + 1)) for x in shape[1:])]
    return [shape], [4, *begins, 4, *ends, 4, 1, 1, 1, 1], {}, 1


def _slice_v2(rng: Rng) -> Case:
    shape = _map(rng, 4, 16)
    return [shape], [1, 1, 1, 2147483647, 1, 2, 1, int(rng.integers(1, 3))], {}, 1


def _pad(rng: Rng) -> Case:
    t, b, x, y = rng.integers(0, 3, 4)
    return [_map(rng, 4, 12)], [0, 0, t, b, x, y, 0, 0, int(rng.integers(0, 2)), 0.5], {}, 1


def _pad_v2(rng: Rng) -> Case:
    t, b, x, y = rng.integers(0, 3, 4)
    return [_map(rng, 4, 12)], [4, 0, 0, t, x, 0, 0, b, y, 0, 0.25], {}, 1


def _upsample(rng: Rng) -> Case:
    mode, factor = int(rng.integers(1, 4)), int(rng.integers(2, 4))
    return [_map(rng, 2, 10)], [mode, factor, factor, int(rng.integers(0, 2)) if mode > 1 else 0], {}, 1


def _reduce(rng: Rng) -> Case:
    axes = [[2, 3], [1], [1, 2, 3], [3]][int(rng.integers(0, 4))]
    return [_map(rng, 2, 12)], [int(rng.integers(0, 2)), *axes], {}, 1


def _shape(words: Callable[[Rng], Sequence[object]], low: int = 1, high: int = 24) -> Callable[[Rng], Case]:
    return lambda rng: ([_map(rng, low, high)], words(rng), {}, 1)


def _shuffle(rng: Rng) -> Case:
    group, (n, c, h, w) = int(rng.integers(1, 5)), _map(rng, 1, 12)
    return [(n, c * group, h, w)], [group], {}, 1


def _pixel_shuffle(rng: Rng) -> Case:
    factor, (n, c, h, w) = int(rng.integers(1, 4)), _map(rng, 1, 8)
    return [(n, c * factor**2, h, w)], [factor], {}, 1


def _squeeze(rng: Rng) -> Case:
    n, c, h, _ = _map(rng)
    return [(n, c, h, 1)], [1, 3], {}, 1


CASES: dict[str, Callable[[Rng], Case]] = {
    **dict.fromkeys((*UNARY, "Dropout", "Identity"), _shape(lambda rng: [])),
    "Split": lambda rng: ([_map(rng)], [], {}, 2),
    **dict.fromkeys(BINARY, _binary),
    **dict.fromkeys(REDUCTIONS, _reduce),
    "Convolution": _convolution,
    "Deconvolution": _deconvolution,
    "Pooling": _pooling,
    "InnerProduct": _inner_product,
    "MatMul": _matmul,
    "PReLU": _prelu,
    "Elu": _shape(lambda rng: [0.75]),
    "Selu": _shape(lambda rng: [1.6732632, 1.050701]),
    "Clip": _shape(lambda rng: [-0.3, 0.4]),
    "HardSigmoid": _shape(lambda rng: [0.2, 0.5]),
    "HardSwish": _shape(lambda rng: [0.16666667 if rng.random() < 0.5 else 0.25, 0.5]),
    "Power": _shape(lambda rng: [2.0, 0.5, 0.25]),
    "BatchNormCxx": _channels("scale", "bias"),
    "Scale": _channels("scale", "bias"),
    "BiasAdd": _channels("bias"),
    "InstBatchNormCxx": lambda rng: (
        lambda s: ([s], [s[1], 1e-3], {"scale": _reals(rng, s[1]), "bias": _reals(rng, s[1])}, 1)
    )(_map(rng, 4, 12)),
    "LRN": _shape(lambda rng: [1e-2, 0.75, 1.0, 5]),
    "Normalize": _shape(lambda rng: [0, 1e-6, 1, 1, 2], 2),
    "Softmax": _shape(lambda rng: [1], 2),
    "LogSoftmax": _shape(lambda rng: [1], 2),
    "Concat": _concat,
    "SplitV": _split,
    "Reshape": _reshape,
    "Flatten": _shape(lambda rng: [int(rng.integers(0, 4))], 1, 12),
    "Permute": _shape(lambda rng: [4, 0, 2, 3, 1]),
    "Squeeze": _squeeze,
    "Unsqueeze": lambda rng: ([_map(rng)[1:]], [1, 0], {}, 1),
    "StridedSlice": _slice,
    "StridedSliceV2": _slice_v2,
    "Pad": _pad,
    "PadV2": _pad_v2,
    "Upsample": _upsample,
    "PixelShuffle": _pixel_shuffle,
    "ShuffleChannel": _shuffle,
}
"""Makers of random layers by type: all but Const."""

POSITIVE = {"Log", "Sqrt", "Rsqrt", "Reciprocal", "Div", "ReduceLogSum", "ReduceProd"}
"""Types whose inputs are drawn between 0.5 and 2."""


def network_of(kind: str, case: Case) -> TnnNetwork:
    """Return the network of one layer."""
    shapes, words, arrays, count = case
    names = [f"x{n}" for n in range(len(shapes))]
    layer = LayerInfo(kind, "layer", tuple(names), tuple(f"y{n}" for n in range(count)), _words(words))
    inputs = tuple(NetInput(name, tuple(int(d) for d in s)) for name, s in zip(names, shapes, strict=True))
    return TnnNetwork(
        NetStructure(inputs, layer.outputs, (layer,), VERSION_2), {"layer": arrays} if arrays else {}
    )


def _words(words: Sequence[object]) -> tuple[str, ...]:
    return tuple(str(word) for word in words)


def inputs_of(net: TnnNetwork, kind: str, rng: Rng) -> dict[str, np.ndarray]:
    """Return random inputs."""
    made = {}
    for item in net.structure.inputs:
        values = rng.normal(0, 1, item.dims)
        if kind in POSITIVE:
            values = rng.uniform(0.5, 2.0, item.dims)
        made[item.name] = values.astype(np.float16).astype(np.float32)
    return made


def run(net: TnnNetwork, config: NetworkConfig, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the outputs of a network as real numbers."""
    with Instance(net, config, {}) as instance:
        return run_instance(instance, inputs)


def run_instance(instance: Instance, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the outputs of one inference as real numbers."""
    for name, values in inputs.items():
        mat = Mat(DeviceType.DEVICE_NAIVE, MatType.NCHW_FLOAT, values.shape, values)
        status = instance.SetInputMat(mat, name=name)
        assert status, status.description()
    status = instance.Forward()
    assert status, status.description()
    outputs = {}
    for name in instance.GetAllOutputBlobs()[1]:
        status, mat = instance.GetOutputMat(name=name)
        assert status and mat is not None, status.description()
        outputs[name] = mat.array.copy()
    return outputs


INT8 = ("Convolution", "InnerProduct", "Pooling", "Add", "Concat", "ReLU", "Reshape", "Permute", "Sigmoid")
"""Types that are tried as int8 layers."""


def coded_network(kind: str, rng: Rng, per_channel: bool) -> tuple[TnnNetwork, dict[str, np.ndarray]]:
    """Return the network of one random int8 layer, and inputs that are multiples of the scales."""
    while True:
        shapes, words, arrays, count = CASES[kind](rng)
        if kind == "Convolution" and words[-1] == 0x100:
            words = [*words[:-1], 1]
        if kind != "Add" or len(shapes) == 2:
            break
    plain = network_of(kind, (shapes, words, arrays, count))
    (bound,), dims = plain.bound()
    resources: dict[str, dict[str, np.ndarray]] = {}
    inputs = {}
    for item in plain.structure.inputs:
        values = rng.integers(-100, 101, item.dims)
        scale = np.float32(2.0 ** rng.integers(-8, -5))
        inputs[item.name] = (values * scale).astype(np.float32)
        resources[item.name + SCALE_SUFFIX] = {"scale": np.array([scale], np.float32)}
    first = float(resources["x0" + SCALE_SUFFIX]["scale"][0])
    for name in plain.structure.outputs:
        channels = dims[name][1] if len(dims[name]) > 1 else 1
        size = channels if per_channel and kind == "Convolution" else 1
        scale = rng.uniform(0.5, 2.0, size).astype(np.float32) * np.float32(first)
        if kind in ("Pooling", "ReLU", "Reshape", "Permute"):
            scale = np.array([first], np.float32)
        elif kind == "Sigmoid":
            scale = np.array([1 / 128], np.float32)
        resources[name + SCALE_SUFFIX] = {"scale": scale.astype(np.float32)}
    key = {"Convolution": "filter", "InnerProduct": "weight"}.get(kind)
    if key is not None:
        size = bound.params["output_channel" if key == "filter" else "num_output"]
        taps = arrays[key].size // size
        resources["layer"] = {
            key: rng.integers(-127, 128, arrays[key].shape).astype(np.int8),
            "bias": rng.integers(-2000, 2000, size).astype(np.int32),
            "scale": (rng.uniform(0.5, 2.0, size) * first / (40 * np.sqrt(taps))).astype(np.float32),
        }
    layer = plain.structure.layers[0]
    layer = LayerInfo(layer.type, layer.name, layer.inputs, layer.outputs, layer.params, quantized=True)
    if key is not None:
        bind(layer, resources["layer"], [item.dims for item in plain.structure.inputs])
    structure = NetStructure(plain.structure.inputs, plain.structure.outputs, (layer,), VERSION_2)
    return TnnNetwork(structure, resources), inputs
