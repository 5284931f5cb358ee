"""Calibration data: folders of pictures or arrays, an .npz, or a list of files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.base import progress
from rkcosim.base.files import open_regular, read_given
from rkcosim.compiler.quantization import ModelInput, Normalisation, for_inputs
from rkcosim.measure.models.input_files import (
    PICTURES,
    InputError,
    fit_picture,
    load_archive,
    load_array,
    no_array,
)

Array = npt.NDArray[Any]

ARRAYS = (".npy",)
LISTS = (".txt",)
"""File endings of lists of files, the form of datasets of the vendor's toolkit."""

MOST_SAMPLES = 4096
"""Maximum number of samples that are read."""


@dataclass(frozen=True)
class Reading:
    """How samples are read.

    Members
    -------
    normalisations
        Applied to the values, one for all inputs or one for each; empty for none, except that pixels of
        pictures then become 0..1.
    raw
        Whether values stay as they are, because the model normalises them.
    bgr
        Whether the channels of pictures are blue, green, red.
    limit
        Maximum number of samples.
    chosen
        The normalisation of each input that has one, by name; `load_samples` sets it.
    """

    normalisations: tuple[Normalisation, ...] = ()
    raw: bool = False
    bgr: bool = False
    limit: int = MOST_SAMPLES
    chosen: Mapping[str, Normalisation] = field(default_factory=dict)


def load_samples(path: Path, inputs: Sequence[ModelInput], how: Reading) -> list[dict[str, Array]]:
    """Read samples for a float model.

    Parameters
    ----------
    path
        A folder of pictures or of .npy files (in the order of their names), for a model of one input; an
        .npz with an array for each input, by name, or with `images`; or a text file that has on each line
        the files of one sample, one for each input, as paths relative to it.
    inputs
        The model's inputs.
    how
        How to read.

    Returns
    -------
    For each sample an array for each input, by name.

    Raises
    ------
    InputError
        If there is no sample, or a file is damaged or does not fit the model.
    ModelError
        If a normalisation does not fit the model.
    FileNotFoundError
        If the path does not exist.
    """
    samples: list[dict[str, Array]] = []
    if not how.raw:
        how = replace(how, chosen=for_inputs(how.normalisations, {one.name: one.shape for one in inputs}))
    with progress.step("reading the samples", unit="samples") as shown:
        for values in _samples(path, inputs, how):
            samples.append(values)
            shown.advance()
            if len(samples) == min(how.limit, MOST_SAMPLES):
                break
    if not samples:
        raise InputError(f"{path}: holds no sample")
    return samples


def _samples(path: Path, inputs: Sequence[ModelInput], how: Reading) -> Iterator[dict[str, Array]]:
    if path.is_dir():
        kinds = (*PICTURES, *ARRAYS)
        files = sorted(file for file in path.iterdir() if file.suffix.lower() in kinds)
        if not files:
            raise InputError(f"{path}: has no picture ({', '.join(PICTURES)}) and no .npy file")
        if len(inputs) != 1:
            raise InputError(
                f"{path}: a folder fits a model of one input, this one has {len(inputs)}; give an .npz with "
                "an array for each input, or a list of files"
            )
        for file in files:
            yield from _of_files([file], inputs, how)
    elif path.suffix.lower() == ".npz":
        yield from _of_archive(path, inputs, how)
    elif path.suffix.lower() in LISTS:
        for number, line in enumerate(_lines(path), 1):
            if words := line.split():
                names = [path.parent / word for word in words]
                if len(names) != len(inputs):
                    raise InputError(
                        f"{path}:{number}: names {len(names)} files, the model has {len(inputs)} inputs"
                    )
                yield from _of_files(names, inputs, how)
    else:
        yield from _of_files([path], inputs, how)


def _lines(path: Path) -> list[str]:
    try:
        return read_given(path).decode().splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not a list of files: {error}") from error


def _of_files(
    files: Sequence[Path], inputs: Sequence[ModelInput], how: Reading
) -> Iterator[dict[str, Array]]:
    """Yield the samples of one file for each input."""
    if len(files) != len(inputs):
        raise InputError(f"{files[0]}: one file is given, the model has {len(inputs)} inputs")
    columns = []
    for file, item in zip(files, inputs, strict=True):
        if file.suffix.lower() in PICTURES:
            columns.append([_normalised(_picture(file, item, how), item, how, pixels=True)])
        else:
            arrays = split(load_array(file), item, file)
            columns.append([_normalised(array, item, how) for array in arrays])
    if len({len(column) for column in columns}) > 1:
        counts = ", ".join(f"{file} {len(column)}" for file, column in zip(files, columns, strict=True))
        raise InputError(f"the files of one line hold different numbers of samples: {counts}")
    for row in zip(*columns, strict=True):
        yield {item.name: array for item, array in zip(inputs, row, strict=True)}


def _of_archive(path: Path, inputs: Sequence[ModelInput], how: Reading) -> Iterator[dict[str, Array]]:
    with open_regular(path) as file:
        archive = load_archive(file, str(path))
    names = [item.name for item in inputs]
    if len(inputs) == 1 and names[0] not in archive and "images" in archive:
        scale = float(np.reshape(archive.get("scale", 1.0), -1)[0])
        archive = {names[0]: archive["images"].astype(np.float32) * np.float32(scale)}
    if absent := [name for name in names if name not in archive]:
        raise InputError(no_array(path, absent[0], archive))
    columns = [
        [_normalised(array, item, how) for array in split(archive[item.name], item, path)] for item in inputs
    ]
    if len({len(column) for column in columns}) > 1:
        counts = ", ".join(f"{name} {len(column)}" for name, column in zip(names, columns, strict=True))
        raise InputError(f"{path}: the arrays hold different numbers of samples: {counts}")
    for row in zip(*columns, strict=True):
        yield dict(zip(names, row, strict=True))


def split(array: Array, item: ModelInput, path: Path) -> list[Array]:
    """Split an array into samples of an input: one, or several along an axis in front.

    Four dimensions may have the channels last, if that is not ambiguous.

    Raises
    ------
    InputError
        If the array has no numbers, or another shape; the message names the file.
    """
    if array.dtype.kind not in "iufb":
        raise InputError(f"{path}: holds {array.dtype}, not numbers")
    shape = item.shape
    choices = [shape, shape[1:]] if shape and shape[0] == 1 else [shape]
    for wanted in choices:
        if array.shape == wanted:
            return [array.reshape(shape)]
        if array.shape[1:] == wanted and wanted:
            return [part.reshape(shape) for part in array]
    if len(shape) == 4 and shape[0] == 1 and shape[1] != shape[3]:
        last = (*shape[2:], shape[1])
        stack = array if array.ndim == 4 else array[None]
        if stack.shape[1:] == last:
            return [np.ascontiguousarray(part.transpose(2, 0, 1)[None]) for part in stack]
    raise InputError(
        f"{path}: has shape {list(array.shape)}, the input '{item.name}' has {list(shape)}; give one of "
        "them, or several along an axis in front"
    )


def _picture(path: Path, item: ModelInput, how: Reading) -> Array:
    data = read_given(path)
    try:
        pixels = fit_picture(data, item.shape)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error
    return pixels[:, ::-1] if how.bgr else pixels


def _normalised(values: Array, item: ModelInput, how: Reading, pixels: bool = False) -> Array:
    """Return a sample in the type of its input, normalised as asked."""
    if item.dtype.kind != "f":
        return values.astype(item.dtype)
    if how.raw:
        return np.ascontiguousarray(values, item.dtype)
    if item.name in how.chosen:
        return how.chosen[item.name].apply(item.name, values).astype(item.dtype)
    divisor = np.float32(255 if pixels else 1)
    return (values.astype(np.float32) / divisor).astype(item.dtype)
