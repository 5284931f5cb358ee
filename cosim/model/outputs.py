"""The outputs of a run: a list that is also indexed by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsIndex, overload

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Outputs(list[Array]):
    """The outputs of a run in the model's order; they are also taken by name.

    Parameters
    ----------
    arrays
        The arrays, in the file's shapes and types.
    names
        Their names.
    """

    def __init__(self, arrays: Sequence[Array], names: Sequence[str]) -> None:
        super().__init__(arrays)
        self.names = tuple(names)

    @overload
    def __getitem__(self, key: SupportsIndex | str) -> Array: ...
    @overload
    def __getitem__(self, key: slice) -> list[Array]: ...
    def __getitem__(self, key: SupportsIndex | str | slice) -> Array | list[Array]:
        """Return the output of a number or name, or those of a slice.

        Raises
        ------
        KeyError
            for an unknown name; the message has the names.
        """
        if isinstance(key, str):
            if key not in self.names:
                raise KeyError(f"no output '{key}': the names are {', '.join(self.names)}")
            return super().__getitem__(self.names.index(key))
        return super().__getitem__(key)

    def __contains__(self, item: object) -> bool:
        """Return whether there is an output of this name, or this very array is among them."""
        return item in self.names if isinstance(item, str) else any(array is item for array in self)

    def asdict(self) -> dict[str, Array]:
        """Return the arrays by name."""
        return dict(zip(self.names, self, strict=True))

    def __repr__(self) -> str:
        """Return names, types and shapes."""
        parts = (f"{name}: {a.dtype}{list(np.shape(a))}" for name, a in zip(self.names, self, strict=True))
        return f"<Outputs {', '.join(parts)}>"
