"""Input files of the command line: .npy, .npz and pictures as arrays of real values."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cosim.cli.pictures import PICTURES, PictureError, fit_picture, read_picture


class InputError(Exception):
    """An input file cannot be used; the text names the file and what is wrong."""


@dataclass
class Batch:
    """Inputs of several inferences.

    `items` holds per inference one array per model input; `labels` their true classes if known.
    """

    items: list[list[npt.NDArray[np.float32]]]
    labels: list[int] | None = None


def load_batch(files: list[Path], infos: Sequence[Any], limit: int | None) -> Batch:
    """Read inputs and bring them into the model's shapes.

    Parameters
    ----------
    files : one .npz with `images` (and optionally `labels`, and `scale` that turns the stored
        numbers into real values) for a model of one input, or one .npy or picture per input, or
        several pictures for a model of one input.  A picture's bytes are the input's codes, moved to
        signed ones where the model has those, or 0 to 1 in a model of floats; an .npy of four
        dimensions may have its channels last.
    infos : the model's inputs (`TensorInfo`).
    limit : inferences at most.

    Raises
    ------
    InputError
        for a file that is missing, damaged or of the wrong shape or type.
    """
    shapes = [tuple(info.shape) for info in infos]
    if len(shapes) == 1 and files and all(path.suffix.lower() in PICTURES for path in files):
        return Batch([[_picture(path, infos[0])] for path in files[: limit or len(files)]])
    if len(files) == 1 and files[0].suffix == ".npz":
        return _from_npz(files[0], shapes, limit)
    if len(files) != len(shapes):
        raise InputError(f"{len(files)} input files given, the model has {len(shapes)} inputs")
    arrays = [
        [_picture(path, info)]
        if path.suffix.lower() in PICTURES
        else _fit(_numeric(_load(path), path), tuple(info.shape), path)
        for path, info in zip(files, infos, strict=True)
    ]
    count = len(arrays[0])
    for path, array in zip(files, arrays, strict=True):
        if len(array) != count:
            raise InputError(f"{path}: holds {len(array)} inputs, {files[0]} holds {count}")
    count = min(count, limit or count)
    return Batch([[array[n] for array in arrays] for n in range(count)])


def _from_npz(path: Path, shapes: list[tuple[int, ...]], limit: int | None) -> Batch:
    archive = _load(path)
    if "images" not in archive:
        raise InputError(f"{path}: has no array 'images' (it has: {', '.join(archive) or 'nothing'})")
    if len(shapes) != 1:
        raise InputError(
            f"{path}: an archive of images fits a model of one input, this one has {len(shapes)}"
        )
    images = _numeric(archive["images"], path)
    if "scale" in archive:
        images = images * np.float32(archive["scale"])
    fitted = _fit(images, shapes[0], path)
    labels = [int(v) for v in archive["labels"]] if "labels" in archive else None
    if labels is not None and len(labels) != len(fitted):
        raise InputError(f"{path}: {len(labels)} labels for {len(fitted)} images")
    count = min(len(fitted), limit or len(fitted))
    return Batch([[fitted[n]] for n in range(count)], labels[:count] if labels is not None else None)


def _picture(path: Path, info: Any) -> npt.NDArray[np.float32]:
    try:
        pixels = fit_picture(read_picture(path.read_bytes()), tuple(info.shape))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    except PictureError as error:
        raise InputError(f"{path}: {error}") from error
    if np.dtype(info.dtype).kind == "f":
        return (pixels / np.float32(255)).astype(np.float32)
    codes = pixels.astype(np.float32) - (128 if info.dtype == np.int8 else 0)
    return ((codes - info.zero_point) * np.float32(info.scale)).astype(np.float32)


def _load(path: Path) -> Any:
    try:
        loaded = np.load(path, allow_pickle=False)
        return {name: loaded[name] for name in loaded.files} if path.suffix == ".npz" else loaded
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: not a readable .npy or .npz file: {error}") from error


def _numeric(array: Any, path: Path) -> npt.NDArray[np.float32]:
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "iufb":
        raise InputError(f"{path}: holds {getattr(array, 'dtype', type(array).__name__)}, not numbers")
    return array.astype(np.float32)


def _fit(array: npt.NDArray[np.float32], shape: tuple[int, ...], path: Path) -> list[npt.NDArray[np.float32]]:
    """Split into inferences: the model's own shape is one, a leading axis is many."""
    if array.shape == shape:
        return [array]
    if len(shape) == 4:
        last = (*shape[2:], shape[1])
        if array.shape in (last, (1, *last)) and shape[1] != shape[3]:
            return [np.ascontiguousarray(array.reshape(last).transpose(2, 0, 1)[None])]
    bare = tuple(n for n in shape if n != 1)
    if tuple(n for n in array.shape[1:] if n != 1) == bare:
        return [element.reshape(shape) for element in array]
    raise InputError(
        f"{path}: has shape {list(array.shape)}, the model wants {list(shape)} (or many of them)"
    )
