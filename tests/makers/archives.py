"""Archives of arrays (.npz) that tests read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


def arrays_of(path: Path | str) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of an archive by name; the file is closed."""
    with np.load(path) as archive:
        return dict(archive)
