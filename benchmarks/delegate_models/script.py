"""Run a TFLite or ONNX file on random inputs with LiteRT or onnxruntime; --plugin runs it on an NPU.

python script.py model.tflite results.npz                               # on the processor
python script.py model.tflite results.npz --plugin $(rkcosim delegate)  # on the simulated NPU
python script.py model.onnx results.npz --plugin $(rkcosim provider)

results.npz gets the inputs, the outputs of the first inference, and as JSON what else was measured.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

CALLS, SECONDS = 6, 10.0
"""Inferences are repeated up to this number, until this many seconds have passed."""

Made = tuple[list[np.ndarray], Callable[[], list[np.ndarray]], list[Any]]


def draw(rng: np.random.Generator, shape: Any, dtype: Any, quantised: bool) -> np.ndarray:
    """Return codes for a quantised input, normal numbers for floats, and 0 or 1 for other integers."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return rng.normal(size=shape).astype(dtype)
    if quantised or (dtype.itemsize == 1 and dtype.kind in "iu"):
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)


def with_litert(given: argparse.Namespace, options: dict[str, str], rng: np.random.Generator) -> Made:
    """Return the inputs, a function that runs one inference, and names with scales and zero points."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType, load_delegate

    delegates = [load_delegate(given.plugin, options)] if given.plugin else []
    more = {}
    if given.plain:
        more["experimental_op_resolver_type"] = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        more["num_threads"] = 1
    interpreter = Interpreter(given.model, experimental_delegates=delegates, **more)
    interpreter.allocate_tensors()
    takes, gives = interpreter.get_input_details(), interpreter.get_output_details()
    inputs = [draw(rng, x["shape"], x["dtype"], x["quantization"][0] != 0) for x in takes]

    def call() -> list[np.ndarray]:
        for detail, array in zip(takes, inputs, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        return [interpreter.get_tensor(detail["index"]) for detail in gives]

    return inputs, call, [[[x["name"], *x["quantization"]] for x in details] for details in (takes, gives)]


def with_onnxruntime(given: argparse.Namespace, options: dict[str, str], rng: np.random.Generator) -> Made:
    """Return the inputs, a function that runs one inference, and names with scales and zero points."""
    import onnxruntime

    chosen = onnxruntime.SessionOptions()
    providers: list = ["CPUExecutionProvider"]
    if given.plugin:
        onnxruntime.register_execution_provider_library("RkCosim", given.plugin)
        providers.insert(0, ("RkCosim", options))
    if given.plain:
        chosen.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        chosen.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(given.model, chosen, providers=providers)
    kinds = {"float": "float32", "double": "float64"}
    shapes, inputs = json.loads(given.shapes), {}
    for item in session.get_inputs():
        kind = item.type.removeprefix("tensor(").removesuffix(")")
        inputs[item.name] = draw(rng, shapes.get(item.name, item.shape), kinds.get(kind, kind), False)
    names = [list(inputs), [item.name for item in session.get_outputs()]]
    details = [[[name, 0.0, 0] for name in side] for side in names]
    return list(inputs.values()), lambda: session.run(None, inputs), details


def main() -> None:
    """Run the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", help="TFLite or ONNX file")
    parser.add_argument("results", help="file for the results (.npz)")
    parser.add_argument("--plugin", help="external delegate or execution provider")
    parser.add_argument("--option", action="append", default=[], help="option of the plug-in: engine=golden")
    parser.add_argument("--plain", action="store_true", help="without default delegates, or optimisations")
    parser.add_argument("--shapes", default="{}", help="shapes of inputs by name, as JSON (ONNX)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random inputs")
    given = parser.parse_args()
    options = dict(option.split("=", 1) for option in given.option)
    made = with_litert if given.model.endswith(".tflite") else with_onnxruntime
    begun = time.perf_counter()
    inputs, call, (takes, gives) = made(given, options, np.random.default_rng(given.seed))
    start = time.perf_counter() - begun
    calls: list = []
    first: list = []
    while len(calls) < CALLS and sum(calls) < SECONDS:
        begun = time.perf_counter()
        outputs = call()
        calls.append(time.perf_counter() - begun)
        first = first or outputs
    arrays: dict[str, Any] = {f"input {n}": array for n, array in enumerate(inputs)}
    arrays |= {f"output {n}": np.asarray(array) for n, array in enumerate(first)}
    told = {"takes": takes, "gives": gives, "start": start, "calls": calls}
    np.savez(given.results, told=json.dumps(told), **arrays)


if __name__ == "__main__":
    main()
