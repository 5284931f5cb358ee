"""The names of expressions in a session on the RTL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rkcosim.debug.breakpoints import BreakpointError, register_named
from rkcosim.debug.expressions import ExpressionError
from rkcosim.debug.scope import TensorScope
from rkcosim.golden.task.registers import View

if TYPE_CHECKING:
    from rkcosim.debug.rtl.position import RtlPosition


class RtlScope(TensorScope):
    """Registers, tensors, the place and the cycle; see `rkcosim.debug.expressions.Scope`."""

    session: RtlPosition

    def register(self, path: str, group: int | None) -> int:
        """Return `BLOCK.REGISTER` or `BLOCK.REGISTER.FIELD` of a group; None: the group in use."""
        try:
            register, one = register_named(path)
        except BreakpointError as error:
            raise ExpressionError(str(error)) from None
        if register.shadowed:
            state = self.session.contents.blocks.get(register.block)
            if state is not None:
                number = state.pointer if group is None else group
                word = View(register.block, dict(state.groups[number])).bits(register.name)
                return word if one is None else int(register.decode(word)[one.name])
        if group is not None:
            raise ExpressionError(f"{register.path} has no groups")
        known = self.session.signals.register(register.block, register.name)
        word = self.session.contents.plain.get(register.offset, register.reset) if known is None else known
        return word & register.mask if one is None else int(register.decode(word)[one.name])

    def names(self) -> Mapping[str, Any]:
        """Return plain names with their values."""
        session = self.session
        state = {
            "core": session.run.cores[session.job].core,
            "cycle": session.run.cycle,
            "raw": self.register("PC.INTERRUPT_RAW_STATUS", None),
            "status": self.register("PC.INTERRUPT_STATUS", None),
        }
        return {**state, **super().names()}
