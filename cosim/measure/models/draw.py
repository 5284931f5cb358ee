"""Random inputs for a model whose user gives none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.running.session import Session


def random_reals(infos: Sequence[Any], seed: int) -> list[npt.NDArray[np.float32]]:
    """Draw real values for each input of a model.

    Parameters
    ----------
    infos : the inputs, each with `shape`, `dtype`, `scale` and `zero_point`.
    seed : seed of the random numbers.

    Returns
    -------
    For each input an array float32 in its shape: values whose codes are uniformly random for a quantised
    input, normal values for floats, and 0 or 1 for other types, which are indices, lengths and switches.
    """
    rng = np.random.default_rng(seed)
    drawn = []
    for info in infos:
        if info.dtype.kind == "f":
            drawn.append(rng.normal(size=info.shape).astype(np.float32))
        elif info.dtype in (np.int8, np.uint8) or (info.scale, info.zero_point) != (1.0, 0):
            low, high = (0, 256) if info.dtype.kind == "u" else (-128, 128)
            codes = rng.integers(low, high, info.shape)
            drawn.append(((codes - info.zero_point) * info.scale).astype(np.float32))
        else:
            drawn.append(rng.integers(0, 2, info.shape).astype(np.float32))
    return drawn


def random_inputs(session: Session, seed: int) -> list[npt.NDArray[np.float32]]:
    """Draw random inputs of a session's model (`random_reals`)."""
    return random_reals(session.inputs, seed)
