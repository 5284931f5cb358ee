"""The node tests of the package onnx: each operator of ONNX on the NPU, on the host, or refused.

    python -m benchmarks.onnx_nodes [--only TEXT] [--constant] [--engine NAME] [--every N] [--json FILE]

Each test is a model of one operator (or of the operators that define it) with inputs and expected outputs.
It is compiled as `rkcosim run` compiles a model and run on the golden engine, or on another one.  A test is

    npu      if a task of the NPU took part: outputs are compared with `bound`;
    host     if only the host computed: outputs are compared with the tolerance of the suite;
    refused  if the model was refused with a message;
    wrong    if an output differs by more.

Random operators have no expected values and are only run.  With --constant all inputs but the first are
constants of the model, as weights and parameters are in networks; without it they are inputs.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import numpy_helper

from benchmarks import JSON, write
from rkcosim.compiler import LoadedModel, ModelError, compile_model
from rkcosim.compiler.steps import HostStep
from rkcosim.driver import Device, Driver
from rkcosim.engines.engine import open_engine
from rkcosim.golden.task import GoldenNpu
from rkcosim.measure.perf.measure import options

Array = npt.NDArray[Any]

ULPS = 4
"""Bound of results of the NPU, in units of the last place of fp16 of the largest partial sum."""
RANDOM = ("random", "bernoulli", "multinomial", "dropout")
LINEAR = {
    *("Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "Sub", "Mul", "Sum", "AveragePool"),
    *("GlobalAveragePool", "ReduceMean", "ReduceSum", "Einsum", "Mean"),
}
"""Operators whose partial sums are bounded by their result on the magnitudes of their inputs."""
TEXT = 160
"""Characters of a reason that are printed."""


@dataclass(frozen=True)
class Result:
    """One test: its verdict, the reason of a refusal or the difference, and the operators of its model."""

    name: str
    verdict: str
    text: str
    operators: tuple[str, ...]


def cases(only: str = "") -> Iterator[Any]:
    """Yield the test cases whose names contain a text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found = collect_testcases(None)
    yield from (case for case in found if only in case.name)


def with_constants(case: Any) -> Any | None:
    """Return a case whose inputs after the first are constants; None if it has no such inputs."""
    model = case.model
    tensors = [item for item in model.graph.input if item.type.HasField("tensor_type")]
    if len(case.data_sets) != 1 or len(tensors) < 2 or len(tensors) != len(model.graph.input):
        return None
    (inputs, expected), names = case.data_sets[0], [item.name for item in tensors]
    if not all(isinstance(item, np.ndarray | np.generic) for item in inputs):
        return None
    made = type(model)()
    made.CopyFrom(model)
    made.ir_version = max(model.ir_version, 4)  # before, constants were inputs as well
    del made.graph.input[1:]
    pairs = zip(names[1:], inputs[1:], strict=True)
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in pairs)
    return replace(case, model=made, data_sets=[(inputs[:1], expected)])


def ulp(values: Array) -> Array:
    """Return the unit in the last place of fp16 numbers, float64; that of the smallest normal at least."""
    with np.errstate(over="ignore", divide="ignore"):
        exponents = np.floor(np.log2(np.maximum(np.abs(values).astype(np.float64), 2.0**-14)))
    return np.asarray(2.0 ** (np.minimum(exponents, 15) - 10))


def bound(case: Any, inputs: Sequence[Array], expected: Sequence[Array]) -> list[Array]:
    """Return the largest allowed difference of each output of a test on the NPU.

    The partial sums of a linear operator are bounded by its result on the magnitudes of its inputs, those of
    others by the largest magnitude of inputs and outputs.  Codes may differ by one.
    """
    reals = [array for array in (*inputs, *expected) if array.dtype.kind == "f"]
    largest = max((float(np.abs(array).max(initial=0)) for array in reals), default=0.0)
    sums = [np.full(value.shape, largest) for value in expected]
    constants = [numpy_helper.to_array(item) for item in case.model.graph.initializer]
    if {node.op_type for node in case.model.graph.node} <= LINEAR:
        from onnx.reference import ReferenceEvaluator

        names = [item.name for item in case.model.graph.input]
        feed = {name: np.abs(array) for name, array in zip(names, inputs, strict=True)}
        made = type(case.model)()
        made.CopyFrom(case.model)
        for item, array in zip(made.graph.initializer, constants, strict=True):
            if array.dtype.kind == "f":
                item.CopyFrom(numpy_helper.from_array(np.abs(array), item.name))
        for node in made.graph.node:
            node.op_type = "Add" if node.op_type == "Sub" else node.op_type
        results: Any = ReferenceEvaluator(made).run(None, feed)
        sums = [np.maximum(np.abs(a), np.abs(b)) for a, b in zip(results, expected, strict=True)]
    return [
        ULPS * ulp(total) if value.dtype.kind == "f" else np.ones(value.shape)
        for total, value in zip(sums, expected, strict=True)
    ]


def run_case(case: Any, engine: str = "golden") -> Result:
    """Run one test on an engine."""
    operators = tuple(dict.fromkeys(node.op_type for node in case.model.graph.node))
    try:
        model = compile_model(case.model.SerializeToString())
    except ModelError as error:
        return Result(case.name, "refused", str(error), operators)
    where = "host" if all(isinstance(step, HostStep) for step in model.plan.steps) else "npu"
    for inputs, expected in case.data_sets:
        if not all(isinstance(item, np.ndarray | np.generic) for item in (*inputs, *expected)):
            return Result(case.name, "refused", "inputs or outputs are not arrays", operators)
        arrays = [np.asarray(item) for item in inputs]
        wanted = [np.asarray(item) for item in expected]
        device: Device = GoldenNpu(1) if engine == "golden" else open_engine(engine)
        try:
            with Driver(device) as driver, LoadedModel(model, driver) as loaded:
                for index, array in enumerate(arrays):
                    loaded.set_input(index, array)
                loaded.run()
                codes = [array.dtype.kind in "iu" for array in wanted]
                results = [loaded.get_output(index, raw) for index, raw in enumerate(codes)]
        except ModelError as error:
            return Result(case.name, "wrong", str(error), operators)
        if any(word in case.name for word in RANDOM):
            continue
        limits = bound(case, arrays, wanted) if where == "npu" else None
        for number, (given, right) in enumerate(zip(results, wanted, strict=True)):
            text = difference(case, given, right, None if limits is None else limits[number])
            if text:
                return Result(case.name, "wrong", f"{where}, output {number}: {text}", operators)
    return Result(case.name, where, "", operators)


def difference(case: Any, given: Array, right: Array, limit: Array | None) -> str:
    """Describe how far an output is from the expected one; empty if it is within its bound."""
    if given.shape != right.shape:
        return f"shape {given.shape}, not {right.shape}"
    if right.dtype.name == "bfloat16":  # expected values are rounded at each operator, ours are not
        right = right.astype(np.float32)
        size = np.abs(right).astype(np.float64)
        limit = 2.0**-8 * (size + size.max()) + (case.atol + case.rtol * size if limit is None else limit)
    if right.dtype.kind not in "fiub":
        return "" if np.array_equal(given.astype(np.float32), right.astype(np.float32)) else "other numbers"
    a, b = given.astype(np.float64), right.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(a - b))
        allowed = case.atol + case.rtol * np.abs(b) if limit is None else limit
        beyond = ~same & ~(apart <= allowed)
    if not beyond.any():
        return ""
    worst = np.unravel_index(int(np.argmax(beyond)), apart.shape)
    return f"{int(beyond.sum())} of {apart.size} elements differ, for example {a[worst]:g}, not {b[worst]:g}"


def main(given: list[str] | None = None) -> int:
    """Run the tests, print what was refused or wrong, and the numbers; return 1 if any is wrong."""
    chosen = options(
        __doc__,
        given,
        json=JSON,
        only={"default": "", "help": "tests whose names contain this"},
        engine={"default": "golden", "help": "engine; default: golden"},
        constant="all inputs but the first are constants",
        every={"type": int, "default": 1, "help": "each N-th test"},
    )
    begun, results = time.perf_counter(), []
    for number, case in enumerate(cases(chosen.only)):
        if number % chosen.every:
            continue
        if chosen.constant and (case := with_constants(case)) is None:
            continue
        result = run_case(case, chosen.engine)
        results.append(result)
        if result.verdict in ("refused", "wrong"):
            print(f"{result.verdict:8} {result.name}: {' '.join(result.text.split())[:TEXT]}")
    counts = Counter(result.verdict for result in results)
    said = ", ".join(f"{counts[name]} {name}" for name in ("npu", "host", "refused", "wrong"))
    print(f"{len(results)} tests: {said}; {time.perf_counter() - begun:.0f} s")
    write(chosen.json, results, counts=dict(counts))
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
