"""Input files: .npy, .npz and pictures as arrays of real values."""

from __future__ import annotations

import io
import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from rkcosim.base.extras import needed
from rkcosim.base.files import MOST_BYTES, UNKNOWN, GivenFileError, identify, open_regular, read_given, said

PICTURES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm")
"""File endings of pictures, whose pixels become a model's input."""

MAX_SIDE = 1 << 14
MAX_PIXELS = 1 << 26
"""Maximum number of rows and columns of a picture, and of its pixels, which take 7 bytes each for a while."""


class InputError(GivenFileError):
    """An input file cannot be used; the message names the file and the problem."""


@dataclass
class Batch:
    """Inputs of several inferences.

    Members
    -------
    items : one list per inference, with one array per model input.
    labels : the true classes, or None if they are unknown.
    """

    items: list[list[npt.NDArray[np.float32]]]
    labels: list[int] | None = None


def load_batch(files: list[Path], infos: Sequence[Any], limit: int | None) -> Batch:
    """Read inputs and bring them into the model's shapes.

    Parameters
    ----------
    files : one .npz with an array for each input, by name, or for a model of one input with `images` (and
        optionally `scale`, the factor from the stored numbers to real values), and optionally `labels`; or
        one .npy or picture per input; or several pictures for a model of one input. The bytes of a picture
        are the input's codes, shifted for a signed type, or scaled to 0..1 for a floating-point model. An
        array of four dimensions may have its channels last.
        For an input with preprocessing (of a `.rknn` file), pixels and numbers are those that a program gives
        to rknn_inputs_set: they are preprocessed, and int8 numbers are the codes of an int8 input.
    infos : the model's inputs (`TensorInfo`).
    limit : maximum number of inferences.

    Raises
    ------
    InputError
        for a file that is missing, damaged or of the wrong shape or type.
    """
    shapes = [tuple(info.shape) for info in infos]
    if len(shapes) == 1 and files and all(path.suffix.lower() in PICTURES for path in files):
        return Batch([[_picture(path, infos[0])] for path in files[: limit or len(files)]])
    if len(files) == 1 and files[0].suffix == ".npz":
        return _from_npz(files[0], infos, limit)
    if len(files) != len(shapes):
        raise InputError(f"{len(files)} input files given, the model has {len(shapes)} inputs")
    arrays = [
        [_picture(path, info)] if path.suffix.lower() in PICTURES else _of_program(_load(path), info, path)
        for path, info in zip(files, infos, strict=True)
    ]
    count = len(arrays[0])
    for path, array in zip(files, arrays, strict=True):
        if len(array) != count:
            raise InputError(f"{path}: holds {len(array)} inputs, {files[0]} holds {count}")
    count = min(count, limit or count)
    return Batch([[array[n] for array in arrays] for n in range(count)])


def _of_program(array: Any, info: Any, path: Path, factor: Any = None) -> list[npt.NDArray[np.float32]]:
    """Split an array into inferences and return the network's numbers."""
    numbers = _numeric(array, path)
    if factor is not None:
        numbers = numbers * factor
    parts = _fit(numbers, tuple(info.shape), path)
    before = info.preprocessing
    if before is None:
        return parts
    if array.dtype == np.dtype(info.dtype) == np.int8:
        scale = np.float32(info.scale)
        return [((part - info.zero_point) * scale).astype(np.float32) for part in parts]
    if array.dtype == np.int8 and not before.neutral:
        raise InputError(
            f"{path}: int8 numbers of an input of {np.dtype(info.dtype)} with mean and std have no known "
            "meaning; give uint8 or float32"
        )
    return [before.apply(part) for part in parts]


def _from_npz(path: Path, infos: Sequence[Any], limit: int | None) -> Batch:
    """Read an archive with an array for each input, by name; for one input also with `images`."""
    names = [str(info.name) for info in infos]
    if len(infos) == 1:  # before anything is unpacked
        for name in (names[0], "images"):
            if (found := shape_inside(path, name)) is not None:
                _check_shape(found, tuple(infos[0].shape), path)
                break
    archive = _load(path, (*names, "images", "labels", "scale"))
    factor = None
    if len(infos) == 1 and names[0] not in archive and "images" in archive:
        factor = _factor(archive.get("scale"), path)
        archive[names[0]] = archive["images"]
    if absent := [name for name in names if name not in archive]:
        raise InputError(no_array(path, absent[0], archive))
    columns, totals = [], []
    for info in infos:
        array, shape, total = archive[info.name], tuple(info.shape), 1
        if array.ndim and array.shape != shape and not _channels_last(array.shape, shape):
            array, total = array[:limit], len(array)  # the others do not become floats
        columns.append(_of_program(array, info, path, factor))
        totals.append(total)
    if len(set(totals)) > 1:
        counts = ", ".join(f"{name} {total}" for name, total in zip(names, totals, strict=True))
        raise InputError(f"{path}: the arrays hold different numbers of samples: {counts}")
    labels = labels_of(archive.get("labels") if "labels" not in names else None, str(path))
    if labels is not None and len(labels) != totals[0]:
        raise InputError(f"{path}: {len(labels)} labels for {totals[0]} images")
    count = min(len(columns[0]), limit or len(columns[0]))
    return Batch(
        [[column[n] for column in columns] for n in range(count)],
        labels[:count] if labels is not None else None,
    )


def _factor(scale: Any, path: Path) -> Any:
    """Return the number by which the elements of `images` are multiplied, or None."""
    if scale is None:
        return None
    if np.size(scale) != 1 or np.asarray(scale).dtype.kind not in "iuf":
        raise InputError(f"{path}: its 'scale' is not a single number")
    return np.float32(np.reshape(scale, ())[()])


def no_array(path: Path, name: str, held: Iterable[str]) -> str:
    """Return a message: an archive with these arrays has none for an input."""
    return f"{path}: has no array for the input '{name}' (it has: {', '.join(held) or 'nothing'})"


def _picture(path: Path, info: Any) -> npt.NDArray[np.float32]:
    try:
        pixels = fit_picture(read_given(path), tuple(info.shape))
    except GivenFileError:
        raise
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    if info.preprocessing is not None:
        result: npt.NDArray[np.float32] = info.preprocessing.apply(pixels)
        return result
    if np.dtype(info.dtype).kind == "f":
        return (pixels / np.float32(255)).astype(np.float32)
    codes = pixels.astype(np.float32) - (128 if info.dtype == np.int8 else 0)
    return ((codes - info.zero_point) * np.float32(info.scale)).astype(np.float32)


def fit_picture(data: bytes, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """Read a picture and bring it to a model's input shape (1, C, H, W), C 1 or 3.

    If the size differs, each pixel is the rounded average of the pixels that it covers. Transparency is
    dropped; a single channel is the luma of ITU-R BT.601.

    Raises
    ------
    ValueError
        for a file that is not a picture, is damaged or is too large, and for an input that is not a picture.
    """
    with needed("PIL", "a picture as input", ValueError):
        from PIL import Image

    if len(shape) != 4 or shape[0] != 1 or shape[1] not in (1, 3):
        raise ValueError(f"is a picture; the model's input {list(shape)} is not")
    _, channels, height, width = shape
    try:
        with Image.open(io.BytesIO(data), formats=("BMP", "JPEG", "PNG", "PPM")) as picture:
            if max(picture.size) > MAX_SIDE:
                raise ValueError(
                    f"is a picture of {picture.width} x {picture.height}; sides may have up to {MAX_SIDE}"
                )
            if math.prod(picture.size) > MAX_PIXELS:
                raise ValueError(
                    f"is a picture of {picture.width} x {picture.height}; {MAX_PIXELS:,} pixels are read"
                )
            pixels = _of_bytes(picture).convert("RGB" if channels == 3 else "L")
    except (Image.DecompressionBombError, OSError, SyntaxError, ValueError, struct.error) as error:
        if isinstance(error, Image.UnidentifiedImageError):
            raise ValueError("is not a BMP, JPEG, PNG, PPM or PGM picture") from error
        raise ValueError(f"is not a readable picture: {error}") from error
    # In floating point, because Pillow rounds to bytes after each of the two directions.
    planes = [plane.convert("F").resize((width, height), Image.Resampling.BOX) for plane in pixels.split()]
    return np.rint(np.stack([np.asarray(plane) for plane in planes])).clip(0, 255).astype(np.uint8)[None]


def _of_bytes(picture: Any) -> Any:
    """Return a picture of 16 bits a pixel as one of 8 bits: 0..65535 is scaled to 0..255 and rounded.

    Pillow's own conversion takes every value above 255 for 255. Pillow scales PGM files of other maxima to
    65535 itself.
    """
    if not picture.mode.startswith("I"):
        return picture
    from PIL import Image

    values = np.asarray(picture).astype(np.float32)
    return Image.fromarray(np.rint(values / 257).clip(0, 255).astype(np.uint8))


def _load(path: Path, names: Sequence[str] = ()) -> Any:
    """Return the array of an .npy file, or the named arrays of an .npz file."""
    try:
        with open_regular(path) as file:
            if path.suffix == ".npz":
                return load_archive(file, str(path), names)
            return np.load(file, allow_pickle=False)
    except FileNotFoundError:
        raise
    except InputError as error:
        raise InputError(f"{error}{_but(path)}") from error
    except GivenFileError:
        raise
    except _DAMAGED as error:
        raise InputError(f"{path}: not a readable .npy or .npz file: {error}{_but(path)}") from error


def load_array(path: Path) -> npt.NDArray[Any]:
    """Return the array of an .npy file.

    Raises
    ------
    InputError
        if it is not one, is damaged, or has no numbers.
    FileNotFoundError
        if it does not exist.
    """
    array = _load(path)
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path}: holds several arrays; give an .npy file")
    return array


def _but(path: Path) -> str:
    """Return the kind of an unreadable file, if it is a known kind other than an array."""
    kind = identify(read_given(path))
    arrays = kind in (UNKNOWN, "array (.npy)", "archive of arrays (.npz)")
    return "" if arrays else f"; it is {said(path, kind)}"


_DAMAGED: tuple[type[Exception], ...] = (
    *(OSError, ValueError, EOFError, MemoryError, NotImplementedError, RuntimeError, SyntaxError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(TypeError, LookupError, ArithmeticError, AttributeError, tokenize.TokenError),  # of headers
)
"""Exceptions of numpy and zipfile for files that are damaged, encrypted, or not what they claim to be."""


def load_archive(
    file: IO[bytes], where: str, names: Sequence[str] | None = None
) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of an .npz file by name.

    Parameters
    ----------
    where : names the file in messages.
    names : the arrays that are unpacked, as far as the file has them; None: all. If it has none of them, all
        names are returned, with arrays of no elements.

    Raises
    ------
    InputError
        if it is not an .npz file, is damaged, or what is read unpacks to more than
        `rkcosim.base.files.MOST_BYTES`.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            size = sum(
                member.file_size
                for member in archive.infolist()
                if names is None or member.filename.removesuffix(".npy") in names
            )
        if size > MOST_BYTES:
            raise InputError(f"{where}: its arrays unpack to {size:,} bytes, at most {MOST_BYTES:,} are read")
        file.seek(0)
        with np.load(file, allow_pickle=False) as loaded:
            read = [name for name in loaded.files if names is None or name in names]
            return {name: loaded[name] for name in read} or dict.fromkeys(loaded.files, np.empty(0))
    except InputError:
        raise
    except _DAMAGED as error:
        raise InputError(f"{where}: not a readable .npz file: {error}") from error


def shape_inside(path: Path, name: str) -> tuple[int, ...] | None:
    """Return the shape of an array of an .npz file, from its header; None if there is no readable one."""
    try:
        with (
            open_regular(path) as file,
            zipfile.ZipFile(file) as archive,
            archive.open(f"{name}.npy") as part,
        ):
            version = np.lib.format.read_magic(part)
            old = version == (1, 0)
            read = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
            shape: tuple[int, ...] = read(part)[0]
            return shape
    except GivenFileError:
        raise
    except _DAMAGED:
        return None  # reading it as a whole says what is wrong


def labels_of(labels: Any, where: str) -> list[int] | None:
    """Return the classes as numbers, or None for None; raises InputError for an array without classes."""
    if labels is None:
        return None
    if not isinstance(labels, np.ndarray) or labels.ndim != 1 or labels.dtype.kind not in "iub":
        raise InputError(f"{where}: its 'labels' are not a list of whole numbers")
    return [int(label) for label in labels]


def _numeric(array: Any, path: Path) -> npt.NDArray[np.float32]:
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "iufb":
        raise InputError(f"{path}: holds {getattr(array, 'dtype', type(array).__name__)}, not numbers")
    return array.astype(np.float32)


def _fit(array: npt.NDArray[np.float32], shape: tuple[int, ...], path: Path) -> list[npt.NDArray[np.float32]]:
    """Split an array into inferences: one of the model's shape, or several along an axis in front."""
    _check_shape(array.shape, shape, path)
    if array.shape == shape:
        return [array]
    if _channels_last(array.shape, shape):
        last = (*shape[2:], shape[1])
        return [np.ascontiguousarray(array.reshape(last).transpose(2, 0, 1)[None])]
    return [element.reshape(shape) for element in array]


def _channels_last(found: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    if len(shape) != 4:
        return False
    last = (*shape[2:], shape[1])
    return found in (last, (1, *last)) and shape[1] != shape[3]


def _check_shape(found: tuple[int, ...], shape: tuple[int, ...], path: Path) -> None:
    """Refuse an array that `_fit` cannot split; only its shape is needed."""
    bare = tuple(n for n in shape if n != 1)
    several = tuple(n for n in found[1:] if n != 1) == bare
    if found != shape and not _channels_last(found, shape) and not several:
        raise InputError(
            f"{path}: has shape {list(found)}, the model expects {list(shape)}, or several of them"
        )
