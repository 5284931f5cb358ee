"""Quantisation of float TFLite models by the AI Edge Quantizer, and their comparison with the originals."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import numpy.typing as npt

from rkcosim.base import progress
from rkcosim.base.extras import needed
from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.litert import LiteRtProgram
from rkcosim.compiler.loaders.tflite_file import TfModel, TfNode, TfTensor, read_tflite
from rkcosim.compiler.loaders.tflite_fold import simplified
from rkcosim.compiler.loaders.tflite_graph import with_outputs
from rkcosim.compiler.loaders.tflite_program import program, schema
from rkcosim.compiler.options import load_options
from rkcosim.compiler.quantization.accuracy import NOTHING, Accuracy, Layer
from rkcosim.compiler.quantization.channels import CONCATS, CodeSums
from rkcosim.compiler.quantization.figures import Sums
from rkcosim.compiler.quantization.quantizer import Settings

Array = npt.NDArray[Any]
Sample = Mapping[str, Array]

SIGNATURE = "serving_default"
CONVERSIONS = ("QUANTIZE", "DEQUANTIZE")

PRODUCTS = ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED")


@dataclass(frozen=True)
class FloatTflite:
    """A float TFLite model that is ready for quantisation.

    Members
    -------
    model
        Its operators; weights in float16 are float32.
    data
        A TFLite file of them with one signature.
    """

    model: TfModel
    data: bytes

    @property
    def inputs(self) -> list[TfTensor]:
        """The inputs in order; the file has the channels last."""
        return [self.model.tensors[number] for number in self.model.inputs]

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs in order."""
        return [self.model.tensors[number].name for number in self.model.outputs]


def prepared_tflite(data: bytes) -> FloatTflite:
    """Read a float TFLite model and make it ready for quantisation.

    The model is read with the options of `rkcosim.compiler.options`.

    Raises
    ------
    ModelError
        If the model is damaged or is already quantised, or a package is not installed.
    """
    options = load_options()
    model = simplified(with_outputs(read_tflite(data, options.signature), options.outputs))
    for node in model.nodes:
        if any(model.tensors[number].dtype in ("int8", "uint8", "int16") for number in node.outputs):
            raise ModelError(
                f"the model is already quantised: the result of {model.label(node)} is of type "
                f"{model.tensors[node.outputs[0]].dtype}"
            )
    made = program(model, model.nodes, model.inputs, model.outputs).tobytes()
    return FloatTflite(model, _with_signature(made))


def quantize_tflite(original: FloatTflite, samples: Sequence[Sample], settings: Settings) -> bytes:
    """Quantise a model: int8, weights symmetric, activations asymmetric, biases of int32.

    Parameters
    ----------
    original
        The model.
    samples
        Calibration data: arrays for the inputs by name; those of four dimensions have the channels first.
    settings
        `keep` has names of results of operators.

    Returns
    -------
    The bytes of the quantised TFLite model, whose inputs and outputs are int8.

    Raises
    ------
    ModelError
        If there are no samples, a setting is not available for TFLite models, a layer to be kept does not
        exist, or the quantiser fails or is not installed.
    """
    if not samples:
        raise ModelError("quantisation needs at least one calibration sample")
    if settings.method != "minmax":
        raise ModelError(f"the method '{settings.method}' is not available for TFLite models, only minmax")
    if settings.share:
        raise ModelError("in a TFLite model, the inputs of a Concat have the scale of its result already")
    results = {
        original.model.tensors[number].name for node in original.model.nodes for number in node.outputs
    }
    if unknown := [name for name in settings.keep if name not in results]:
        raise ModelError(f"no operator has the result '{unknown[0]}', so it cannot stay in floating point")
    quantiser, recipes, types = _import()
    recipe = recipes.RecipeManager()
    recipe.add_static_config(
        regex=".*",
        operation_name=types.TFLOperationName.ALL_SUPPORTED,
        activation_num_bits=8,
        weight_num_bits=8,
        weight_granularity=types.QuantGranularity.CHANNELWISE
        if settings.per_channel
        else types.QuantGranularity.TENSORWISE,
    )
    for name in settings.keep:
        recipe.add_quantization_config(
            regex=f"^{re.escape(name)};?$",
            operation_name=types.TFLOperationName.ALL_SUPPORTED,
            algorithm_key=recipes.AlgorithmName.NO_QUANTIZE,
        )
    given = [{name: _last(values) for name, values in sample.items()} for sample in samples]
    with (
        tempfile.TemporaryDirectory(prefix="rkcosim-") as folder,
        progress.step("calibrating", len(samples), "samples") as shown,
    ):
        source = Path(folder, "float.tflite")
        source.write_bytes(original.data)
        try:
            with _silent():
                made = quantiser.Quantizer(str(source))
                made.load_quantization_recipe(recipe.get_quantization_recipe())
            ranges: dict[str, Any] = {}
            for sample in given:
                with _silent():
                    _widen(ranges, made.calibrate({SIGNATURE: [sample]}, num_threads=1))
                shown.advance()
            with _silent():
                return bytes(made.quantize(ranges).quantized_model)
        except Exception as error:  # its classes have no common base class
            text = " ".join(str(error).split())[:300]
            raise ModelError(f"the AI Edge Quantizer cannot quantise the model: {text}") from error


def _widen(ranges: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Widen the ranges of tensors by those of another sample.

    The quantiser itself takes a moving average of the samples' extreme values, which clips.
    """
    for name, found in more.items():
        known = ranges.setdefault(name, dict(found))
        for key, wider in (("min", np.minimum), ("max", np.maximum)):
            if key in found:
                known[key] = wider(known[key], found[key])


def measure_tflite(original: FloatTflite, quantised: bytes, samples: Sequence[Sample]) -> Accuracy:
    """Compare a quantised model with its float original in LiteRT, like `measure` does for ONNX models.

    Tensors are matched by name.  Each operator alone gets the float model's tensors, rounded to the codes of
    its inputs.

    Raises
    ------
    ModelError
        If the models have no common tensor, or LiteRT fails or is not installed.
    """
    ours = read_tflite(quantised)
    known = {
        original.model.tensors[number].name: number
        for node in original.model.nodes
        for number in node.outputs
        if original.model.tensors[number].dtype == "float32"
    }
    if not known:
        raise ModelError(NOTHING)
    nodes = [
        node
        for node in ours.nodes
        if node.op not in CONVERSIONS and len(node.outputs) == 1 and _base(ours, node.outputs[0]) in known
    ]
    if not nodes:
        raise ModelError("no tensor of the quantised model has the name of one of the float model")
    bases = {node.outputs[0]: _base(ours, node.outputs[0]) for node in nodes}
    parts = [_base(ours, number) for node in nodes if node.op in CONCATS for number in node.inputs]
    names = list(dict.fromkeys([*bases.values(), *original.outputs, *(one for one in parts if one in known)]))
    floats = LiteRtProgram(
        program(
            original.model,
            original.model.nodes,
            original.model.inputs,
            [known[name] for name in names],
        ).tobytes()
    )
    numbers = list(dict.fromkeys([*bases, *ours.outputs]))
    whole = LiteRtProgram(program(ours, ours.nodes, ours.inputs, numbers).tobytes())
    lonely = {node.outputs[0]: _Alone(ours, node, set(known)) for node in nodes}
    alone, accumulated = ({number: Sums(last=True) for number in bases} for _ in range(2))
    outputs = {name: Sums(last=True) for name in original.outputs}
    counts = {node.outputs[0]: _counts(ours, node) for node in nodes}
    with progress.step("measuring the accuracy", len(samples), "samples") as shown:
        for sample in samples:
            given = [_last(np.asarray(sample[item.name])) for item in original.inputs]
            right = dict(zip(names, floats(given), strict=True))
            right |= {item.name: values for item, values in zip(original.inputs, given, strict=True)}
            codes = [
                _coded(values, ours.tensors[number])
                for values, number in zip(given, ours.inputs, strict=True)
            ]
            found = dict(zip(numbers, whole(codes), strict=True))
            for number, base in bases.items():
                real = _real(found[number], ours.tensors[number])
                accumulated[number].add(right[base], real)
                if (count := counts[number]) is not None:
                    count.add(right[base], real, right)
                mine = lonely[number](right)
                if mine is not None:
                    alone[number].add(right[base], mine)
            for name, number in zip(original.outputs, ours.outputs, strict=True):
                outputs[name].add(right[name], _real(found[number], ours.tensors[number]))
            shown.advance()
    layers = [
        Layer(
            bases[node.outputs[0]],
            node.op,
            bases[node.outputs[0]],
            _scale(ours.tensors[node.outputs[0]]),
            alone[node.outputs[0]].figures(_scale(ours.tensors[node.outputs[0]])),
            accumulated[node.outputs[0]].figures(_scale(ours.tensors[node.outputs[0]])),
            codes=count.codes() if (count := counts[node.outputs[0]]) is not None else None,
        )
        for node in nodes
    ]
    return Accuracy(
        samples=len(samples),
        runtime="LiteRT",
        layers=layers,
        outputs={
            name: outputs[name].figures(_scale(ours.tensors[number]))
            for name, number in zip(original.outputs, ours.outputs, strict=True)
        },
        kept=[
            bases[node.outputs[0]]
            for node in nodes
            if node.op in PRODUCTS and not _scale(ours.tensors[node.inputs[1]])
        ],
        skipped=[
            ours.tensors[number].name
            for node in ours.nodes
            if node.op not in CONVERSIONS
            for number in node.outputs
            if number not in bases
        ],
    )


def _counts(model: TfModel, node: TfNode) -> CodeSums | None:
    """Return the counts of codes of an operator's result; None if it is not quantised with 8 bits."""
    item = model.tensors[node.outputs[0]]
    scale = _scale(item)
    if scale is None or item.dtype not in ("int8", "uint8"):
        return None
    zero = int(item.zero[0]) if item.zero.size else 0
    parts = [_base(model, number) for number in node.inputs] if node.op in CONCATS else []
    return CodeSums(scale, zero, item.dtype == "int8", last=True, parts=parts)


def run_tflite(original: FloatTflite, samples: Sequence[Sample]) -> list[dict[str, Array]]:
    """Return the float model's outputs by name for each sample, with the channels first."""
    run = LiteRtProgram(original.data)
    results = []
    for sample in samples:
        arrays = run([_last(np.asarray(sample[item.name])) for item in original.inputs])
        named = dict(zip(original.outputs, arrays, strict=True))
        results.append({name: np.moveaxis(a, -1, 1) if a.ndim == 4 else a for name, a in named.items()})
    return results


def run_quantised_tflite(
    original: FloatTflite, quantised: bytes, samples: Sequence[Sample]
) -> list[dict[str, Array]]:
    """Return the outputs of a quantised model like `run_tflite`, by their names in the float model.

    Raises
    ------
    ModelError
        If the model is damaged, or LiteRT fails or is not installed.
    """
    ours = read_tflite(quantised)
    run = LiteRtProgram(program(ours, ours.nodes, ours.inputs, ours.outputs).tobytes())
    results = []
    for sample in samples:
        given = [
            _coded(_last(np.asarray(sample[item.name])), ours.tensors[number])
            for item, number in zip(original.inputs, ours.inputs, strict=True)
        ]
        real = [
            _real(values, ours.tensors[number])
            for values, number in zip(run(given), ours.outputs, strict=True)
        ]
        named = dict(zip(original.outputs, real, strict=True))
        results.append({name: np.moveaxis(a, -1, 1) if a.ndim == 4 else a for name, a in named.items()})
    return results


class _Alone:
    """An operator of the quantised model that gets the float model's tensors."""

    def __init__(self, model: TfModel, node: TfNode, known: set[str]) -> None:
        self._output = model.tensors[node.outputs[0]]
        takes = [n for n in dict.fromkeys(node.inputs) if n >= 0 and model.tensors[n].data is None]
        self._takes = [(model.tensors[n], _base(model, n)) for n in takes]
        self._run: LiteRtProgram | None = None
        inputs = {model.tensors[n].name for n in model.inputs} | known
        if all(base in inputs for _, base in self._takes):
            self._run = LiteRtProgram(program(model, [node], takes, node.outputs).tobytes())

    def __call__(self, right: Mapping[str, Array]) -> Array | None:
        if self._run is None or any(base not in right for _, base in self._takes):
            return None
        return _real(self._run([_coded(right[base], item) for item, base in self._takes])[0], self._output)


def _base(model: TfModel, number: int) -> str:
    """Return the name of a tensor in the float model: the quantiser adds an ending to converted ones."""
    return re.sub(r"_(quantized|dequant|requantized)$", "", model.tensors[number].name)


def _scale(item: TfTensor) -> float | None:
    return float(item.scale[0]) if item.dtype != "float32" and item.scale.size else None


def _coded(values: Array, item: TfTensor) -> Array:
    """Return real values in the type of a tensor."""
    scale = _scale(item)
    if scale is None:
        return np.asarray(values, np.dtype(item.dtype))
    limits = np.iinfo(item.dtype)
    zero = int(item.zero[0]) if item.zero.size else 0
    codes = np.rint(np.asarray(values, np.float32) / np.float32(scale)) + zero
    return np.clip(codes, limits.min, limits.max).astype(item.dtype)


def _real(values: Array, item: TfTensor) -> Array:
    """Return the real values of a tensor."""
    scale = _scale(item)
    if scale is None:
        return values
    zero = int(item.zero[0]) if item.zero.size else 0
    return ((values.astype(np.int32) - zero) * np.float32(scale)).astype(np.float32)


def channels_first(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape of the file, which has the channels last, with the channels in front."""
    return (shape[0], shape[3], *shape[1:3]) if len(shape) == 4 else shape


def _last(values: Array) -> Array:
    """Return an array with the channels last, if it has four dimensions."""
    return np.ascontiguousarray(values.transpose(0, 2, 3, 1)) if values.ndim == 4 else values


def _with_signature(data: bytes) -> bytes:
    """Return a file with one signature, which has the names of the inputs and outputs."""
    objects = schema()
    model = objects.ModelT.InitFromPackedBuf(data, 0)
    graph = model.subgraphs[0]

    def maps(numbers: Sequence[int]) -> list[Any]:
        made = []
        for number in numbers:
            entry = objects.TensorMapT()
            entry.name, entry.tensorIndex = graph.tensors[number].name, int(number)
            made.append(entry)
        return made

    signature = objects.SignatureDefT()
    signature.signatureKey, signature.subgraphIndex = SIGNATURE.encode(), 0
    signature.inputs, signature.outputs = maps(graph.inputs), maps(graph.outputs)
    model.signatureDefs = [signature]
    for code in model.operatorCodes:  # old files have only the deprecated field, which the quantiser ignores
        code.builtinCode = max(code.builtinCode, code.deprecatedBuiltinCode)
    builder = flatbuffers.Builder(len(data) + 4096)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _import() -> tuple[Any, Any, Any]:
    """Return modules of the AI Edge Quantizer; raises ModelError if it is not installed."""
    with needed("ai_edge_quantizer", "quantisation of TFLite models", ModelError), _silent():
        from ai_edge_quantizer import qtyping, quantizer, recipe_manager
    return quantizer, recipe_manager, qtyping


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Leave out what the quantiser prints, logs and warns of."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
