"""A network quantised by both, and their errors on the inputs that neither of them was calibrated with."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

from benchmarks.quantisers.networks import Entry, model_file
from rkcosim.compiler.host_runtimes import exact_options
from rkcosim.compiler.options import using_options
from rkcosim.compiler.quantization import OnnxModel, Settings, method_text, prepared, select_ranges
from rkcosim.compiler.quantization.figures import channel_squares, relative_error
from rkcosim.measure.models.accuracy import npu_outputs

Array = npt.NDArray[Any]
Outputs = Sequence[Mapping[str, Array]]

MOST = 12
"""Most samples for calibration, and most for the measurement."""

OPSET = 13
"""Operator set to which older models are converted: the first one with scales per channel."""


class _Reader(CalibrationDataReader):
    """Samples for onnxruntime's calibration."""

    def __init__(self, samples: Iterable[Mapping[str, Array]]) -> None:
        self._left = iter(samples)

    def get_next(self) -> Any:
        """Return the next sample, None behind the last."""
        return next(self._left, None)


def record_of(entry: Entry, folders: Sequence[Path]) -> dict[str, Any]:
    """Quantise a network with both, and return the errors.

    Members of the result: `calibrated` and `measured` (numbers of samples), `method` (the ranges that `auto`
    chose), `ours` (on the NPU), `ours_in_onnxruntime` and `theirs` with the errors of `errors_of`, `seconds`.
    """
    begun = time.perf_counter()
    data = model_file(entry, folders)
    samples = [{entry.input: values} for values in entry.samples(folders)]
    learnt, fresh = samples[0::2][:MOST], samples[1::2][:MOST]
    with using_options(shapes={entry.input: entry.shape}):
        model = OnnxModel(prepared(data))
        right = model.run(fresh)
        selection = select_ranges(model, learnt, Settings())
        made = model.quantize(learnt, selection.settings)
        ours = list(npu_outputs(model, made, fresh))
    here = _run(made, fresh)
    theirs = _run(static(data, entry, learnt), fresh)
    errors: Callable[[Outputs], dict[str, Any]] = lambda found: errors_of(entry, right, found)  # noqa: E731
    return {
        "name": entry.name,
        "calibrated": len(learnt),
        "measured": len(fresh),
        "method": method_text(selection.settings),
        "ours": errors(ours),
        "ours_in_onnxruntime": errors(here),
        "theirs": errors(theirs),
        "seconds": time.perf_counter() - begun,
    }


def static(data: bytes, entry: Entry, samples: Sequence[Mapping[str, Array]]) -> bytes:
    """Return the model of onnxruntime's static quantisation: QDQ, int8, weights per channel, minmax.

    The model is optimised first, as onnxruntime advises, unless its quantiser fails on the result.
    """
    proto = onnx.load_model_from_string(data)
    for item in proto.graph.input:
        if item.name == entry.input:
            kind = item.type.tensor_type.elem_type
            item.CopyFrom(onnx.helper.make_tensor_value_info(item.name, kind, entry.shape))
    del proto.graph.value_info[:]
    for item in proto.graph.output:  # whose free dimensions the shape of the input decides
        item.type.tensor_type.ClearField("shape")
    version = next(item.version for item in proto.opset_import if item.domain in ("", "ai.onnx"))
    if version < OPSET:
        proto = onnx.version_converter.convert_version(proto, OPSET)
    with tempfile.TemporaryDirectory() as folder:
        source, ready, target = (Path(folder, name) for name in ("float.onnx", "ready.onnx", "int8.onnx"))
        onnx.save(proto, source)
        for plain in (False, True):
            quant_pre_process(str(source), str(ready), skip_symbolic_shape=True, skip_optimization=plain)
            try:
                quantize_static(
                    str(ready),
                    str(target),
                    _Reader(samples),
                    quant_format=QuantFormat.QDQ,
                    per_channel=True,
                    activation_type=QuantType.QInt8,
                    weight_type=QuantType.QInt8,
                    calibrate_method=CalibrationMethod.MinMax,
                )
                break
            except ValueError:  # it fails on biases of layers that its optimiser has made
                if plain:
                    raise
        return target.read_bytes()


def _run(data: bytes, samples: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
    """Return the outputs in onnxruntime, with exact integer sums and the nodes as they are written.

    Its optimisers refuse some of its quantiser's models ("Attempt to replace the existing tensor").
    """
    options = exact_options(onnxruntime)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_outputs()]
    return [dict(zip(names, session.run(names, dict(sample)), strict=True)) for sample in samples]


def errors_of(entry: Entry, right: Outputs, found: Outputs) -> dict[str, Any]:
    """Return the errors of the outputs, of all samples and of each.

    Members of the result: `relative`, the norm of the error over the norm of the output; `channels`, the mean
    relative error of the channels; `agreement`, the share of equal classes (None for "values"); lists with
    a number for each sample, `relatives` and `agreements`.  Of several outputs the worst one counts.
    """
    pairs = [
        [
            (want[name], np.asarray(got).reshape(want[name].shape))
            for name, got in zip(want, one.values(), strict=True)
        ]
        for want, one in zip(right, found, strict=True)
    ]
    each = [max(_relative(a, b) for a, b in row) for row in pairs]
    whole, channels = 0.0, 0.0
    for several in zip(*pairs, strict=True):
        squares = sum(channel_squares(a, b) for a, b in several)
        signal, error = np.asarray(squares).sum(axis=1)
        whole = max(whole, float(np.sqrt(error / signal)) if signal else float(error > 0))
        channels = max(channels, relative_error(np.asarray(squares)))
    made: dict[str, Any] = {"relative": whole, "channels": channels, "relatives": each, "agreement": None}
    if entry.metric != "values":
        places = -1 if entry.metric == "places" else None
        same = [
            float(np.mean(a.argmax(axis=places) == b.argmax(axis=places)))
            for row in pairs
            for a, b in row[:1]
        ]
        made |= {"agreement": float(np.mean(same)), "agreements": same}
    return made


def _relative(right: Array, found: Array) -> float:
    norm = float(np.linalg.norm(right.astype(np.float64)))
    error = float(np.linalg.norm(found.astype(np.float64) - right))
    return error / norm if norm else float(error > 0)
