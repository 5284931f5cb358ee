"""The names that expressions have in every session: tensors, regions and the place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rkcosim.debug.base import BaseSession
from rkcosim.debug.expressions import DIFFERENCE, GOLDEN, MEMORY, REFERENCE, ExpressionError
from rkcosim.golden.task.errors import MemoryFault


class TensorScope:
    """Tensors and plain names of expressions in any session.

    Parameters
    ----------
    session : the session.
    more : further plain names.
    """

    def __init__(self, session: BaseSession, more: Mapping[str, Any] | None = None) -> None:
        self.session, self.more = session, dict(more or {})

    def tensor(self, name: str, of: str) -> Any:
        """Return a tensor, of "memory", "golden", "reference" or "diff"; raises ExpressionError."""
        session = self.session
        place = session.work.tensors.get(name)
        if place is None and name in session.work.regions and of == MEMORY:
            region = session.work.regions[name]
            return session.memory.view(region.address, region.data.size).copy()
        if place is None and name in session.references:
            place = session.references[name].place
        if place is None:
            from difflib import get_close_matches

            near = get_close_matches(name, [*session.work.tensors, *session.work.regions], n=3, cutoff=0.4)
            raise ExpressionError(
                f"there is no tensor {name!r}" + (f"; there is {', '.join(near)}" if near else "")
            )
        if of == GOLDEN or (of == DIFFERENCE and name not in session.references):
            tensors = session.golden()
            if name not in tensors:
                raise ExpressionError(f"the golden model computes no tensor {name!r}")
            theirs: NDArray[Any] = np.asarray(tensors[name]).reshape(place.cube)
        elif of in (REFERENCE, DIFFERENCE):
            if name not in session.references:
                raise ExpressionError(f"the reference has no tensor {name!r}; `against FILE.npz` reads it")
            theirs = session.references[name].want
        if of in (GOLDEN, REFERENCE):
            return theirs
        try:
            ours = place.read(session.memory)
        except MemoryFault as fault:
            raise ExpressionError(f"{name}: {fault}") from None
        if of == MEMORY:
            return ours
        wide = np.float64 if ours.dtype.kind == "f" else np.int64
        return ours.astype(wide) - theirs.astype(wide)

    def names(self) -> Mapping[str, Any]:
        """Return plain names with their values."""
        place = self.session.place
        return {"job": place.job, "task": place.task, "word": place.word, **self.more}

    def tensor_names(self) -> list[str]:
        """Return the names of the tensors."""
        work = self.session.work
        return [*work.tensors, *work.regions, *(n for n in self.session.references if n not in work.tensors)]
