"""A computation beside another one, in a thread.

While numpy or a compiled engine works, the interpreter can run another thread.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Beside(Generic[T]):
    """A function that runs in a thread of its own, with the context variables of the caller.

    The thread does not keep the process alive.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._future: Future[T] = Future()
        context = contextvars.copy_context()

        def run() -> None:
            try:
                self._future.set_result(context.run(work))
            except BaseException as error:
                self._future.set_exception(error)

        threading.Thread(target=run, name="rkcosim check", daemon=True).start()

    def result(self) -> T:
        """Return the result, or raise the exception, of the function as soon as it has ended."""
        return self._future.result()

    def wait(self) -> None:
        """Wait until the function has ended, however it ends."""
        self._future.exception()

    def then(self, act: Callable[[], object]) -> None:
        """Call a function when this one has ended: at once if it has already, else in its thread."""
        self._future.add_done_callback(lambda _: act())
