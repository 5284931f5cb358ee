"""LayerNormalization and RMSNormalization of fp16 tensors on the NPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.graph import Op


@dataclass(frozen=True)
class Normalise(Op):
    """(x - mean) / sqrt(variance + epsilon) * scale + shift over the channels of each pixel.

    If it is not `centred`, the mean counts as 0.  `scale` and `shift` have one number for each channel.
    """

    centred: bool
    epsilon: float
    scale: npt.NDArray[np.float64]
    shift: npt.NDArray[np.float64]

    @property
    def kind(self) -> str:
        """ONNX's name."""
        return "LayerNormalization" if self.centred else "RMSNormalization"
