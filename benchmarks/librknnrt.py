"""What the way from a program to `librknnrt.so` costs: calls of a program in C on the golden engine.

    python -m benchmarks.librknnrt [--sides N ...] [--json FILE]

The program (benchmarks/librknnrt.c) is timed on networks of one convolution, 3 to 32 channels with stride 2,
on pictures of `side` x `side`.  Beside its calls stand conversions of the same elements by numpy in one
process: float32 to int8 codes for rknn_inputs_set, int8 codes to float32 for rknn_outputs_get.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks import JSON, write
from rkcosim import rknn_api
from rkcosim.devices.native_library import c_compiler
from rkcosim.devices.rknn_library import environment, lay_out, rknn_library
from rkcosim.driver import Driver
from rkcosim.engines.engine import open_engine
from rkcosim.measure.perf.measure import options
from rkcosim.rknn_api.server import RknnServer

QUERY_TARGET = 100.0
"""Most microseconds of a query, the median of 10,000."""

TARGET = 3.0
"""How many times a conversion by numpy a call may take."""

SOURCE = Path(__file__).with_name("librknnrt.c")
CALLS = 50


@dataclass(frozen=True)
class NetworkCalls:
    """One network: microseconds (medians) of the calls and of numpy's conversions."""

    side: int
    inputs: int
    outputs: int
    query: float
    inputs_set: float
    numpy_in: float
    outputs_get: float
    numpy_out: float


def network(side: int) -> bytes:
    """An int8 network in QDQ form: one convolution, 3 to 32 channels, stride 2."""
    rng = np.random.default_rng(side)
    constants: dict[str, Any] = {
        "scale": np.float32(1 / 255),
        "zero": np.int8(-128),
        "out_scale": np.float32(0.05),
        "out_zero": np.int8(0),
        "weights": rng.integers(-127, 128, (32, 3, 3, 3)).astype(np.int8),
        "weight_scale": np.float32(0.01),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["image", "scale", "zero"], ["codes"]),
        helper.make_node("DequantizeLinear", ["codes", "scale", "zero"], ["reals"]),
        helper.make_node("DequantizeLinear", ["weights", "weight_scale", "out_zero"], ["kernel"]),
        helper.make_node("Conv", ["reals", "kernel"], ["sums"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("QuantizeLinear", ["sums", "out_scale", "out_zero"], ["result"]),
        helper.make_node("DequantizeLinear", ["result", "out_scale", "out_zero"], ["out"]),
    ]
    shapes = {"image": (1, 3, side, side), "out": (1, 32, side // 2, side // 2)}
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in shapes.items()]
    tensors = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "one", ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)])
    model.ir_version = 8
    return onnx.shape_inference.infer_shapes(model).SerializeToString()


def median(work: Callable[[], object]) -> float:
    """Microseconds of a call, the median of `CALLS`."""
    times = []
    for _ in range(CALLS):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return 1e6 * statistics.median(times)


def conversions(inputs: int, outputs: int) -> tuple[float, float]:
    """Microseconds that numpy takes for the same elements: to codes, and to real numbers."""
    reals = np.random.default_rng(1).random(inputs, np.float32)
    codes = np.random.default_rng(2).integers(-128, 128, outputs).astype(np.int8)
    scale = np.float32(0.1)
    to_codes = median(lambda: np.clip(np.rint(reals / scale) - 128, -128, 127).astype(np.int8))
    return to_codes, median(lambda: (codes.astype(np.int32) + 3).astype(np.float32) * scale)


def measure(side: int, folder: Path, program: Path) -> NetworkCalls:
    """Run the program once."""
    (folder / "model.onnx").write_bytes(network(side))
    with RknnServer(folder / f"socket{side}") as server:
        env = environment(folder, server.path)
        command = [str(program), str(folder / "model.onnx")]
        text = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
    query, given, taken, inputs, outputs = (float(word) for word in text.split())
    to_codes, to_reals = conversions(int(inputs), int(outputs))
    return NetworkCalls(side, int(inputs), int(outputs), query, given, to_codes, taken, to_reals)


def main(given: list[str] | None = None) -> int:
    """Measure, print, and say whether the targets are reached."""
    chosen = options(__doc__, given, json=JSON, sides={"type": int, "nargs": "+", "default": [64, 224, 640]})
    engine = open_engine("golden", cores=1)
    rknn_api.use_device(Driver(engine, shared=True))
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            lay_out(folder, rknn_library())
            program = folder / "program"
            command: list[str | Path] = [
                *c_compiler(),
                "-O2",
                "-I",
                folder / "include",
                "-o",
                program,
                SOURCE,
            ]
            subprocess.run([*command, "-L", folder / "lib", "-lrknnrt"], check=True)
            rows = [measure(side, folder, program) for side in chosen.sides]
    finally:
        rknn_api.use_device(None)
        engine.close()
    print("| picture | rknn_query, us | rknn_inputs_set | numpy | times | rknn_outputs_get | numpy | times |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        into, out = row.inputs_set / row.numpy_in, row.outputs_get / row.numpy_out
        print(
            f"| {row.side} x {row.side} x 3 | {row.query:.0f} | {row.inputs_set:.0f} | {row.numpy_in:.0f} | "
            f"{into:.1f} | {row.outputs_get:.0f} | {row.numpy_out:.0f} | {out:.1f} |"
        )
    write(chosen.json, rows)
    reached = all(
        row.query <= QUERY_TARGET
        and row.inputs_set <= TARGET * row.numpy_in
        and row.outputs_get <= TARGET * row.numpy_out
        for row in rows
    )
    print(f"targets: {'reached' if reached else 'not reached'}")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
