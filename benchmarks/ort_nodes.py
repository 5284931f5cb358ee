"""The node tests of the package onnx in sessions of onnxruntime with the execution provider.

    python -m benchmarks.ort_nodes [--only TEXT] [--constant] [--every N] [--together N] [--results FILE]

Each test (`benchmarks.onnx_nodes`) runs in a session with the provider on the golden engine and in one of
onnxruntime alone.  A test is

    npu      if a part ran on the NPU: outputs are compared with `bound`;
    host     if onnxruntime computed everything: outputs are the same bytes as those of onnxruntime alone;
    refused  if onnxruntime alone refuses it, or fails;
    wrong    if an output differs, or if only the session with the provider fails.

Outputs of random operators are not compared.  With --results a run continues where an earlier one stopped.
Up to --together tests share one model, each as a graph of its own in it; if it fails they run one by one.
"""

from __future__ import annotations

import json
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import compose

from benchmarks.onnx_nodes import RANDOM, TEXT, Result, bound, cases, difference, with_constants
from rkcosim.apis.ort.library import provider_library
from rkcosim.compiler.host_runtimes import import_onnxruntime
from rkcosim.measure.perf.measure import options
from rkcosim.waves.whole_file import whole_file

NAME = "RkCosim"


def run_case(case: Any) -> Result:
    """Run one test with the provider and without it."""
    operators = tuple(dict.fromkeys(node.op_type for node in case.model.graph.node))
    data = case.model.SerializeToString()
    names = [item.name for item in case.model.graph.input]
    feeds = [dict(zip(names, inputs, strict=False)) for inputs, _ in case.data_sets]
    try:
        alone = _results(data, feeds, None)
    except Exception as error:  # its exception classes have no public base class
        return Result(case.name, "refused", str(error), operators)
    with tempfile.TemporaryDirectory(prefix="rkcosim-") as folder:
        document = Path(folder, "run.json")
        try:
            found = _results(data, feeds, {"engine": "golden", "json": str(document)})
        except Exception as error:  # as above
            return Result(case.name, "wrong", str(error), operators)
        graphs = json.loads(document.read_text(encoding="utf-8"))["graphs"]
    where = "npu" if any(graph["taken"] for graph in graphs) else "host"
    if any(word in case.name for word in RANDOM):
        return Result(case.name, where, "", operators)
    for (inputs, _), given, right in zip(case.data_sets, found, alone, strict=True):
        text = _difference(case, where, inputs, given, right)
        if text:
            return Result(case.name, "wrong", f"{where}, {text}", operators)
    return Result(case.name, where, "", operators)


def run_together(group: Sequence[Any]) -> list[Result]:
    """Run tests with equal versions of operators as one model, or one by one if it fails."""
    fine, alone, refused = [], [], []
    for case in group:
        names = [item.name for item in case.model.graph.input]
        try:
            feed = dict(zip(names, case.data_sets[0][0], strict=True))
            alone += _results(case.model.SerializeToString(), [feed], None)
            fine.append(case)
        except Exception:  # whatever onnxruntime raises
            refused.append(run_case(case))
    try:
        if len(fine) < 2:
            raise ValueError("a single test")
        return refused + _together(fine, alone)
    except Exception:  # whatever onnx and onnxruntime raise for one of them
        return refused + [run_case(case) for case in fine]


def _together(group: Sequence[Any], alone: Sequence[list[Any]]) -> list[Result]:
    made = onnx.ModelProto()
    made.CopyFrom(group[0].model)
    made.graph.Clear()
    made.graph.name = "together"
    feed: dict[str, Any] = {}
    for number, case in enumerate(group):
        model = compose.add_prefix(case.model, f"case{number}_")
        for member in ("node", "input", "output", "initializer", "value_info", "sparse_initializer"):
            getattr(made.graph, member).extend(getattr(model.graph, member))
        inputs, _ = case.data_sets[0]
        feed |= dict(zip([item.name for item in model.graph.input], inputs, strict=True))
    with tempfile.TemporaryDirectory(prefix="rkcosim-") as folder:
        (found,) = _results(made.SerializeToString(), [feed], {"engine": "golden", "parts": folder})
        parts = [onnx.load_model(path) for path in Path(folder).glob("part-*.onnx")]
    on_npu = {item.name.partition("_")[0] for part in parts for item in part.graph.output}
    ends = list(accumulate(map(len, alone), initial=0))
    results = []
    for number, case in enumerate(group):
        where = "npu" if f"case{number}" in on_npu else "host"
        text = ""
        if not any(word in case.name for word in RANDOM):
            mine = found[ends[number] : ends[number + 1]]
            text = _difference(case, where, case.data_sets[0][0], mine, alone[number])
        operators = tuple(dict.fromkeys(node.op_type for node in case.model.graph.node))
        verdict = "wrong" if text else where
        results.append(Result(case.name, verdict, f"{where}, {text}" if text else "", operators))
    return results


def grouped(chosen: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Yield tests in groups of up to `size` whose models can be joined."""
    groups: dict[Any, list[Any]] = {}
    for case in chosen:
        model = case.model
        versions = tuple(sorted((item.domain, item.version) for item in model.opset_import))
        key = (model.ir_version, versions)
        if model.functions or len(case.data_sets) != 1:
            yield [case]
            continue
        groups.setdefault(key, []).append(case)
        if len(groups[key]) >= size:
            yield groups.pop(key)
    yield from groups.values()


def _results(data: bytes, feeds: list[dict[str, Any]], given: dict[str, str] | None) -> list[list[Any]]:
    """Return the outputs of a session for each feed; `given`: options of the provider; None: without."""
    onnxruntime = import_onnxruntime()
    chosen = onnxruntime.SessionOptions()
    providers: list[Any] = ["CPUExecutionProvider"]
    chosen.log_severity_level = 4
    if given is not None:
        if NAME not in onnxruntime.get_available_providers():
            onnxruntime.register_execution_provider_library(NAME, str(provider_library()))
        providers.insert(0, (NAME, given))
    session = onnxruntime.InferenceSession(data, chosen, providers=providers)
    run = onnxruntime.RunOptions()
    run.log_severity_level = 4
    return [session.run(None, feed, run) for feed in feeds]


def _difference(case: Any, where: str, inputs: Any, given: list[Any], right: list[Any]) -> str:
    if where == "host":
        return "" if _bytes(given) == _bytes(right) else "not the bytes of onnxruntime alone"
    arrays, limits = [np.asarray(item) for item in inputs], None
    try:
        limits = bound(case, arrays, [np.asarray(item) for item in right])
    except Exception as error:  # whatever the evaluator raises for magnitudes
        return f"no bound: {error}"
    for number, (one, other) in enumerate(zip(given, right, strict=True)):
        text = difference(case, np.asarray(one), np.asarray(other), limits[number])
        if text:
            return f"output {number}: {text}"
    return ""


def _bytes(values: Any) -> Any:
    """Return an output, or a list of them, in a form that can be compared."""
    if isinstance(values, list | tuple):
        return [_bytes(value) for value in values]
    if isinstance(values, np.ndarray | np.generic):
        array = np.asarray(values)
        return (array.shape, array.tolist() if array.dtype.kind == "O" else array.tobytes())
    return values


def main(given: list[str] | None = None) -> int:
    """Run the tests, print what was refused or wrong, and the numbers; return 1 if any is wrong."""
    chosen = options(
        __doc__,
        given,
        only={"default": "", "help": "tests whose names contain this"},
        constant="all inputs but the first are constants",
        every={"type": int, "default": 1, "help": "each N-th test"},
        together={"type": int, "default": 24, "help": "tests in one model"},
        results={"type": Path, "default": None, "help": "results so far; they are not measured again"},
    )
    warnings.simplefilter("ignore")  # the generators of the cases divide by zero on purpose
    known: dict[str, Result] = {}
    if chosen.results is not None and chosen.results.is_file():
        rows = json.loads(chosen.results.read_text())
        known = {row["name"]: Result(**{**row, "operators": tuple(row["operators"])}) for row in rows}
    begun = time.perf_counter()
    wanted: list[Any] = [
        with_constants(case) if chosen.constant else case
        for number, case in enumerate(cases(chosen.only))
        if number % chosen.every == 0 and case.name not in known
    ]
    for group in grouped((case for case in wanted if case is not None), chosen.together):
        for result in run_together(group):
            known[result.name] = result
            if result.verdict in ("refused", "wrong"):
                text = " ".join(result.text.split())[:TEXT]
                print(f"{result.verdict:8} {result.name}: {text}", flush=True)
        if chosen.results is not None:
            with whole_file(chosen.results) as part:
                part.write_text(json.dumps([asdict(one) for one in known.values()]))
    counts = Counter(result.verdict for result in known.values())
    said = ", ".join(f"{counts[name]} {name}" for name in ("npu", "host", "refused", "wrong"))
    print(f"{len(known)} tests: {said}; {time.perf_counter() - begun:.0f} s")
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
