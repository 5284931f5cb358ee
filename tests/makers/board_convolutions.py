"""Convolutions that ran on a board: the table, their operands, the reference, and our own run."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rkcosim.compiler import CompiledModel, LoadedModel
from rkcosim.compiler.graph import Conv, Graph, GraphInput, GraphOutput, Tensor, Window
from rkcosim.compiler.runtime import NpuDriver

TABLE = Path(__file__).with_name("board_convolutions.csv")

SEED = 42
"""The board's operands: uniformly distributed in [-2, 2), first the input, then the weights."""

TOLERANCE = 1.01e-4
"""Tolerance: the log has four decimals, and the order of the reference's sum is numpy's choice."""


@dataclass(frozen=True)
class BoardConvolution:
    """A row of the table: a convolution in fp16 with stride 1 and without padding."""

    batch: int
    channels: int
    height: int
    width: int
    kernels: int
    kernel_height: int
    kernel_width: int
    groups: int
    listed: int
    max_diff: float

    def __str__(self) -> str:
        window = f"{self.kernel_height}x{self.kernel_width}"
        size = f"{self.channels}x{self.height}x{self.width}"
        return f"b{self.batch}-{size}-{self.kernels}-{window}-g{self.groups}"

    @property
    def macs(self) -> int:
        """Products of the whole batch."""
        rows, columns = self.output
        depth = self.channels // self.groups * self.kernel_height * self.kernel_width
        return self.batch * self.kernels * rows * columns * depth

    @property
    def output(self) -> tuple[int, int]:
        """Height and width of the result."""
        return self.height - self.kernel_height + 1, self.width - self.kernel_width + 1

    def operands(self) -> tuple[npt.NDArray[np.float16], npt.NDArray[np.float16]]:
        """Return input (batch, channels, height, width) and weights (kernels, channels per group, kernel)."""
        draw = np.random.RandomState(SEED)
        depth = self.channels // self.groups
        x = draw.uniform(-2, 2, (self.batch, self.channels, self.height, self.width))
        w = draw.uniform(-2, 2, (self.kernels, depth, self.kernel_height, self.kernel_width))
        return x.astype(np.float16), w.astype(np.float16)

    def reference(
        self, x: npt.NDArray[np.float16], weights: npt.NDArray[np.float16]
    ) -> npt.NDArray[np.float32]:
        """The binary32 result: taps are added in order, each as the sum over the channels of its group."""
        rows, columns = self.output
        depth, count = self.channels // self.groups, self.kernels // self.groups
        result = np.zeros((self.batch, self.kernels, rows, columns), np.float32)
        image, kernel = x.astype(np.float32), weights.astype(np.float32)
        for group in range(self.groups):
            inside = image[:, group * depth : (group + 1) * depth]
            mine = slice(group * count, (group + 1) * count)
            for down, across in np.ndindex(self.kernel_height, self.kernel_width):
                part = inside[:, :, down : down + rows, across : across + columns]
                result[:, mine] += np.einsum("bchw,kc->bkhw", part, kernel[mine, :, down, across])
        return result

    def compiled(self, weights: npt.NDArray[np.float16]) -> CompiledModel:
        """Return one picture of the batch as a network of one layer."""
        graph = Graph(str(self))
        shapes = {"x": (self.channels, self.height, self.width), "y": (self.kernels, *self.output)}
        for name, cube in shapes.items():
            graph.tensors[name] = Tensor(name, (1, *cube), 1.0, 0, cube, real=True)
        scales, bias = np.ones(self.kernels), np.zeros(self.kernels, np.int64)
        window = Window((self.kernel_height, self.kernel_width))
        # As the loader of float networks has it, the weights are numbers here.
        numbers = weights.astype(np.float32)
        graph.ops.append(Conv("conv", ("x",), "y", numbers, scales, 0, bias, window, self.groups))  # type: ignore[arg-type]
        graph.inputs.append(GraphInput("x", "x", (1, *shapes["x"])))
        graph.outputs.append(GraphOutput("y", (1, *shapes["y"]), "y", False))
        return CompiledModel(graph)

    def run(self, driver: Callable[[], NpuDriver]) -> float:
        """Run the batch with our plan, one picture on each `driver()`; return the largest difference."""
        x, weights = self.operands()
        model, got = self.compiled(weights), []
        for picture in x:
            with LoadedModel(model, driver()) as loaded:
                loaded.set_input(0, picture[None])
                loaded.run()
                got.append(loaded.get_output(0, raw=True)[0])
        assert got[0].dtype == np.float16
        return float(np.abs(np.stack(got).astype(np.float32) - self.reference(x, weights)).max())

    def check(self, driver: Callable[[], NpuDriver]) -> None:
        """Fail unless the largest difference equals the board's."""
        mine = self.run(driver)
        assert abs(mine - self.max_diff) < TOLERANCE, f"{self}: {mine:.6f}, on the board {self.max_diff:.4f}"


def board_convolutions() -> list[BoardConvolution]:
    """Return all rows, in the table's order."""
    with TABLE.open(newline="") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return [
            BoardConvolution(
                **{name: float(text) if name == "max_diff" else int(text) for name, text in row.items()}
            )  # type: ignore[arg-type]
            for row in rows
        ]
