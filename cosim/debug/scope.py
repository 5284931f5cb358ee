"""The names of expressions in a session on the golden model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rkcosim.debug.breakpoints import BreakpointError, register_named
from rkcosim.debug.expressions import DIFFERENCE, GOLDEN, MEMORY, REFERENCE, ExpressionError
from rkcosim.golden.task.errors import MemoryFault
from rkcosim.spec.regs import registers

if TYPE_CHECKING:
    from rkcosim.debug.base import BaseSession
    from rkcosim.debug.session import Session


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


class SessionScope(TensorScope):
    """The names of expressions in a session on the golden model; see `rkcosim.debug.expressions.Scope`."""

    session: Session

    def register(self, path: str, group: int | None) -> int:
        """Return `BLOCK.REGISTER` or `BLOCK.REGISTER.FIELD` of a group; None: the group in use."""
        try:
            register, one = register_named(path)
        except BreakpointError as error:
            raise ExpressionError(str(error)) from None
        device = self.session.kick.device
        if register.shadowed and register.block in device.space.blocks:
            view = self.session.view(register.block, group)
            return (
                view.bits(register.name)
                if one is None
                else int(register.decode(view.raw(register.name))[one.name])
            )
        if group is not None:
            raise ExpressionError(f"{register.path} has no groups")
        word = self._plain(register.path, register.block, register.name, register.offset)
        return word & register.mask if one is None else int(register.decode(word)[one.name])

    def _plain(self, path: str, block: str, name: str, offset: int) -> int:
        device = self.session.kick.device
        if path == "PC.INTERRUPT_RAW_STATUS":
            return device.raw
        if path == "PC.INTERRUPT_STATUS":
            return self.session.kick.interrupt
        if path == "PC.TASK_STATUS":
            return registers()["PC"]["TASK_STATUS"].encode(TASK_COUNTER=device.tasks_done)
        state = device.space.blocks.get(block)
        if state is not None and name == "S_POINTER":
            return state.read_pointer()
        if state is not None and name == "S_STATUS":
            return registers()[block][name].encode(**state.status(device.core_fits(block)))
        return device.space.value(block, name)

    def names(self) -> Mapping[str, Any]:
        """Return plain names with their values."""
        device = self.session.kick.device
        state = {"core": device.core_index, "raw": device.raw, "status": self.session.kick.interrupt}
        return {**state, **super().names()}
