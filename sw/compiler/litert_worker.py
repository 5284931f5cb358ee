"""The process in which LiteRT computes parts of TFLite models (started by `rkcosim.compiler.litert`).

It reads requests from standard input and writes answers to standard output.  Both are messages: the size of
a JSON text (8 bytes, little endian), the text, and the bytes of the arrays that the text describes.  This
file imports nothing of the project, because it is run as a script.
"""

from __future__ import annotations

import json
import math
import os
import struct
import sys
import warnings
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

SIZE = struct.Struct("<Q")


def send(file: BinaryIO, text: dict[str, Any], arrays: Sequence[npt.NDArray[Any]] = ()) -> None:
    """Write a message: `text`, with type and shape of each array added, and the arrays."""
    described = [[array.dtype.name, list(array.shape)] for array in arrays]
    head = json.dumps({**text, "arrays": described}).encode()
    file.write(SIZE.pack(len(head)) + head)
    for array in arrays:
        file.write(np.ascontiguousarray(array).tobytes())
    file.flush()


def _exactly(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise EOFError
    return data


def receive(file: BinaryIO) -> tuple[dict[str, Any], list[npt.NDArray[Any]]]:
    """Read a message.

    Raises
    ------
    EOFError
        If the file ends.
    """
    text = json.loads(_exactly(file, *SIZE.unpack(_exactly(file, SIZE.size))))
    arrays = []
    for name, shape in text["arrays"]:
        kind = np.dtype(name)
        data = _exactly(file, math.prod(shape) * kind.itemsize)
        arrays.append(np.frombuffer(data, kind).reshape(shape))
    return text, arrays


class _Programs:
    """The programs that were read, by the keys that the caller gave them."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}

    def load(self, key: str, data: npt.NDArray[np.uint8]) -> list[list[int]]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from ai_edge_litert import interpreter

            # The kernels of LiteRT itself: delegates may round in another way.
            kernels = interpreter.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
            made = interpreter.Interpreter(
                model_content=data.tobytes(), num_threads=1, experimental_op_resolver_type=kernels
            )
        made.allocate_tensors()
        self.known[key] = made
        return [[int(n) for n in detail["shape"]] for detail in made.get_output_details()]

    def run(self, key: str, arrays: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        made = self.known[key]
        for detail, array in zip(made.get_input_details(), arrays, strict=True):
            made.set_tensor(detail["index"], array)
        made.reset_all_variables()
        made.invoke()
        return [np.asarray(made.get_tensor(detail["index"])) for detail in made.get_output_details()]


def answer(programs: _Programs, text: dict[str, Any], arrays: list[npt.NDArray[Any]]) -> tuple[Any, ...]:
    """Return text and arrays of the answer to one request: load, run or free."""
    try:
        if text["call"] == "load":
            return ({"shapes": programs.load(text["key"], arrays[0])},)
        if text["call"] == "run":
            return {}, programs.run(text["key"], arrays)
        programs.known.pop(text["key"], None)
        return ({},)
    except ImportError as error:
        return ({"missing": str(error)},)
    except Exception as error:  # whatever the runtime raises for this program
        return ({"error": f"{error}" or type(error).__name__},)


def main() -> None:
    """Answer requests until standard input ends."""
    given, taken = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):  # the runtime prints messages
        os.dup2(nothing, number)
    programs = _Programs()
    while True:
        try:
            text, arrays = receive(given)
        except EOFError:
            sys.exit(0)
        send(taken, *answer(programs, text, arrays))


if __name__ == "__main__":
    main()
