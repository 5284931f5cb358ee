"""Models that suites run: small networks with random weights, and what onnxruntime answers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tools.outside.suite import NotHere


class Network:
    """An ONNX model that is written node by node, with one input of pictures.

    Parameters
    ----------
    side : height and width of the input, (1, 3, side, side), named `name`.
    seed : of the random weights.
    """

    def __init__(self, side: int, seed: int, name: str = "input") -> None:
        try:
            from onnx import helper
        except ImportError as error:
            raise NotHere("making the model needs the package onnx") from error
        self.helper = helper
        self.random = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.input = helper.make_tensor_value_info(name, 1, (1, 3, side, side))

    def constant(self, value: np.ndarray) -> str:
        """Add a constant; return its name."""
        from onnx import numpy_helper

        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node of one output; return the output's name."""
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def conv(
        self,
        x: str,
        channels: tuple[int, int],
        side: int,
        stride: int = 1,
        bias: float = 0.0,
        gain: float = 1.0,
    ) -> str:
        """Add a convolution with random weights that keep the size of numbers; return its output.

        Parameters
        ----------
        channels : of the input and of the output.
        side : of the kernel.
        bias : mean of the values that are added.
        gain : factor of the weights.
        """
        wide, deep = channels
        scale = gain * (2 / (wide * side * side)) ** 0.5
        weights = (self.random.standard_normal((deep, wide, side, side)) * scale).astype(np.float32)
        add = (self.random.standard_normal(deep) * 0.1 + bias).astype(np.float32)
        names = (self.constant(weights), self.constant(add))
        pads = [side // 2] * 4
        return self.add("Conv", x, *names, kernel_shape=[side, side], strides=[stride, stride], pads=pads)

    def trunk(self, x: str, widths: Sequence[int], gain: float = 1.0) -> str:
        """Add convolutions 3 x 3 of stride 2, each with a ReLU, over `widths` channels; return the output.

        Parameters
        ----------
        gain : factor of the first one's weights.
        """
        for wide, deep in zip((3, *widths), widths, strict=False):
            x = self.add("Relu", self.conv(x, (wide, deep), 3, stride=2, gain=gain))
            gain = 1.0
        return x

    def write(self, path: Path, outputs: Mapping[str, Sequence[int]]) -> None:
        """Write the model with these outputs and their shapes."""
        import onnx

        outs = [self.helper.make_tensor_value_info(name, 1, shape) for name, shape in outputs.items()]
        graph = self.helper.make_graph(self.nodes, "network", [self.input], outs, self.constants)
        model = self.helper.make_model(graph, opset_imports=[self.helper.make_operatorsetid("", 13)])
        model.ir_version = 9
        onnx.checker.check_model(model)
        path.write_bytes(model.SerializeToString())


def reference(path: Path, inputs: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
    """Return onnxruntime's outputs of a model of one input, for each of several inputs."""
    try:
        import onnxruntime
    except ImportError as error:
        raise NotHere("the expected numbers need the package onnxruntime") from error
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return [session.run(None, {name: x}) for x in inputs]


def convert(path: Path, target: Path, *words: str) -> None:
    """Write an ONNX model compiled by `rkcosim compile`, in its own container, which rknn_init reads, too."""
    whole = target.with_suffix(".rkc")
    command = [sys.executable, "-m", "rkcosim", "compile", str(path), "-o", str(whole), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"rkcosim compile: {(done.stdout + done.stderr).strip()[-300:]}")
    whole.rename(target)
