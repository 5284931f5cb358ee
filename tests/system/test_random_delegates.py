"""Random TFLite networks by `compare`, whose judge is LiteRT, and in LiteRT with the delegate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tflite", reason="needs the extra tflite")
pytest.importorskip("ai_edge_litert", reason="needs the extra litert")

from rkcosim.hostops.quantise import dequantize
from rkcosim.measure.models.compare import compare
from rkcosim.measure.models.run import run_model
from tests.extent import extent
from tests.makers.litert_scripts import delegate, inputs_of, interpreter, results
from tests.programs import needs_program
from tests.seeds import seed
from tests.system.random_graphs import Draw

pytestmark = needs_program("cc")

SEED = seed(__name__, 70)


class Conforming(Draw):
    """Networks with the scales that LiteRT's kernels need; the compiler takes others as well.

    MAXIMUM and MINIMUM of two scales are compared as codes by LiteRT, and as real numbers here.
    """

    def binary(self, x: int) -> int | None:
        made = super().binary(x)
        op, inputs, outputs, _ = self.t.nodes[-1]
        if op in ("MAXIMUM", "MINIMUM"):
            if self.t.items[inputs[1]].data is not None:
                self._code(inputs[1], **self.same(x))
            elif self.same(inputs[1]) != self.same(x):
                inputs[1] = x
            self._code(outputs[0], **self.same(x))
        return made

    def unary(self, x: int) -> int:
        made = super().unary(x)
        op, shift = self.t.nodes[-1][0], 128 if self.t.dtype == "uint8" else 0
        if op == "LOGISTIC":
            self._code(made, scale=1 / 256, zero=shift - 128)
        elif op == "TANH":
            self._code(made, scale=1 / 128, zero=shift)
        return made

    def move(self, x: int) -> int:
        made = super().move(x)
        op, inputs, _, _ = self.t.nodes[-1]
        if op == "CONCATENATION":
            if self.same(inputs[1]) != self.same(x):
                inputs[1] = x
                *front, channels = self.shape(x)
                self.t.items[made].shape = (*front, 2 * channels)
            self._code(made, **self.same(x))
        return made

    def _code(self, tensor: int, **coding: object) -> None:
        for name, value in coding.items():
            setattr(self.t.items[tensor], name, value)


@pytest.mark.parametrize("number", range(SEED, SEED + extent(3, 100)))
def test_random_networks_have_the_numbers_of_litert(number: int, tmp_path: Path) -> None:
    """Every layer is that of LiteRT within its bound, and the delegate has the bytes of `run`."""
    path = tmp_path / "random.tflite"
    path.write_bytes(Conforming(number).bytes())
    alone = interpreter(path.read_bytes())
    values = inputs_of(alone, number)
    real = [_real(array, detail) for array, detail in zip(values, alone.get_input_details(), strict=True)]
    found = compare(path, [real])
    assert found.match, list(found.reasons())
    ours = interpreter(path.read_bytes(), [delegate(check=1, cores=number % 3 + 1)])
    ran = run_model(path, [real], engine="golden", check=False).results[0]
    for detail, mine, theirs in zip(ours.get_output_details(), results(ours, values), ran, strict=True):
        assert np.array_equal(_real(mine, detail), theirs), detail["name"]


def _real(codes: np.ndarray, detail: dict[str, Any]) -> np.ndarray:
    """Return the numbers of a tensor of LiteRT, with the channels in front."""
    array = dequantize(codes, *detail["quantization"])
    return array.transpose(0, 3, 1, 2) if array.ndim == 4 else array
