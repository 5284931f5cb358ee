"""What the root table of a `.rknn` file says of the model's inputs: mean, std, order of channels, batch.

The attributes are a Python literal: `{'attrs': {NAME: {'mean': [...], 'std': [...], 'rgb2bgr': False, ...}},
...}`.  Only these three members are used; the shapes and types of the inputs are those of their tensors.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rkcosim.compiler.preprocessing import Preprocessing
from rkcosim.rknn_file.container import FileTensor
from rkcosim.rknn_file.schema import Root
from rkcosim.rknn_file.tables import RknnFileError, Table

MOST_TEXT = 1 << 22
"""Longest text of attributes that is read, in bytes."""

MOST_BATCH = 1024
"""Largest batch."""

_NO_ATTRIBUTES = "Generated from compiler version"
"""What toolkits 1.2 and 1.3 wrote in place of the attributes: the version of the compiler
(cqu20160901/LPRNet_rknn_Cplusplus, `LPRNet.rknn`; Zhou-sx/yolov5_Deepsort_rknn, three files)."""

PICTURE_CHANNELS = (1, 3, 4)
"""Numbers of channels of an input that takes pixels."""

_UNKNOWN = object()
"""Value of a part of a literal that is not one, as `array(...)`."""

_NAMES = {"nan": math.nan, "inf": math.inf}


def read_batch(root: Table) -> int:
    """Return the number of samples for which the model was made; 1 without a batch.

    The file's tensors and lists are those of one sample; the runtime runs them once for each.

    Raises
    ------
    RknnFileError
        if the slot is not a number from 0 to `MOST_BATCH`.
    """
    text = root.text(Root.BATCH)
    if not text:
        return 1
    if not (text.isascii() and text.isdigit() and len(text) < 8 and int(text) <= MOST_BATCH):
        slot = int(Root.BATCH)
        raise root.error(f"slot {slot}: the batch is '{text[:40]}', not a number up to {MOST_BATCH}")
    return max(int(text), 1)


def read_preprocessing(
    root: Table, tensors: Sequence[FileTensor], inputs: Sequence[int], ours: bool
) -> tuple[dict[int, Preprocessing], list[str]]:
    """Return the preprocessing of each input by the index of its tensor, and notes for a report.

    The vendor's files of container version 2 have no attributes of inputs. An int8 input of pixels then has
    the preprocessing that maps 0 to 255 to its range; this is noted, since the file does not say it. Our
    files without attributes have no preprocessing.

    Raises
    ------
    RknnFileError
        if mean, std or rgb2bgr of an input cannot be read, do not fit its channels, or a std is 0; the
        message names the input.
    """
    said = _attributes(root)
    found, notes = dict[int, Preprocessing](), list[str]()
    for index in inputs:
        tensor = tensors[index]
        own = said.get(tensor.name)
        if own is None:
            found[index] = made = Preprocessing() if ours else _from_range(tensor)
            if not made.neutral:
                notes.append(
                    f"the file does not say mean and std of the input '{tensor.name}'; pixels from 0 to 255 "
                    "are taken as its whole range"
                )
            elif not ours and tensor.dtype is not None and tensor.dtype.kind == "f":
                notes.append(
                    f"the file does not say mean and std of the input '{tensor.name}'; none are applied"
                )
            continue
        found[index] = _of_input(root, tensor, own)
        if found[index].reverse:
            notes.append(f"channels of the input '{tensor.name}' are reversed before mean and std (rgb2bgr)")
    return found, notes


def _attributes(root: Table) -> Mapping[str, Any]:
    """Return the attributes of each tensor that the text names."""
    text = root.text(Root.ATTRIBUTES)
    if not text.strip() or text.startswith(_NO_ATTRIBUTES):
        return {}
    if len(text) > MOST_TEXT:
        raise root.error(f"attributes of {len(text)} characters; {MOST_TEXT} are supported")
    try:
        value = _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise root.error(f"slot {int(Root.ATTRIBUTES)}: the attributes cannot be read: {reason}") from error
    attributes = value.get("attrs") if isinstance(value, dict) else None
    if not isinstance(attributes, dict):
        raise root.error(f"slot {int(Root.ATTRIBUTES)}: the attributes have no member 'attrs'")
    return {str(name): own for name, own in attributes.items() if isinstance(own, dict)}


def _value(node: ast.expr) -> Any:
    """Return the value of a literal; parts of other kinds become `_UNKNOWN`."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Dict):
        keys = [_value(key) if key is not None else _UNKNOWN for key in node.keys]
        values = map(_value, node.values)
        return {k: v for k, v in zip(keys, values, strict=True) if isinstance(k, (str, int, float))}
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.Name):
        return _NAMES.get(node.id, _UNKNOWN)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = _value(node.operand)
        if isinstance(value, (int, float)):
            return -value if isinstance(node.op, ast.USub) else value
    return _UNKNOWN


def _of_input(root: Table, tensor: FileTensor, own: Mapping[str, Any]) -> Preprocessing:
    label = f"input '{tensor.name}'"
    mean, std = (_numbers(root, label, own, *known) for known in (("mean", 0.0), ("std", 1.0)))
    reverse = own.get("rgb2bgr", False)
    if not isinstance(reverse, (bool, int)):
        raise root.error(f"{label}: rgb2bgr is neither True nor False")
    made = Preprocessing(mean, std, bool(reverse))
    try:
        check_preprocessing(made, tensor.shape, label)
    except RknnFileError as error:
        raise root.error(str(error)) from error
    return made


def check_preprocessing(before: Preprocessing, shape: Sequence[int], label: str) -> None:
    """Raise RknnFileError if mean and std do not fit an input's channels, a std is 0, or channels that are to
    be reversed are not three; `label` names the input."""
    if 0 in np.array(before.std, np.float32):
        raise RknnFileError(f"{label}: a std is 0")
    channels = shape[1] if len(shape) > 1 else 1
    for name, numbers in (("mean", before.mean), ("std", before.std)):
        if len(numbers) not in (1, channels):
            raise RknnFileError(f"{label}: {len(numbers)} values of {name} for {channels} channels")
    if before.reverse and channels != 3:
        raise RknnFileError(f"{label}: rgb2bgr with {channels} channels; it needs 3")


def _numbers(root: Table, label: str, own: Mapping[str, Any], name: str, neutral: float) -> tuple[float, ...]:
    """Return the values of mean or std: one if all are equal, otherwise one for each channel."""
    given = own.get(name)
    if given is None:
        return (neutral,)
    values = given if isinstance(given, list) else [given]
    limit = float(np.finfo(np.float32).max)
    if not values or not all(
        isinstance(v, (int, float)) and not isinstance(v, bool) and abs(v) <= limit for v in values
    ):
        raise root.error(f"{label}: {name} is not a list of finite numbers")
    numbers = tuple(float(v) for v in values)
    return numbers[:1] if len(set(numbers)) == 1 else numbers


def _from_range(tensor: FileTensor) -> Preprocessing:
    """Return the preprocessing of pixels that maps 0 to 255 to the range of an int8 input."""
    if tensor.dtype != np.int8 or len(tensor.shape) != 4 or tensor.shape[1] not in PICTURE_CHANNELS:
        return Preprocessing()
    zero, std = float(128 + tensor.zero_point), 1 / tensor.scale
    return Preprocessing((zero,), (std,))
