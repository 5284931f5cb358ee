"""Normalisations of fp16 tensors on the NPU: over the channels of rows, and over the pixels of maps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.graph import Op


@dataclass(frozen=True)
class Scaled(Op):
    """A normalised tensor times `scale` plus `shift`, which have one number for each channel."""

    epsilon: float
    scale: npt.NDArray[np.float64]
    shift: npt.NDArray[np.float64]


@dataclass(frozen=True)
class Normalise(Scaled):
    """(x - mean) / sqrt(variance + epsilon) * scale + shift over the channels of each pixel.

    If it is not `centred`, the mean counts as 0.
    """

    centred: bool

    @property
    def kind(self) -> str:
        """ONNX's name."""
        return "LayerNormalization" if self.centred else "RMSNormalization"


@dataclass(frozen=True)
class NormaliseMap(Scaled):
    """(x - mean) / sqrt(variance + epsilon) * scale + shift over all pixels of `groups` ranges of channels.

    `source` is ONNX's name: InstanceNormalization, with a group for each channel, or GroupNormalization.
    """

    groups: int
    source: str

    @property
    def kind(self) -> str:
        """ONNX's name."""
        return self.source
