"""Whole outputs of a model file beside those of onnxruntime or LiteRT, without `rkcosim compare`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.public_models.files import Public
from rkcosim.waves.whole_file import whole_file

Array = npt.NDArray[Any]
Feeds = dict[str, Array]

NEAR = 0.01
"""Part of an output's largest magnitude up to which a difference is none."""
NOISE = 3.0
"""Factor on the reference's own distance."""


def belongs(item: Public, path: Path) -> bool:
    """Whether a file on this machine is one of the list: its path ends as there, below a folder that has the
    name of the repository or package."""
    wanted = Path(item.path).parts
    name = item.source.partition(",")[0].rpartition("/")[2] if "/" in item.source else item.source.split()[0]
    plain = name.lower().replace("-", "_")
    above = path.parts[: -len(wanted)]
    return path.parts[-len(wanted) :] == wanted and any(
        plain in part.lower().replace("-", "_") for part in above
    )


def places(folders: Sequence[Path], files: Sequence[Public]) -> dict[Public, Path]:
    """Return the places of those files that are below the folders."""
    there = [
        path
        for folder in folders
        for end in ("tflite", "onnx")
        for path in sorted(folder.resolve().rglob(f"*.{end}"))
    ]
    found = {item: [path for path in there if belongs(item, path)] for item in files}
    return {item: min(paths, key=lambda path: len(path.parts)) for item, paths in found.items() if paths}


def measure_whole(path: Path, part: Path, seed: int) -> None:
    """Compile and run a file on the golden engine, and write a record with each output's distance.

    Parameters
    ----------
    path
        The model.
    part
        The record's file (JSON), written after each stage.
    seed
        Seed of the random inputs.
    """
    import rkcosim
    from rkcosim.base import version

    record: dict[str, Any] = {"stage": "compile", "seconds": {}, "version": version()}

    def save(stage: str, begun: float | None = None) -> None:
        if begun is not None:
            record["seconds"][record["stage"]] = round(time.perf_counter() - begun, 2)
        record["stage"] = stage
        with whole_file(part) as file:
            file.write_text(json.dumps(record))

    save("compile")
    feeds: Feeds = {}
    rng = np.random.default_rng(seed)
    try:
        begun = time.perf_counter()
        model = rkcosim.load(path, engine="golden")
        save("reference", begun)
        work = model._host()
        record["macs"], record["host"] = work.macs, sorted({item.kind for item in work.operators})
        record["host_share"], record["host_mac_share"] = work.element_share, work.mac_share
        record["alone"] = work.alone
        record["problem"] = ""
        for info in model.inputs:
            feeds[info.name] = drawn(rng, info.name, tuple(info.shape), np.dtype(info.dtype), path)
    except Exception as error:
        record["error"] = _said(error, path)
    try:
        reference, scales = _reference(path)
        feeds = feeds or reference.drawn(rng)
        want = reference(feeds)
        others = [reference({name: _rounded(array) for name, array in feeds.items()})]
        if (second := _second(path)) is not None:
            others.append(second(feeds))
    except Exception as error:
        record["problem"] = _said(error, path)
        save("done" if "error" not in record else record["stage"])
        return
    if "error" in record:
        save(record["stage"])
        return
    try:
        begun = time.perf_counter()
        save("run")
        got = [np.asarray(array) for array in model.run(*feeds.values())]
        record["outputs"] = [
            _distance(array, want[at], [other[at] for other in others], scales[at] if scales else None)
            for at, array in enumerate(got)
        ]
        save("done", begun)
        if not right(record):
            from rkcosim.measure.models.compare import compare

            layers = compare(path, seed=seed).as_json()["layers"]
            record["layers"] = [len(layers), sum(not layer["within_bound"] for layer in layers)]
            save("done")
    except Exception as error:
        record["error"] = _said(error, path)
        save(record["stage"])


def _said(error: Exception, path: Path) -> str:
    """Return an error without the folder of the model."""
    text = f"{error}".replace(f"{path}: ", "").replace(f"{path.parent}/", "")
    return " ".join(text.split()) or type(error).__name__


def right(record: dict[str, Any]) -> bool:
    """Whether all outputs are as near as the reference's own to those with inputs rounded to fp16."""
    return all(
        row["worst"] <= max(NEAR, NOISE * row["noise"]) and row["finite"] for row in record.get("outputs", [])
    )


def drawn(
    rng: np.random.Generator, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], path: Path
) -> Array:
    """Return a plausible input: a picture, normal numbers, small indices, a mask, a length, or codes."""
    if dtype == np.bool_:
        return np.ones(shape, np.bool_)
    if dtype.kind == "f":
        text = path.name.startswith("text_classification")  # indices of words, as floats
        values = rng.random(shape) if len(shape) == 4 else rng.standard_normal(shape)
        return (rng.integers(0, 12, shape) if text else values).astype(dtype)
    if dtype.itemsize < 4:
        ends = np.iinfo(dtype)
        return rng.integers(ends.min, ends.max + 1, shape).astype(dtype)
    if "mask" in name.lower():
        return np.ones(shape, dtype)
    return np.full(shape, 8, dtype) if "len" in name.lower() else rng.integers(0, 12, shape).astype(dtype)


def _rounded(array: Array) -> Array:
    return array.astype(np.float16).astype(array.dtype) if array.dtype.kind == "f" else array


def _distance(
    got: Array, want: Array, others: Sequence[Array], scale: tuple[float, int] | None
) -> dict[str, Any]:
    """Return the largest difference as a part of the largest magnitude, and those of the reference's own."""
    x, y, *own = (np.asarray(array, np.float64).reshape(-1) for array in (got, want, *others))
    if scale is not None and got.dtype != want.dtype:
        y, *own = ((values - scale[1]) * scale[0] for values in (y, *own))
    if x.size != y.size:
        return {"worst": float("inf"), "noise": 0.0, "finite": False, "largest": 0.0}
    finite = np.isfinite(y)
    largest = max(np.abs(y[finite]).max(initial=0), 1e-30)
    same = bool((np.isfinite(x) == finite).all())
    apart = [np.abs(a - y)[finite & np.isfinite(a)].max(initial=0) for a in (x, *own) if a.size == y.size]
    worst, noise = apart[0] / largest, max(apart[1:], default=0.0) / largest
    return {"worst": float(worst), "noise": float(noise), "finite": same, "largest": float(largest)}


class _Reference:
    """The reference runtime on the whole file."""

    def __init__(
        self, inputs: list[tuple[str, tuple[int, ...], Any]], run: Callable[[Feeds], list[Array]]
    ) -> None:
        self.inputs, self.run = inputs, run

    def drawn(self, rng: np.random.Generator) -> Feeds:
        return {n: drawn(rng, n, shape, np.dtype(kind), Path(n)) for n, shape, kind in self.inputs}

    def __call__(self, feeds: Feeds) -> list[Array]:
        """Return the outputs; the inputs are in the file's order."""
        names = [name for name, _, _ in self.inputs]
        same = set(names) == set(feeds)
        ordered = [feeds[name] for name in names] if same else list(feeds.values())
        return self.run(dict(zip(names, ordered, strict=True)))


def _second(path: Path) -> _Reference | None:
    """Return the reference in another arithmetic; None if that is impossible.

    It is onnxruntime with all tensors and weights rounded to fp16, or LiteRT without its delegate's kernels.
    """
    if path.suffix != ".onnx":
        from ai_edge_litert.interpreter import OpResolverType

        return _reference(path, kernels=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)[0]
    try:
        return _reference(path, data=_in_halves(path))[0]
    except Exception:  # onnx and onnxruntime raise several classes for what the copy cannot be
        return None


def _in_halves(path: Path) -> bytes:
    """Return an ONNX model with a rounding to fp16 behind every float and of every constant."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    model = onnx.load(path)
    graph = onnx.shape_inference.infer_shapes(model).graph
    known = (*graph.value_info, *graph.output)
    floats = {item.name for item in known if item.type.tensor_type.elem_type == TensorProto.FLOAT}
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        nodes.append(node)
        for at, name in enumerate(node.output):
            if name in floats:
                node.output[at], half = f"{name}@exact", f"{name}@half"
                nodes.append(helper.make_node("Cast", [node.output[at]], [half], to=TensorProto.FLOAT16))
                nodes.append(helper.make_node("Cast", [half], [name], to=TensorProto.FLOAT))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    for item in model.graph.initializer:
        if item.data_type == TensorProto.FLOAT:
            values = numpy_helper.to_array(item).astype(np.float16).astype(np.float32)
            item.CopyFrom(numpy_helper.from_array(values, item.name))
    return bytes(model.SerializeToString())


def _reference(
    path: Path, data: bytes = b"", kernels: Any = None
) -> tuple[_Reference, list[tuple[float, int] | None] | None]:
    if path.suffix == ".onnx":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(data or str(path), options, providers=["CPUExecutionProvider"])
        kinds = {"float": "float32", "double": "float64"}
        inputs = []
        for item in session.get_inputs():
            kind = item.type.removeprefix("tensor(").rstrip(")")
            shape = tuple(size if isinstance(size, int) else 1 for size in item.shape)
            inputs.append((item.name, shape, kinds.get(kind, kind)))

        def run(feeds: Feeds) -> list[Array]:
            return [_array(value) for value in session.run(None, feeds)]

        return _Reference(inputs, run), None
    from ai_edge_litert.interpreter import Interpreter

    more = {"experimental_op_resolver_type": kernels} if kernels is not None else {}
    interpreter = Interpreter(str(path), num_threads=1, **more)
    details = interpreter.get_input_details()

    def invoke(feeds: Feeds) -> list[Array]:
        for detail in details:
            if list(detail["shape"]) != list(feeds[detail["name"]].shape):
                interpreter.resize_tensor_input(detail["index"], feeds[detail["name"]].shape)
        interpreter.allocate_tensors()
        interpreter.reset_all_variables()
        for detail in details:
            interpreter.set_tensor(detail["index"], feeds[detail["name"]].astype(detail["dtype"]))
        interpreter.invoke()
        return [np.asarray(interpreter.get_tensor(d["index"])) for d in interpreter.get_output_details()]

    inputs = [(d["name"], tuple(int(n) for n in d["shape"]), d["dtype"]) for d in details]
    codings = [d["quantization"] for d in interpreter.get_output_details()]
    return _Reference(inputs, invoke), [(scale, zero) if scale else None for scale, zero in codings]


def _array(value: Any) -> Array:
    """Return a value of onnxruntime as an array: a list of maps is a matrix with a column for each key."""
    if isinstance(value, list):
        return np.array([list(row.values()) if isinstance(row, dict) else row for row in value])
    return np.asarray(value)
