"""Quantisation of a float model with samples given as arrays or files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler import ModelError, quantization
from rkcosim.measure.models.calibration import Reading, load_samples
from rkcosim.measure.models.quantising import measure, quantise
from rkcosim.model.signature import ModelTensors, given

Array = npt.NDArray[Any]


def quantised(
    data: bytes,
    inputs: ModelTensors,
    samples: Any,
    settings: quantization.Settings,
    auto: bool,
    mixed: int,
    below: float | None,
    npu: bool,
    advice: bool,
    held_out: Any,
) -> tuple[bytes, quantization.Accuracy]:
    """Quantise a model file; parameters as for `rkcosim.model.Model.quantize`, `auto` for its method.

    Returns
    -------
    The bytes of the quantised model, and its figures on the samples.

    Raises
    ------
    ModelError
        If the model has nothing to quantise, or a sample does not fit.
    """
    model = quantization.open_float_model(data, ())
    read = _read(samples, model, inputs)
    fresh = _read(held_out, model, inputs) if held_out is not None else ()
    made = quantise(
        model,
        read,
        settings,
        mixed=mixed,
        below=below,
        npu=npu,
        advice=advice,
        held_out=fresh,
        auto=auto,
    )
    return made.data, made.found


def measured(
    original: bytes, made: bytes, inputs: ModelTensors, samples: Any, npu: bool, advice: bool
) -> quantization.Accuracy:
    """Compare a quantised model file with its original on samples.

    Parameters
    ----------
    original, made
        The float model and the quantised one.
    inputs
        The inputs of the original.
    samples, npu, advice
        As for `rkcosim.model.Model.measure_accuracy`.

    Raises
    ------
    ModelError
        If the two models do not belong together, or a sample does not fit.
    """
    model = quantization.open_float_model(original, ())
    return measure(model, made, _read(samples, model, inputs), npu=npu, advice=advice)


def _read(samples: Any, model: quantization.FloatModel, inputs: ModelTensors) -> list[dict[str, Array]]:
    """Return the samples with arrays by name; raises ModelError."""
    if isinstance(samples, str | os.PathLike):
        read = load_samples(Path(samples), model.inputs, Reading())
    else:
        read = [_sample(values, inputs) for values in _split(samples, inputs)]
    if not read:
        raise ModelError("there must be at least one sample of the model's inputs")
    return read


def _split(samples: Any, inputs: ModelTensors) -> Iterator[Any]:
    """Yield the samples one by one: those of an array lie along an axis in front, or are its batch."""
    if isinstance(samples, Mapping):
        arrays = {name: np.asarray(values) for name, values in samples.items()}
        counts = {len(values) for values in arrays.values()}
        if len(counts) != 1:
            raise ModelError("the arrays of the inputs must have the same number of samples")
        for number in range(counts.pop()):
            yield {name: values[number] for name, values in arrays.items()}
        return
    if isinstance(samples, np.ndarray) and len(inputs) == 1 and samples.shape == inputs[0].shape:
        yield samples
        return
    if not isinstance(samples, Iterable):
        raise ModelError(f"samples are arrays or a path, not {type(samples).__name__}")
    yield from samples


def _sample(values: Any, inputs: ModelTensors) -> dict[str, Array]:
    """Return a sample's arrays by name, with the channels in front as the quantisers take them."""
    arrays = given((values,) if not isinstance(values, Sequence) else tuple(values), {}, inputs)
    for array, item in zip(arrays, inputs, strict=True):
        if not np.isfinite(array).all():
            raise ModelError(
                f"a sample of input '{item.name}' has numbers that are not finite", tensor=item.name
            )
    return {
        item.name: np.ascontiguousarray(
            array.transpose(0, 3, 1, 2) if item.channels_last else array, item.dtype
        )
        for array, item in zip(arrays, inputs, strict=True)
    }
