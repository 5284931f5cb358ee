"""Float models of both formats behind one interface: ONNX with onnxruntime, TFLite with LiteRT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import onnx

from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.loaders import is_tflite
from rkcosim.compiler.loaders.onnx_file import read_onnx
from rkcosim.compiler.options import load_options
from rkcosim.compiler.quantization.accuracy import Accuracy, measure, run_as
from rkcosim.compiler.quantization.prepare import Normalisation, prepared
from rkcosim.compiler.quantization.quantizer import Settings, between, quantize_model
from rkcosim.compiler.quantization.session import run_outputs
from rkcosim.compiler.quantization.tflite_quantizer import (
    FloatTflite,
    channels_first,
    measure_tflite,
    prepared_tflite,
    quantize_tflite,
    run_quantised_tflite,
    run_tflite,
)

Sample = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class ModelInput:
    """An input of a float model: name, shape with the channels in front, and element type."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class FloatModel(Protocol):
    """A float model that is ready for quantisation.

    Members
    -------
    inputs
        The inputs in order.
    outputs
        Names of the outputs in order.
    layers
        Names of all layers, as `Settings.keep` takes them.
    """

    @property
    def inputs(self) -> list[ModelInput]: ...

    @property
    def layers(self) -> list[str]: ...

    @property
    def outputs(self) -> list[str]: ...

    def run(self, samples: Sequence[Sample]) -> list[dict[str, npt.NDArray[Any]]]:
        """Return the outputs by name for each sample, with the channels in front; raises ModelError."""
        ...

    def quantize(self, samples: Sequence[Sample], settings: Settings) -> bytes:
        """Return a file of the quantised model in the same format; raises ModelError."""
        ...

    def run_quantised(self, quantised: bytes, samples: Sequence[Sample]) -> list[dict[str, npt.NDArray[Any]]]:
        """Return the outputs of a quantised model like `run`, by their names in this one."""
        ...

    def measure(self, quantised: bytes, samples: Sequence[Sample], *, gains: bool = False) -> Accuracy:
        """Compare a quantised model with this one; raises ModelError.

        `gains` has no effect for TFLite models, whose layers are sorted by their errors alone.
        """
        ...

    def between(self, first: str, last: str) -> list[str]:
        """Return the names of the layers between two tensors; raises ModelError."""
        ...

    def file(self) -> bytes:
        """Return a file of the float model."""
        ...


class OnnxModel:
    """A float ONNX model; see `FloatModel`."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self.proto = proto

    @property
    def inputs(self) -> list[ModelInput]:
        """The inputs in order."""
        return [
            ModelInput(
                item.name,
                tuple(dim.dim_value for dim in item.type.tensor_type.shape.dim),
                np.dtype(onnx.helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type)),
            )
            for item in self.proto.graph.input
        ]

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs in order."""
        return [item.name for item in self.proto.graph.output]

    @property
    def layers(self) -> list[str]:
        """Names of the nodes."""
        return [node.name for node in self.proto.graph.node]

    def run(self, samples: Sequence[Sample]) -> list[dict[str, npt.NDArray[Any]]]:
        """Return the outputs in onnxruntime."""
        return run_outputs(self.proto, samples)

    def quantize(self, samples: Sequence[Sample], settings: Settings) -> bytes:
        """Return the model in QDQ form."""
        return quantize_model(self.proto, samples, settings)

    def run_quantised(self, quantised: bytes, samples: Sequence[Sample]) -> list[dict[str, npt.NDArray[Any]]]:
        """Return the outputs in onnxruntime."""
        return run_as(self.proto, read_onnx(quantised, load_options()), samples)

    def measure(self, quantised: bytes, samples: Sequence[Sample], *, gains: bool = False) -> Accuracy:
        """Compare both models in onnxruntime; the quantised one is read with the options of loading."""
        return measure(self.proto, read_onnx(quantised, load_options()), samples, gains=gains)

    def between(self, first: str, last: str) -> list[str]:
        """Return the names of the nodes between two tensors."""
        return between(self.proto, first, last)

    def file(self) -> bytes:
        """Return the ONNX file."""
        return bytes(self.proto.SerializeToString())


class TfliteModel:
    """A float TFLite model; see `FloatModel`.  Its layers have the names of their results."""

    def __init__(self, original: FloatTflite) -> None:
        self.original = original

    @property
    def inputs(self) -> list[ModelInput]:
        """The inputs in order."""
        return [
            ModelInput(item.name, channels_first(item.shape), np.dtype(item.dtype))
            for item in self.original.inputs
        ]

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs in order."""
        return self.original.outputs

    @property
    def layers(self) -> list[str]:
        """Names of the operators' results."""
        model = self.original.model
        return [model.tensors[number].name for node in model.nodes for number in node.outputs]

    def run(self, samples: Sequence[Sample]) -> list[dict[str, npt.NDArray[Any]]]:
        """Return the outputs in LiteRT."""
        return run_tflite(self.original, samples)

    def quantize(self, samples: Sequence[Sample], settings: Settings) -> bytes:
        """Return the quantised TFLite file."""
        return quantize_tflite(self.original, samples, settings)

    def run_quantised(self, quantised: bytes, samples: Sequence[Sample]) -> list[dict[str, npt.NDArray[Any]]]:
        """Return the outputs in LiteRT."""
        return run_quantised_tflite(self.original, quantised, samples)

    def measure(self, quantised: bytes, samples: Sequence[Sample], *, gains: bool = False) -> Accuracy:
        """Compare both models in LiteRT."""
        del gains
        return measure_tflite(self.original, quantised, samples)

    def between(self, first: str, last: str) -> list[str]:
        """Refuse: operators of TFLite files are named one by one."""
        raise ModelError(f"layers of a TFLite model are named one by one, not between '{first}' and '{last}'")

    def file(self) -> bytes:
        """Return the TFLite file."""
        return self.original.data


def open_float_model(data: bytes, normalisations: Sequence[Normalisation] = ()) -> FloatModel:
    """Read a float model of either format.

    Parameters
    ----------
    data
        The bytes of an ONNX or a TFLite file.
    normalisations
        Computed by the model itself, for ONNX models only; see `prepared`.

    Raises
    ------
    ModelError
        As `prepared` and `prepared_tflite`, and for normalisations of a TFLite model.
    """
    if not is_tflite(data):
        return OnnxModel(prepared(data, normalisations))
    if normalisations:
        raise ModelError("a TFLite model cannot normalise its inputs itself; normalise the samples instead")
    return TfliteModel(prepared_tflite(data))
