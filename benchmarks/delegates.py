"""Time of an inference by the plug-ins of LiteRT and onnxruntime that is not spent in the simulation.

    python -m benchmarks.delegates --calls 200

It runs small models on the golden engine in this process and through the plug-in, and prints the medians
and their difference: what a call costs beside the simulation.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, load_delegate

from rkcosim.apis.litert.library import delegate_library
from rkcosim.compiler import LoadedModel, compile_model
from rkcosim.driver import Driver
from rkcosim.engines.engine import open_engine
from tests.makers.litert_scripts import small
from tests.makers.ort_scripts import registered, session
from tests.makers.rknn_models import image_model


def measured(call: Callable[[], object], count: int) -> float:
    """Return the median time of a call in milliseconds."""
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return median(times) * 1000


def in_process(data: bytes, values: np.ndarray, raw: bool, count: int) -> float:
    """Return the median time of an inference in this process; `raw` : with codes as results."""
    model, device = compile_model(data), open_engine("golden")
    with LoadedModel(model, Driver(device)) as loaded:

        def run() -> None:
            loaded.set_input(0, values)
            loaded.run()
            loaded.get_output(0, raw=raw)

        direct = measured(run, count)
    device.close()
    return direct


def say(name: str, shape: Any, start: float, times: tuple[float, float]) -> None:
    """Print a row."""
    plugin, direct = times
    print(
        f"{name}, input {'x'.join(map(str, shape))}: start {start:.2f} s, inference {plugin:.3f} ms, "
        f"the same in one process {direct:.3f} ms, difference {plugin - direct:.3f} ms"
    )


def by_litert(size: int, count: int) -> None:
    """Measure a model of three convolutions of bytes through the delegate."""
    data = small(size=size)
    begun = time.perf_counter()
    delegate = load_delegate(str(delegate_library()), {"engine": "golden"})
    start = time.perf_counter() - begun
    interpreter = Interpreter(model_content=data, experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    detail = interpreter.get_input_details()[0]
    values = np.random.default_rng(1).integers(-128, 128, detail["shape"]).astype(np.int8)
    interpreter.set_tensor(detail["index"], values)
    by_delegate = measured(interpreter.invoke, count)
    direct = in_process(data, values.transpose(0, 3, 1, 2), True, count)
    say("LiteRT", detail["shape"], start, (by_delegate, direct))


def by_onnxruntime(size: int, count: int) -> None:
    """Measure a model of one convolution in QDQ form through the provider."""
    data = image_model(channels=8, kernels=8, size=(size, size))
    registered()
    begun = time.perf_counter()
    made = session(data)
    start = time.perf_counter() - begun
    values = np.random.default_rng(1).normal(0, 20, (1, 8, size, size)).astype(np.float32)
    by_provider = measured(lambda: made.run(None, {"x": values}), count)
    say("onnxruntime", values.shape, start, (by_provider, in_process(data, values, False, count)))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.delegates", description=__doc__)
    parser.add_argument("--calls", type=int, default=200, help="number of inferences of each kind")
    count = parser.parse_args().calls
    for size in (8, 64):
        by_litert(size, count)
    for size in (8, 64):
        by_onnxruntime(size, count)


if __name__ == "__main__":
    main()
