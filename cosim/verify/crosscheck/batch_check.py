"""Checks of the samples of a batch: each is compared with the golden models as a model of one sample is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from rkcosim.compiler.batch import BatchLoaded
from rkcosim.verify.crosscheck.model_check import ModelChecker, Verdict


class BatchChecker:
    """Checks the runs of a model of batches; it looks like `ModelChecker`.

    A sample is compared while its tensors are in the device's memory, so this is done within the run.

    Parameters
    ----------
    loaded : the model on the device under test.
    device : name of the device under test in messages.
    """

    def __init__(self, loaded: BatchLoaded, device: str = "RTL") -> None:
        self._loaded, self._one = loaded, ModelChecker(loaded.first, device)
        self._verdict: Verdict | None = None
        self._address: int | None = None
        self._seconds = 0.0
        loaded.watch = self._sample

    def _sample(self, number: int) -> None:
        begun = time.perf_counter()
        if number == 0:
            self._verdict, self._address = None, None
        found = self._one.check(list(self._loaded.sample(number)))
        if self._verdict is None or self._verdict.match:
            self._verdict = found
        address = self._one.check_memory()
        self._address = address if self._address is None else self._address
        self._seconds += time.perf_counter() - begun

    def begin(self, inputs: Sequence[npt.ArrayLike]) -> None:
        """Do nothing: each sample is compared within the run."""

    def check(self, inputs: list[npt.ArrayLike]) -> Verdict:
        """Return the verdict of the last run's samples, the first that differs if there is one."""
        assert self._verdict is not None
        return self._verdict

    def check_memory(self) -> int | None:
        """Return the first address at which the memory of a sample differed."""
        return self._address

    def levels(self) -> dict[str, Any]:
        """See `ModelChecker.levels`."""
        return self._one.levels()

    def taken(self) -> float:
        """Return the seconds that the checks of the last run took, once."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def close(self) -> None:
        """Release the golden device's memory."""
        self._loaded.watch = None
        self._one.close()
