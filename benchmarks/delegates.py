"""Time of an inference by LiteRT's delegate that is not spent in the simulation.

    python -m benchmarks.delegates --calls 200

It runs a small model on the golden engine in this process and through the delegate, and prints the medians
and their difference: what a call costs beside the simulation.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import numpy as np
from ai_edge_litert.interpreter import Interpreter, load_delegate

from rkcosim.compiler import LoadedModel, compile_model
from rkcosim.driver import Driver
from rkcosim.engines.engine import open_named
from rkcosim.plugins.library import delegate_library
from tests.models.litert_scripts import small


def measured(call: Callable[[], object], count: int) -> float:
    """Return the median time of a call in milliseconds."""
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return median(times) * 1000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.delegates", description=__doc__)
    parser.add_argument("--calls", type=int, default=200, help="number of inferences of each kind")
    count = parser.parse_args().calls
    for size in (8, 64):
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
        model, device = compile_model(data), open_named("golden")

        with LoadedModel(model, Driver(device)) as loaded:

            def run(loaded: LoadedModel = loaded, values: np.ndarray = values) -> None:
                loaded.set_input(0, values.transpose(0, 3, 1, 2))
                loaded.run()
                loaded.get_output(0, raw=True)

            direct = measured(run, count)
        device.close()
        print(
            f"input {'x'.join(map(str, detail['shape']))}: start {start:.2f} s, invoke {by_delegate:.3f} ms, "
            f"the same in one process {direct:.3f} ms, difference {by_delegate - direct:.3f} ms"
        )


if __name__ == "__main__":
    main()
