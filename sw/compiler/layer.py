"""A single random convolution as a model, for benchmarks and tests."""

from __future__ import annotations

import numpy as np

from rkcosim.compiler.graph import Clamp, Conv, Graph, GraphInput, GraphOutput, Tensor, Window
from rkcosim.compiler.model import CompiledModel


def compile_conv_layer(
    channels: int,
    kernels: int,
    height: int,
    width: int,
    *,
    kernel: int | tuple[int, int] = 1,
    stride: int = 1,
    pad: int = 0,
    dilation: int = 1,
    depthwise: bool = False,
    relu: bool = False,
    clamp: Clamp | None = None,
    zero_points: tuple[int, int] = (-3, 5),
    seed: int = 0,
) -> CompiledModel:
    """Compile one int8 convolution with random weights, bias and channel scales.

    The output scale is chosen so that outputs spread over the int8 range.  An input of up to four
    channels is stored as packed pixels, as in the first layer of a network.

    Parameters
    ----------
    channels, kernels
        Input and output channels; equal if `depthwise`.
    height, width
        Input size.
    kernel, stride, pad, dilation
        The window; `pad` applies to all sides.
    relu
        Fuse a ReLU.
    clamp
        Fuse other limits, in output steps relative to real zero.
    zero_points
        Zero points of input and output.
    seed
        Seed of the random numbers.

    Raises
    ------
    ModelError
        If neither the NPU nor the host can do the layer.
    """
    rng = np.random.default_rng(seed)
    size = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    window = Window(size, (stride, stride), (pad,) * 4, (dilation, dilation))
    out = window.output(height, width)
    depth = 1 if depthwise else channels
    weights = rng.integers(-127, 128, (kernels, depth, *size), dtype=np.int8)
    scales = rng.uniform(0.3, 1.0, kernels) / 128
    x_scale = 1 / 64
    deviation = 75 * 75 * np.sqrt(depth * size[0] * size[1])
    bias = rng.integers(-20000, 20001, kernels).astype(np.int64)
    graph = Graph(f"conv {channels}->{kernels} {size[0]}x{size[1]} from {height}x{width}")
    y_scale = float(deviation * x_scale * scales.max() / 60)
    graph.tensors["x"] = Tensor(
        "x", (1, channels, height, width), x_scale, zero_points[0], (channels, height, width)
    )
    graph.tensors["y"] = Tensor("y", (1, kernels, *out), y_scale, zero_points[1], (kernels, *out))
    limits = Clamp(low=0.0) if relu else Clamp()
    if clamp is not None:
        limits = Clamp(clamp.low * y_scale, clamp.high * y_scale)
    groups = channels if depthwise else 1
    graph.ops.append(Conv("conv", ("x",), "y", weights, scales, 0, bias, window, groups, clamp=limits))
    graph.inputs.append(GraphInput("x", "x", (1, channels, height, width)))
    graph.outputs.append(GraphOutput("y", (1, kernels, *out), "y", False))
    return CompiledModel(graph)
