"""Description of a proof and of the faults that it must find; imports nothing of the RTL."""

from __future__ import annotations

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
    old, new : text that occurs exactly once in it, and its replacement.
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
    bounded : the claims are checked to `depth` only, because no proof for all cycles was found in time.
    reduced : widths or sizes that are smaller than in the RTL; empty: full size.
    slow : not run by the test command.
    seconds : bound of one run of the solver.
    """

    name: str
    block: str
    where: str
    faults: tuple[Fault, ...]
    depth: int = 20
    bounded: bool = False
    reduced: str = ""
    slow: bool = False
    seconds: int = 300

    def build(self, bench: Bench) -> str:
        """Add block, assumptions and claims to `bench`, and return the docstring."""
        module, _, function = self.where.partition(".")
        made = getattr(import_module(f"tools.proofs.{module}"), function)
        made(bench)
        return str(made.__doc__)
