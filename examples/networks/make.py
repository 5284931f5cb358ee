"""Networks as int8 ONNX in QDQ form, quantised by onnxruntime, and one of floats.

    python examples/networks/make.py build/networks                          # three small ones
    python examples/networks/make.py build/networks mobilenet_v1 resnet50    # published layer shapes
    python examples/networks/make.py build/networks residual --floats        # the float models as well

Weights and calibration data are random with a fixed seed: the networks show operators and sizes, they
classify nothing.  Needs the packages onnx and onnxruntime.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Maker = Callable[[], tuple["Network", "str | list[str]"]]
"""Makes a network; with it the name of its output, or of its outputs."""


class Network:
    """A float network under construction; methods add nodes and give their output's name."""

    def __init__(self, name: str, shape: tuple[int, ...], seed: int, opset: int = 14) -> None:
        self.name, self.shape, self.opset = name, shape, opset
        self.inputs = {"image": shape}
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []

    def input(self, name: str, shape: tuple[int, ...]) -> str:
        """Add an input beside the first one, which is named `image`."""
        self.inputs[name] = shape
        return name

    def constant(self, values: object, dtype: type = np.float32) -> str:
        """Add an initializer."""
        name = f"constant{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.asarray(values, dtype=dtype), name))
        return name

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node."""
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def split(self, x: str, sizes: str, names: Sequence[str], axis: int = -1) -> None:
        """Add a Split into parts of these names."""
        self.nodes.append(helper.make_node("Split", [x, sizes], list(names), name=names[0], axis=axis))

    def conv(
        self,
        x: str,
        cin: int,
        cout: int,
        kernel: int = 3,
        stride: int = 1,
        groups: int = 1,
        pad: int | None = None,
    ) -> str:
        """Add a convolution that keeps the size but for its stride (unless `pad` says otherwise)."""
        depth = cin // groups
        weights = self.rng.normal(size=(cout, depth, kernel, kernel)) * np.sqrt(2 / (depth * kernel**2))
        bias = self.rng.normal(size=cout) * 0.1
        return self.add(
            "Conv",
            x,
            self.constant(weights),
            self.constant(bias),
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[kernel // 2 if pad is None else pad] * 4,
            group=groups,
        )

    def relu(self, x: str) -> str:
        """Add a Relu."""
        return self.add("Relu", x)

    def clip(self, x: str) -> str:
        """Add a Clip to 0..6."""
        return self.add("Clip", x, self.constant(np.array(0.0)), self.constant(np.array(6.0)))

    def silu(self, x: str) -> str:
        """Add x times its Sigmoid."""
        return self.add("Mul", x, self.add("Sigmoid", x))

    def twice(self, x: str) -> str:
        """Repeat every pixel in both directions."""
        scales = self.constant([1.0, 1.0, 2.0, 2.0])
        modes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return self.add("Resize", x, "", scales, **modes)

    def classify(self, x: str, channels: int, classes: int) -> str:
        """Add a global average, a dense layer and a softmax."""
        flat = self.add("Flatten", self.add("GlobalAveragePool", x))
        weights = self.constant(self.rng.normal(size=(classes, channels)) / np.sqrt(channels))
        return self.add(
            "Softmax", self.add("Gemm", flat, weights, self.constant(np.zeros(classes)), transB=1), axis=1
        )

    def model(self, outputs: str | list[str]) -> onnx.ModelProto:
        """The model with this output, or these."""
        names = [outputs] if isinstance(outputs, str) else outputs
        begins = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in self.inputs.items()
        ]
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]
        graph = helper.make_graph(self.nodes, self.name, begins, ends, self.tensors)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        made.ir_version = 8
        return onnx.shape_inference.infer_shapes(made)


def residual() -> tuple[Network, str]:
    """Convolutions with two residual sums."""
    n = Network("residual", (1, 3, 32, 32), 1)
    x = n.relu(n.conv("image", 3, 16))
    x = n.relu(n.add("Add", x, n.conv(n.relu(n.conv(x, 16, 16)), 16, 16)))
    short = n.conv(x, 16, 32, 1, 2)
    x = n.relu(n.add("Add", short, n.conv(n.relu(n.conv(x, 16, 32, 3, 2)), 32, 32)))
    return n, n.classify(x, 32, 10)


def separable() -> tuple[Network, str]:
    """Depthwise and pointwise convolutions, with Clip as in MobileNet."""
    n = Network("separable", (1, 3, 48, 48), 2)
    x = n.clip(n.conv("image", 3, 16, 3, 2))
    for cin, cout, stride in ((16, 32, 1), (32, 64, 2), (64, 64, 1), (64, 128, 2)):
        x = n.clip(n.conv(x, cin, cin, 3, stride, groups=cin))
        x = n.clip(n.conv(x, cin, cout, 1))
    return n, n.classify(x, 128, 10)


def upscaling() -> tuple[Network, str]:
    """SiLU, a transposed convolution, a nearest Resize, Concat and Sigmoid."""
    n = Network("upscaling", (1, 3, 24, 24), 3)
    first = n.silu(n.conv("image", 3, 16))
    low = n.silu(n.conv(first, 16, 32, 3, 2))
    weights = n.constant(n.rng.normal(size=(32, 16, 2, 2)) / 8)
    wide = n.add("ConvTranspose", low, weights, n.constant(np.zeros(16)), kernel_shape=[2, 2], strides=[2, 2])
    joined = n.add("Concat", first, wide, n.twice(n.conv(low, 32, 16, 1)), axis=1)
    return n, n.add("Sigmoid", n.conv(n.silu(n.conv(joined, 48, 16)), 16, 1, 1))


def mobilenet_v1() -> tuple[Network, str]:
    """MobileNetV1 1.0 at 224 x 224 (Howard et al. 2017, table 1): 569 million MACs."""
    n = Network("mobilenet_v1", (1, 3, 224, 224), 4)
    x = n.clip(n.conv("image", 3, 32, 3, 2))
    shapes = [(32, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2)]
    shapes += [(512, 512, 1)] * 5 + [(512, 1024, 2), (1024, 1024, 1)]
    for cin, cout, stride in shapes:
        x = n.clip(n.conv(x, cin, cin, 3, stride, groups=cin))
        x = n.clip(n.conv(x, cin, cout, 1))
    return n, n.classify(x, 1024, 1000)


def mobilenet_v2() -> tuple[Network, str]:
    """MobileNetV2 1.0 at 224 x 224 (Sandler et al. 2018, table 2): 301 million MACs."""
    n = Network("mobilenet_v2", (1, 3, 224, 224), 6)
    x, cin = n.clip(n.conv("image", 3, 32, 3, 2)), 32
    blocks = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2))
    for factor, cout, repeats, first in (*blocks, (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for repeat in range(repeats):
            stride, wide = (first if repeat == 0 else 1), cin * factor
            y = n.clip(n.conv(x, cin, wide, 1)) if factor > 1 else x
            y = n.conv(n.clip(n.conv(y, wide, wide, 3, stride, groups=wide)), wide, cout, 1)
            x = n.add("Add", x, y) if stride == 1 and cin == cout else y
            cin = cout
    return n, n.classify(n.clip(n.conv(x, cin, 1280, 1)), 1280, 1000)


def resnet50() -> tuple[Network, str]:
    """ResNet-50 at 224 x 224 with the stride in the 3x3 convolutions (v1.5): 4.09 G MACs."""
    n = Network("resnet50", (1, 3, 224, 224), 5)
    x = n.relu(n.conv("image", 3, 64, 7, 2))
    x = n.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    cin = 64
    for blocks, width, first in ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)):
        for block in range(blocks):
            stride = first if block == 0 else 1
            short = n.conv(x, cin, 4 * width, 1, stride) if block == 0 else x
            y = n.relu(n.conv(x, cin, width, 1))
            y = n.relu(n.conv(y, width, width, 3, stride))
            x = n.relu(n.add("Add", n.conv(y, width, 4 * width, 1), short))
            cin = 4 * width
    return n, n.classify(x, 2048, 1000)


class Yolo:
    """Blocks that the YOLO networks share (ultralytics' yolov5 6.x and yolov8, heads as exported for NPUs).

    Parameters
    ----------
    name : of the network.
    depth, width : factors on the repeats and on the channels of the published layer table.
    activation : "silu" or "relu".
    """

    def __init__(self, name: str, depth: float, width: float, activation: str) -> None:
        self.n = Network(name, (1, 3, 640, 640), 7)
        self._depth, self._width, self._activation = depth, width, activation

    def channels(self, published: int) -> int:
        """Channels of a layer that has `published` at width 1: whole eights, rounded up."""
        return -(-int(published * self._width) // 8) * 8

    def repeats(self, published: int) -> int:
        """Blocks of a layer that has `published` at depth 1."""
        return max(round(published * self._depth), 1)

    def conv(self, x: str, cin: int, cout: int, kernel: int, stride: int = 1, pad: int | None = None) -> str:
        """A convolution with the network's activation."""
        y = self.n.conv(x, cin, cout, kernel, stride, pad=pad)
        return self.n.silu(y) if self._activation == "silu" else self.n.relu(y)

    def bottleneck(self, x: str, width: int, first: int, shortcut: bool) -> str:
        """A `first` x `first` and a 3x3 convolution of `width` channels, and perhaps the sum with `x`."""
        y = self.conv(self.conv(x, width, width, first), width, width, 3)
        return self.n.add("Add", x, y) if shortcut else y

    def c3(self, x: str, cin: int, cout: int, published: int, shortcut: bool = True) -> str:
        """yolov5's stage: bottlenecks on half of the channels beside a 1x1 convolution."""
        half = cout // 2
        y = self.conv(x, cin, half, 1)
        for _ in range(self.repeats(published)):
            y = self.bottleneck(y, half, 1, shortcut)
        return self.conv(self.n.add("Concat", y, self.conv(x, cin, half, 1), axis=1), cout, cout, 1)

    def c2f(self, x: str, cin: int, cout: int, published: int, shortcut: bool = True) -> str:
        """yolov8's stage: bottlenecks on half of the channels, the results of all joined.

        The first convolution's halves are made apart, which is the same arithmetic without a Split.
        """
        half = cout // 2
        parts = [self.conv(x, cin, half, 1), self.conv(x, cin, half, 1)]
        for _ in range(self.repeats(published)):
            parts.append(self.bottleneck(parts[-1], half, 3, shortcut))
        return self.conv(self.n.add("Concat", *parts, axis=1), half * len(parts), cout, 1)

    def sppf(self, x: str, channels: int) -> str:
        """Three 5x5 maxima one behind the other, all joined."""
        half = channels // 2
        parts = [self.conv(x, channels, half, 1)]
        for _ in range(3):
            sizes: dict[str, object] = {"kernel_shape": [5, 5], "strides": [1, 1], "pads": [2] * 4}
            parts.append(self.n.add("MaxPool", parts[-1], **sizes))
        return self.conv(self.n.add("Concat", *parts, axis=1), 2 * channels, channels, 1)

    def join(self, x: str, y: str) -> str:
        """Concat of two tensors."""
        return self.n.add("Concat", x, y, axis=1)


def yolov5(name: str, depth: float, width: float, activation: str = "silu") -> Maker:
    """yolov5 6.x at 640 x 640 with 80 classes; the heads end in a Sigmoid, boxes are the host's."""

    def make() -> tuple[Network, list[str]]:
        net = Yolo(name, depth, width, activation)
        c64, c128, c256, c512, c1024 = (net.channels(c) for c in (64, 128, 256, 512, 1024))
        x = net.conv(net.conv("image", 3, c64, 6, 2, 2), c64, c128, 3, 2)
        x = net.conv(net.c3(x, c128, c128, 3), c128, c256, 3, 2)
        small = net.c3(x, c256, c256, 6)
        middle = net.c3(net.conv(small, c256, c512, 3, 2), c512, c512, 9)
        x = net.c3(net.conv(middle, c512, c1024, 3, 2), c1024, c1024, 3)
        low = net.conv(net.sppf(x, c1024), c1024, c512, 1)
        x = net.c3(net.join(net.n.twice(low), middle), c1024, c512, 3, False)
        mid = net.conv(x, c512, c256, 1)
        p3 = net.c3(net.join(net.n.twice(mid), small), c512, c256, 3, False)
        p4 = net.c3(net.join(net.conv(p3, c256, c256, 3, 2), mid), c512, c512, 3, False)
        p5 = net.c3(net.join(net.conv(p4, c512, c512, 3, 2), low), c1024, c1024, 3, False)
        heads = [(p3, c256), (p4, c512), (p5, c1024)]
        return net.n, [net.n.add("Sigmoid", net.n.conv(x, c, 255, 1)) for x, c in heads]

    return make


def yolov8(name: str, depth: float, width: float) -> Maker:
    """yolov8 at 640 x 640 with 80 classes; a head ends in 64 bins of the box and a Sigmoid of the classes."""

    def make() -> tuple[Network, list[str]]:
        net = Yolo(name, depth, width, "silu")
        c64, c128, c256, c512, c1024 = (net.channels(c) for c in (64, 128, 256, 512, 1024))
        x = net.conv(net.conv("image", 3, c64, 3, 2), c64, c128, 3, 2)
        x = net.conv(net.c2f(x, c128, c128, 3), c128, c256, 3, 2)
        small = net.c2f(x, c256, c256, 6)
        middle = net.c2f(net.conv(small, c256, c512, 3, 2), c512, c512, 6)
        low = net.sppf(net.c2f(net.conv(middle, c512, c1024, 3, 2), c1024, c1024, 3), c1024)
        mid = net.c2f(net.join(net.n.twice(low), middle), c1024 + c512, c512, 3, False)
        p3 = net.c2f(net.join(net.n.twice(mid), small), c512 + c256, c256, 3, False)
        p4 = net.c2f(net.join(net.conv(p3, c256, c256, 3, 2), mid), c256 + c512, c512, 3, False)
        p5 = net.c2f(net.join(net.conv(p4, c512, c512, 3, 2), low), c512 + c1024, c1024, 3, False)
        box, classes, ends = max(16, c256 // 4, 64), max(c256, 80), []
        for x, c in ((p3, c256), (p4, c512), (p5, c1024)):
            y = net.conv(net.conv(x, c, box, 3), box, box, 3)
            z = net.conv(net.conv(x, c, classes, 3), classes, classes, 3)
            ends += [net.n.conv(y, box, 64, 1), net.n.add("Sigmoid", net.n.conv(z, classes, 80, 1))]
        return net.n, ends

    return make


NETWORKS: dict[str, Maker] = {"residual": residual, "separable": separable, "upscaling": upscaling}
PUBLISHED: dict[str, Maker] = {
    "mobilenet_v1": mobilenet_v1,
    "mobilenet_v2": mobilenet_v2,
    "resnet50": resnet50,
    "yolov5s_relu": yolov5("yolov5s_relu", 0.33, 0.5, "relu"),
    "yolov5n": yolov5("yolov5n", 0.33, 0.25),
    "yolov5s": yolov5("yolov5s", 0.33, 0.5),
    "yolov5m": yolov5("yolov5m", 0.67, 0.75),
    "yolov8n": yolov8("yolov8n", 0.33, 0.25),
    "yolov8s": yolov8("yolov8s", 0.33, 0.5),
}


def quantise(model: onnx.ModelProto, data: list[np.ndarray]) -> bytes:
    """Int8 in QDQ form by onnxruntime's static quantiser, weights per channel."""
    import onnxruntime.quantization as q

    class Reader(q.CalibrationDataReader):
        def __init__(self) -> None:
            self.items = iter([{"image": item} for item in data])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.items, None)

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source, target = Path(folder, "float.onnx"), Path(folder, "int8.onnx")
        onnx.save(model, source)
        logging.disable(logging.WARNING)  # it recommends preprocessing that has nothing to do here
        kinds = {"activation_type": q.QuantType.QInt8, "weight_type": q.QuantType.QInt8}
        q.quantize_static(
            str(source), str(target), Reader(), quant_format=q.QuantFormat.QDQ, per_channel=True, **kinds
        )
        logging.disable(logging.NOTSET)
        return target.read_bytes()


def make(name: str) -> tuple[bytes, bytes, np.ndarray]:
    """One network: as floats, as int8, and an input for it."""
    network, output = (NETWORKS | PUBLISHED)[name]()
    model = network.model(output)
    images = 4 if name in NETWORKS else 1
    data = [network.rng.normal(size=network.shape).astype(np.float32) for _ in range(images)]
    return model.SerializeToString(), quantise(model, data), data[0]


def main() -> None:
    """Write the networks named on the command line (default: the small ones) into its folder."""
    known = ", ".join(NETWORKS | PUBLISHED)
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("build/networks"), help="where to")
    parser.add_argument("names", nargs="*", help=f"networks: {known}; default: the small ones")
    parser.add_argument("--floats", action="store_true", help="also write every network as floats")
    given = parser.parse_args()
    folder, names = given.folder, given.names or list(NETWORKS)
    unknown = set(names) - set(NETWORKS | PUBLISHED)
    if unknown:
        parser.error(f"no network {', '.join(sorted(unknown))}; there are {known}")
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        floats, codes, image = make(name)
        (folder / f"{name}_int8.onnx").write_bytes(codes)
        np.save(folder / f"{name}_input.npy", image)
        if name == "residual" or given.floats:
            (folder / f"{name}_float.onnx").write_bytes(floats)
    print(f"written: {', '.join(sorted(path.name for path in folder.iterdir()))}")


if __name__ == "__main__":
    main()
