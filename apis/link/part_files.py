"""Parts of the runtime's graphs as files: a model, and the arrays of its first inference (option parts)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler import RunReport
from rkcosim.hostops.quantise import dequantize
from rkcosim.running.machine import AnyModel, Listener, RunningModel

Array = npt.NDArray[Any]


class PartFiles(Listener):
    """Files of the parts in a folder.

    Part 1 is `part-1.tflite` or `part-1.onnx`; its inputs are `part-1-input-1.npy` and so on, as
    `rkcosim run --input` reads them, and its outputs `part-1-output-1.npy` and so on, as `rkcosim run` has
    them.

    Parameters
    ----------
    folder : the folder, which is made.
    """

    needs_inputs = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        folder.mkdir(parents=True, exist_ok=True)

    def inference(
        self, model: RunningModel, inputs: Sequence[Array], report: RunReport, seconds: float
    ) -> None:
        """Write a model that has a file after its first inference."""
        data, model.data = model.data, None
        if data is None:
            return
        self._count += 1
        name = f"part-{self._count}"
        ending = "tflite" if data[4:8] == b"TFL3" else "onnx"
        (self._folder / f"{name}.{ending}").write_bytes(data)
        for number, array in enumerate(_reals(model.model, inputs), 1):
            np.save(self._folder / f"{name}-input-{number}.npy", array)
        for number in range(len(model.model.outputs)):
            np.save(self._folder / f"{name}-output-{number + 1}.npy", model.loaded.get_output(number))


def _reals(model: AnyModel, values: Sequence[Array]) -> list[Array]:
    """Return inputs as real numbers."""
    return [
        dequantize(array, info.scale, info.zero_point)
        if info.quantised and array.dtype.kind in "iu"
        else np.asarray(array)
        for array, info in zip(values, model.inputs, strict=True)
    ]
