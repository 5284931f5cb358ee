"""Ranges of activations that leave out rare values, from histograms of onnxruntime's calibration."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import onnx

BINS, QUANTISED_BINS = 2047, 127
"""Bins of the histograms, and of those that stand for the codes in "entropy" (odd: 0 is in the middle)."""

BOUNDED = ("Softmax", "Sigmoid", "HardSigmoid", "Tanh")
"""Operators whose results have a known range, which is not narrowed."""

FRACTIONS = np.linspace(0.02, 1.0, 99)
"""Parts of the extreme values that "mse" tries as limits."""


class Reader(Protocol):
    """Gives out samples one at a time."""

    def __len__(self) -> int: ...

    def set_range(self, start_index: int, end_index: int) -> None:
        """Give out these samples next."""

    def get_next(self) -> Any:
        """Return the next sample, None behind the last."""


def narrowed(
    quantisation: Any,
    proto: onnx.ModelProto,
    reader: Reader,
    folder: Path,
    method: Literal["entropy", "mse"],
) -> dict[str, tuple[float, float]]:
    """Return the ranges of activations by the names of the tensors.

    Parameters
    ----------
    quantisation
        The module `onnxruntime.quantization`, whose calibration makes the histograms.
    proto
        A float model with known shapes.
    reader
        The samples.
    folder
        Existing folder for temporary files.
    method
        "entropy" minimises the Kullback-Leibler divergence of the histograms.  The quantiser itself would use
        histograms of as many bins as there are codes, which leave no choice.  "mse" minimises the mean
        squared error.

    Returns
    -------
    Tensors with fewer values than a histogram has bins, and results of `BOUNDED` operators, are missing; they
    keep their extreme values as ranges.
    """
    source = folder / "float.onnx"
    onnx.save(proto, source)
    calibrator = quantisation.create_calibrator(
        source,
        augmented_model_path=str(folder / "augmented.onnx"),
        calibrate_method=quantisation.CalibrationMethod.Entropy,
        extra_options={"num_bins": BINS, "num_quantized_bins": QUANTISED_BINS},
    )
    for number in range(len(reader)):
        reader.set_range(number, number + 1)
        calibrator.collect_data(reader)
    if method == "mse":
        found = {
            name: least_error(counts, float(limit), (float(low), float(high)))
            for name, (counts, _, low, high, limit) in calibrator.collector.histogram_dict.items()
        }
    else:
        found = {
            name: (float(data.range_value[0]), float(data.range_value[1]))
            for name, data in calibrator.compute_data().items()
        }
    bounded = {name for node in proto.graph.node if node.op_type in BOUNDED for name in node.output}
    graph = proto.graph
    elements = {
        item.name: math.prod(dim.dim_value for dim in item.type.tensor_type.shape.dim) * len(reader)
        for item in (*graph.input, *graph.value_info, *graph.output)
    }
    return {
        name: limits
        for name, limits in found.items()
        if name not in bounded and elements.get(name, 0) >= BINS
    }


def least_error(counts: npt.NDArray[Any], limit: float, extremes: tuple[float, float]) -> tuple[float, float]:
    """Return the range whose 8-bit codes have the smallest mean squared error.

    A value inside the range has the error of rounding (a twelfth of a squared step on average), one outside
    its distance from the limit.  Both limits are tried at `FRACTIONS` of the extreme values.

    Parameters
    ----------
    counts
        Histogram of the values, in bins of equal width from `-limit` to `limit`.
    limit
        Upper edge of the histogram.
    extremes
        The smallest and the largest value; a range always includes 0.
    """
    width = 2 * limit / len(counts)
    middles = (np.arange(len(counts)) + 0.5) * width - limit
    weights = counts.astype(np.float64)
    sides = []
    for extreme in (min(extremes[0], 0.0), max(extremes[1], 0.0)):
        tried = FRACTIONS * extreme
        sign = np.sign(extreme)
        outside = np.maximum(sign * (middles[None] - tried[:, None]), 0.0)
        sides.append((tried, (outside**2) @ weights))
    (lows, below), (highs, above) = sides
    steps = (highs[None] - lows[:, None]) / 255
    errors = below[:, None] + above[None] + weights.sum() * steps**2 / 12
    low, high = np.unravel_index(int(np.argmin(errors)), errors.shape)
    return float(lows[low]), float(highs[high])
