"""Inputs and outputs of a model file as the file declares them: names, shapes, element types.

The compiler keeps tensors of four dimensions with the channels in front and may hold floats as codes.  The
classes here convert between its form and the file's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.base.files import identify
from rkcosim.compiler import ModelError, TensorInfo
from rkcosim.compiler.options import load_options
from rkcosim.hostops.quantise import dequantize
from rkcosim.model.by_name import NamedItems

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ModelTensor:
    """An input or output of a model.

    Members
    -------
    name
        Its name in the file.
    shape
        Its shape in the file's order of dimensions: that of a TFLite model has the channels last.
    dtype
        Its element type in the file.
    scale, zero_point
        If the elements are codes: a code `c` stands for `(c - zero_point) * scale`.  Otherwise 1 and 0.
    channels_last
        Whether the compiler has the same tensor with its channels in front.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    scale: float = 1.0
    zero_point: int = 0
    channels_last: bool = False

    @property
    def quantised(self) -> bool:
        """Whether the elements are codes of real numbers."""
        return (self.scale, self.zero_point) != (1.0, 0)

    def __str__(self) -> str:
        """Return name, element type and shape in one line, with scale and zero point of codes."""
        shape = ", ".join(map(str, self.shape))
        codes = f", scale {self.scale:.6g}, zero point {self.zero_point}" if self.quantised else ""
        return f"{self.name}: {self.dtype}[{shape}]{codes}"

    def to_real(self, codes: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Return float32: the real numbers for codes of this tensor, or other elements as they are."""
        values = np.asarray(codes)
        if not self.quantised or values.dtype.kind == "f":
            return values.astype(np.float32)
        return dequantize(values, self.scale, self.zero_point)

    def to_codes(self, real: npt.ArrayLike) -> Array:
        """Return the codes for real numbers, rounded to the nearest and clipped; others are converted."""
        values = np.asarray(real)
        if not self.quantised:
            return values.astype(self.dtype)
        limits = np.iinfo(self.dtype)
        codes = np.rint(values.astype(np.float64) / self.scale) + self.zero_point
        return codes.clip(limits.min, limits.max).astype(self.dtype)


class ModelTensors(NamedItems[ModelTensor]):
    """The inputs or the outputs of a model, by number and by name."""

    _what = "tensor"

    @property
    def names(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(item.name for item in self._items)

    def __repr__(self) -> str:
        """Return one line for each tensor."""
        return "\n".join(map(str, self._items)) or "(none)"


def signature(data: bytes, model: Any) -> tuple[ModelTensors, ModelTensors]:
    """Return the inputs and outputs of a model file as it declares them.

    Parameters
    ----------
    data
        Bytes of the file.
    model
        The compiled model of it.
    """
    kind = identify(data)
    if kind == "TFLite model":
        return _of_tflite(data, model)
    if kind in ("compiled model", ".rknn file", "TNN network"):
        return (
            ModelTensors([_of_info(info, program=kind == ".rknn file") for info in model.inputs]),
            ModelTensors([_of_info(info, program=False) for info in model.outputs]),
        )
    return _of_onnx(data, model)


def _of_info(info: TensorInfo, *, program: bool) -> ModelTensor:
    """Return a tensor as the compiler describes it; `program`: an input of a file with preprocessing.

    Such an input takes the numbers that a program gives to `rknn_inputs_set`: pixels as uint8 or floats, with
    the channels last.
    """
    before = info.preprocessing if program else None
    if before is None:
        codes = info.dtype in (np.int8, np.uint8)
        dtype = np.dtype(np.float32) if info.dtype == np.float16 else info.dtype
        kept = (info.scale, info.zero_point) if codes else (1.0, 0)
        return ModelTensor(info.name, info.shape, dtype, *kept)
    last = len(info.shape) == 4
    shape = tuple(info.shape[axis] for axis in (0, 2, 3, 1)) if last else info.shape
    return ModelTensor(info.name, shape, np.dtype(np.uint8 if last else np.float32), channels_last=last)


def _of_tflite(data: bytes, model: Any) -> tuple[ModelTensors, ModelTensors]:
    from rkcosim.compiler.loaders.tflite_file import read_tflite

    file = read_tflite(data, load_options().signature)
    by_name = {tensor.name: tensor for tensor in file.tensors}

    def of(info: TensorInfo) -> ModelTensor:
        last = len(info.shape) == 4
        shape = tuple(info.shape[axis] for axis in (0, 2, 3, 1)) if last else tuple(info.shape)
        tensor = by_name.get(info.name)
        name = tensor.dtype if tensor is not None else str(info.dtype)
        dtype = np.dtype({"float16": "float16"}.get(name, name if name not in ("bfloat16",) else "float32"))
        codes = (info.scale, info.zero_point) if info.quantised and dtype.kind in "iu" else (1.0, 0)
        return ModelTensor(info.name, shape, dtype, *codes, channels_last=last)

    return ModelTensors([of(info) for info in model.inputs]), ModelTensors([of(i) for i in model.outputs])


def _of_onnx(data: bytes, model: Any) -> tuple[ModelTensors, ModelTensors]:
    import onnx

    proto = onnx.load_from_string(data)
    declared = {item.name: item for item in (*proto.graph.input, *proto.graph.output)}

    def of(info: TensorInfo) -> ModelTensor:
        item = declared.get(info.name)
        kind = item.type.tensor_type.elem_type if item is not None else 0
        if kind:
            dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind))
        else:
            dtype = np.dtype(np.float32) if info.quantised or info.dtype.kind == "f" else info.dtype
        codes = (info.scale, info.zero_point) if info.quantised and dtype.kind in "iu" else (1.0, 0)
        return ModelTensor(info.name, tuple(info.shape), dtype, *codes)

    return ModelTensors([of(info) for info in model.inputs]), ModelTensors([of(i) for i in model.outputs])


def given(arrays: Sequence[Any], named: Mapping[str, Any], inputs: ModelTensors) -> list[Array]:
    """Bring the arguments of a call into the order of a model's inputs, as arrays in the file's shapes.

    Parameters
    ----------
    arrays
        Arrays, nested lists or numbers, in the order of the inputs; or one mapping from names to arrays.
    named
        Arrays by the input's name.
    inputs
        The model's inputs.

    Raises
    ------
    ModelError
        If an input is missing, given twice or unknown, or has another shape or no numbers.
    """
    if len(arrays) == 1 and isinstance(arrays[0], Mapping):
        for name in arrays[0]:
            if name in named:
                raise ModelError(f"input '{name}' is given in the mapping and by name", tensor=name)
        named, arrays = {**arrays[0], **named}, ()
    if len(arrays) == 1 and isinstance(arrays[0], (list, tuple)) and not named:
        first = arrays[0]
        if len(inputs) > 1 or (len(first) == 1 and isinstance(first[0], np.ndarray)):
            arrays = tuple(first)  # one sequence with an array for each input
    names = inputs.names
    if len(arrays) > len(names):
        raise ModelError(
            f"{len(arrays)} arrays given, but the model has {_counted(names)}: {', '.join(names)}"
        )
    found: dict[str, Any] = dict(zip(names, arrays, strict=False))
    for name, array in named.items():
        if name not in names:
            raise ModelError(
                f"the model has no input '{name}'; its inputs are {', '.join(names)}", tensor=name
            )
        if name in found:
            raise ModelError(f"input '{name}' is given by position and by name", tensor=name)
        found[name] = array
    missing = [name for name in names if name not in found]
    if missing:
        raise ModelError(
            f"no array is given for {_inputs(missing)}; the model has {_counted(names)}: {', '.join(names)}",
            tensor=missing[0],
        )
    return [_fitted(found[item.name], item) for item in inputs]


def _counted(names: Sequence[str]) -> str:
    return f"{len(names)} input{'' if len(names) == 1 else 's'}"


def _inputs(names: Sequence[str]) -> str:
    return f"input{'' if len(names) == 1 else 's'} " + ", ".join(f"'{name}'" for name in names)


def _fitted(value: Any, item: ModelTensor) -> Array:
    """Return an input's array in its shape; leading dimensions of 1 may be missing."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ModelError(f"input '{item.name}' is no array of numbers: {error}", tensor=item.name) from error
    if array.dtype.kind not in "biuf":
        if str(array.dtype) != "bfloat16":
            raise ModelError(
                f"input '{item.name}' has elements of type {array.dtype}, not numbers", tensor=item.name
            )
        array = array.astype(np.float32)
    if np.ma.is_masked(value):
        raise ModelError(
            f"input '{item.name}' has masked elements: give numbers for them with filled()", tensor=item.name
        )
    wanted = item.shape
    if array.shape == wanted:
        return array
    front = len(wanted) - array.ndim
    if front > 0 and wanted == (1,) * front + array.shape:
        return array.reshape(wanted)
    raise ModelError(
        f"input '{item.name}' has shape {_shape(array.shape)}, but the model needs {_shape(wanted)}"
        f"{_hint(array.shape, wanted, item.channels_last)}",
        tensor=item.name,
    )


def _shape(shape: Sequence[int]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _hint(shape: tuple[int, ...], wanted: tuple[int, ...], last: bool) -> str:
    """Return what may be wrong with a shape."""
    if len(wanted) == 4 and len(shape) in (3, 4):
        full = (1,) * (4 - len(shape)) + shape
        order = (0, 3, 1, 2) if not last else (0, 2, 3, 1)
        if tuple(full[axis] for axis in order) == wanted:
            there = "last" if last else "second"
            return f": its channels must be the {there} dimension ({'NHWC' if last else 'NCHW'})"
    if len(shape) == len(wanted) and shape[1:] == wanted[1:] and wanted[:1] == (1,):
        return ": run its samples one by one"
    return ""


def inner(array: Array, item: ModelTensor, info: TensorInfo) -> Array:
    """Return an input as `rkcosim.compiler.LoadedModel.set_input` takes it.

    Parameters
    ----------
    array
        Numbers in the file's shape: codes if their type is that of codes, otherwise real numbers.
    item, info
        The input, in the file and in the compiled model.
    """
    values = array.transpose(0, 3, 1, 2) if item.channels_last else array
    if info.preprocessing is not None:
        return np.asarray(info.preprocessing.apply(np.ascontiguousarray(values)))
    codes = item.quantised and array.dtype == item.dtype and item.dtype == info.dtype
    if codes:
        return values
    if info.quantised or info.dtype.kind == "f":
        return values.astype(np.float32)
    return values.astype(info.dtype) if values.dtype.kind in "biu" and info.dtype.kind in "iu" else values


def outer(array: Array, item: ModelTensor) -> Array:
    """Return an output of `rkcosim.compiler.LoadedModel.get_output` in the file's shape and type.

    `array` has codes if the output has them in the file, otherwise real numbers.
    """
    values = array.transpose(0, 2, 3, 1) if item.channels_last and array.ndim == 4 else array
    if values.dtype != item.dtype:
        with np.errstate(over="ignore", invalid="ignore"):
            values = values.astype(item.dtype)
    return np.asarray(values, order="C")  # ascontiguousarray would make one dimension of none
