"""Co-working cores in the golden model: the steps of each kick and the groups of cores [HW 1.9].

The model has no time: a core is held until the other cores of its group have reached the same step, or until
no other core can continue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rkcosim.golden.task.registers import View
from rkcosim.spec.co_work import GROUP_SIZES, PATIENCE_CYCLES


def group_size(cna: View) -> int:
    """Return the size of the group that computes the convolution of CNA's registers; 0 for one core alone."""
    return GROUP_SIZES.get(cna("CONV_CON2", "NN_MODE"), 0)


@dataclass
class Steps:
    """Progress of a core's kick.

    Members
    -------
    runs : whether a kick is running.
    size : number of cores of the kick's group; 0 before its first co-working task.
    step : number of steps: two for each co-working task that has ended, and one for a task that is reached.
    """

    runs: bool = False
    size: int = 0
    step: int = 0

    def begin(self) -> None:
        """Begin a kick."""
        self.runs, self.size, self.step = True, 0, 0

    def end(self) -> None:
        """End the kick."""
        self.runs, self.size, self.step = False, 0, 0

    def reach(self, size: int) -> bool:
        """Count that the core has reached a task.

        Parameters
        ----------
        size
            Number of cores of the task's group; 0 for a task of one core.

        Returns
        -------
        Whether the task must wait for the other cores of the group.
        """
        if size and self.step and self.step % 2 == 0:
            self.step += 1
        return self.step > 1

    def start(self, size: int) -> None:
        """Count that a task of a group of `size` cores (0: of one core) starts."""
        if size and not self.step:
            self.size, self.step = size, 1

    def finish(self, size: int) -> None:
        """Count that a task of a group of `size` cores (0: of one core) has ended and is written."""
        self.step += bool(size)


@dataclass
class Groups:
    """Groups of co-working cores among the running kicks.

    Members
    -------
    steps : progress of the kick of each core.
    """

    steps: Sequence[Steps]
    _mates: dict[int, set[int]] = field(default_factory=dict)

    def forget(self, core: int) -> None:
        """Remove a core from its group, because its kick has ended or another one begins."""
        self._mates.pop(core, None)
        for others in self._mates.values():
            others.discard(core)

    def form(self, all_there: bool) -> None:
        """Form groups of cores that have all begun a task of a group of the same size, lowest numbers first.

        Parameters
        ----------
        all_there
            Also form incomplete groups, because no further core can start a co-working task.
        """
        for size in sorted(set(GROUP_SIZES.values())):
            free = [n for n, one in enumerate(self.steps) if one.size == size and n not in self._mates]
            wanted = min(size, len(self.steps))
            if len(free) >= wanted or all_there:
                chosen = free[:wanted]
                for core in chosen:
                    self._mates[core] = set(chosen) - {core}

    def waits_for(self, core: int) -> set[int] | None:
        """Return the cores of the group whose step is smaller than this core's; None without a group."""
        if core not in self._mates:
            return None
        return {n for n in self._mates[core] if self.steps[n].step < self.steps[core].step}

    def leave_out(self, core: int, cycles: int) -> set[int]:
        """Remove the cores for which a core has waited too long from its group.

        Parameters
        ----------
        core
            The waiting core.
        cycles
            Time for which it has waited; nothing is removed below PATIENCE_CYCLES.

        Returns
        -------
        The removed cores.
        """
        late = self.waits_for(core)
        if not late or cycles < PATIENCE_CYCLES:
            return set()
        self._mates[core] -= late
        return late
