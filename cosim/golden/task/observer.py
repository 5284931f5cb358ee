"""What a lockstep run wants to see of a task's inside."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cosim.golden.task.cna import Cbuf
from cosim.golden.task.core import ConvResult


class Observer(Protocol):
    """Gets the internals of every convolution task that ends, in the order of the tasks.

    First `cbuf` for the features, then for the weights, then `core` for each octet in the order in which
    CORE delivers them: group, stripe, pixel, octet.
    """

    def cbuf(
        self,
        task: int,
        kind: str,
        numbers: NDArray[np.int64],
        entries: NDArray[np.uint8],
        held: NDArray[np.bool_],
    ) -> None:
        """See what operands occupy in CBUF once all of them have been fetched.

        Parameters
        ----------
        task
            number of the task in its kick.
        kind
            "feature" or "weight"; with weights larger than their banks the last ones of the ring.
        numbers
            entries (64 bytes each) that hold a byte of them, int64 [n], ascending.
        entries
            their contents, uint8 [n, 64]; bytes of an entry that belong to nobody may hold anything
            that earlier tasks left there.
        held
            which bytes belong to an operand, bool [n, 64].
        """

    def core(self, task: int, octet: int, acc: NDArray[np.uint64], sum: NDArray[np.uint32]) -> None:
        """See an octet: its number in the task, `acc` as 48 bits and `sum` as 32 bits, [8] each."""


def observe(observer: Observer, task: int, cbuf: Cbuf, result: ConvResult) -> None:
    """Show an observer one convolution task."""
    for kind in ("feature", "weight"):
        observer.cbuf(task, kind, *cbuf.occupied(kind))
    for number, (acc, total) in enumerate(zip(*result.delivered(), strict=True)):
        observer.core(task, number, acc, total)
