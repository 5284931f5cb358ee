"""What is timed, and what may be changed of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from rkcosim.engines.library import DramConfig

Meaning = Literal["same", "program", "approximate", "retraining", "what-if"]
"""What a change does to the results.

same
    The outputs are the same function of the inputs; roundings may differ.
program
    The same numbers, but the program around the network does something for it.
approximate
    The outputs are a little different; how much depends on the data.
retraining
    Another network, which must be trained (again) with the change.
what-if
    Other hardware or another setting of the board, to see what bounds the network.
"""

Section = Literal["advice", "sizes", "together", "board"]
"""Where a change is listed."""

MEANINGS: tuple[Meaning, ...] = get_args(Meaning)

SECTIONS: tuple[Section, ...] = get_args(Section)

SAID: dict[Meaning, str] = {
    "same": "same results",
    "program": "same results, the program changes",
    "approximate": "approximately the same results",
    "retraining": "needs training",
    "what-if": "what-if: another board",
}


class NotApplicable(ValueError):
    """A change cannot be made to a network, perhaps because another change has been made before."""


@dataclass(frozen=True)
class Subject:
    """A network as it would run.

    Members
    -------
    model
        Bytes of its file.
    cores
        Cores among which large layers are divided, 1 to 3.
    together
        Inferences at the same time, each on a core of its own; 1 unless `cores` is 1.
    runs
        Inferences of the file that one inference of the original network takes.
    dram
        Timing of the memory; None for the RK3588's.
    """

    model: bytes = field(repr=False)
    cores: int = 1
    together: int = 1
    runs: int = 1
    dram: DramConfig | None = None


@dataclass(frozen=True)
class Change:
    """A change.

    Members
    -------
    kind
        Name of the module that has found it, for `--only`.
    name
        Its name, for `--take`; no other change of the network has it.
    text
        What is done, in words.
    meaning
        What it does to the results.
    apply
        Return the changed network; raises NotApplicable or ModelError.
    weight
        Cycles of the layers that it touches; changes with large ones are tried first.
    group
        Changes with the same group exclude each other; empty for none.
    network
        Whether the file is changed, and not only how it is run.
    section
        "advice"; or what is listed apart because it is no change of the network for the same task: "sizes" of
        inputs, several inferences "together", which each take as long as before, or another "board".
    """

    kind: str
    name: str
    text: str
    meaning: Meaning
    apply: Callable[[Subject], Subject] = field(repr=False, compare=False)
    weight: float = 0.0
    group: str = ""
    network: bool = True
    section: Section = "advice"


def setting(subject: Subject, **members: object) -> Subject:
    """Return a subject with other members; raises NotApplicable if it has them already."""
    changed = replace(subject, **members)  # type: ignore[arg-type]
    if changed == subject:
        raise NotApplicable("the network is run like that already")
    return changed
