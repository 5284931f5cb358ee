"""Description of a proof and of the faults that it must find; imports nothing of the RTL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tools.proofs.bench import Bench


@dataclass(frozen=True)
class Fault:
    """A change of the RTL that the proof must notice.

    Members
    -------
    module : module with the changed text, for example `rkcosim.rtl.bus`.
    old, new : text of the module, and its replacement in every place.
    meaning : what is wrong then, as a sentence.
    """

    module: str
    old: str
    new: str
    meaning: str


@dataclass(frozen=True)
class Proof:
    """A proof of one block.

    Members
    -------
    name : short name, with which it is selected.
    block : file and class.
    where : module and function of this package that adds the block, assumptions and claims to a `Bench`; its
        docstring says what is proved.
    faults : changes of the block, each of which this proof finds.
    depth : cycles of the bounded check, in which faults and the false claim must be found.
    reduced : widths or sizes that are smaller than in the RTL; empty: full size.
    slow : not run by the test command.
    seconds : bound of one run of the solver, after which a claim is checked to `depth` only.
    together : bound of the run with all claims, after which they are checked one by one.
    unchecked : why the block's assertions in the RTL (rtl/assertions.py) are not checked; empty: they are.
    """

    name: str
    block: str
    where: str
    faults: tuple[Fault, ...]
    depth: int = 20
    reduced: str = ""
    slow: bool = False
    seconds: int = 120
    together: int = 30
    unchecked: str = ""

    def build(self, bench: Bench) -> None:
        """Add block, assumptions and claims to `bench`."""
        self._function()(bench)

    def text(self) -> str:
        """Return what is proved, as a sentence."""
        return str(self._function().__doc__)

    def _function(self) -> Callable[[Bench], None]:
        module, _, function = self.where.partition(".")
        found: Callable[[Bench], None] = getattr(import_module(f"tools.proofs.{module}"), function)
        return found
