"""Executions in threads and their results: what NNAPI has as events and fences."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from rkcosim.apis.nnapi.hal_types import Timing
from rkcosim.apis.nnapi.status import OutputShape, failure

UNKNOWN_TIME = Timing()

LONGEST_WAIT = 600.0
"""Seconds after which an execution that waits for the device, or for another one, fails."""


@dataclass(frozen=True)
class ExecutionResult:
    """Result of an execution: the outputs' dimensions, and its time if it was asked for."""

    output_shapes: tuple[OutputShape, ...]
    timing: Timing = UNKNOWN_TIME


class Execution:
    """An execution in a thread, as NNAPI's events and fences: it has ended when `wait` returns."""

    def __init__(self, run: Callable[[], ExecutionResult]) -> None:
        self._result: ExecutionResult | None = None
        self._error: BaseException | None = None
        self._run = run
        self._thread = threading.Thread(target=self._work, name="nnapi-execution", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self._result = self._run()
        except BaseException as error:  # given to who waits
            self._error = error

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return not self._thread.is_alive()

    def wait(self, timeout: float = LONGEST_WAIT) -> ExecutionResult:
        """Wait until it has ended; return its result.

        Raises
        ------
        HalError
            That of the execution; GENERAL_FAILURE if it has not ended after `timeout` seconds.
        """
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise failure(f"the execution has not ended after {timeout:g} seconds")
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result
