"""Signals that end a command; a separate thread handles them, regardless of what other threads do."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

PROGRAM_SECONDS = 1.0
"""Seconds that a program has to end after a signal was passed on to it; then it is killed."""

SECONDS = 1.8
"""Seconds from a signal until this process ends, orderly or not."""


class Ending:
    """While this context is active, signals end this process within `SECONDS`.

    The thread that handles them depends on no lock and on no other thread, in particular not on the main
    thread, which may be inside a call that no handler interrupts. The context should be left when everything
    is closed. It can be used in the main thread only.

    Parameters
    ----------
    numbers : the signals.
    heard : called with the number of the first signal, in the handling thread; None: nothing is called.
    bounded : True if this process ends at once when the time is over; otherwise only the program does.

    Members
    -------
    number : the first signal that was received, 0 before.
    """

    def __init__(
        self,
        numbers: Iterable[signal.Signals],
        heard: Callable[[int], None] | None = None,
        *,
        bounded: bool = True,
    ) -> None:
        self._numbers, self._heard, self._bounded = tuple(numbers), heard, bounded
        self.number = 0
        self._program: subprocess.Popen[Any] | None = None
        self._lock = threading.Lock()
        self._left: list[Callable[[], None]] = []
        self._over = threading.Event()

    def program(self, program: subprocess.Popen[Any]) -> None:
        """Pass signals on to a program from now on, including one received earlier."""
        with self._lock:
            self._program = program
            number = self.number
        if number:
            self._pass_on(number)

    def at_last(self, work: Callable[[], None]) -> None:
        """Set a function for the case that the time runs out; it must not wait for anything."""
        self._left.append(work)

    def __enter__(self) -> Ending:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        # The byte in the pipe carries the signal; the handler only replaces the default action.
        self._handlers = {one: signal.signal(one, lambda *_: None) for one in self._numbers}
        self._thread = threading.Thread(target=self._listen, name="rkcosim ending", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._before)
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b"\0")
        self._thread.join()
        os.close(self._read)
        os.close(self._write)

    def _listen(self) -> None:
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        while not self._over.is_set():
            poll.poll()
            for number in os.read(self._read, 64):
                if number in self._numbers:
                    self._came(number)

    def _came(self, number: int) -> None:
        with self._lock:
            first, self.number = not self.number, self.number or number
        self._pass_on(number)
        if not first:
            return
        threading.Thread(target=self._bound, name="rkcosim bound", daemon=True).start()
        if self._heard is not None:
            self._heard(number)

    def _pass_on(self, number: int) -> None:
        if self._program is not None:
            with contextlib.suppress(OSError):
                self._program.send_signal(number)

    def _bound(self) -> None:
        """Wait until everything is closed, and end without that if it takes too long."""
        if self._over.wait(PROGRAM_SECONDS):
            return
        program = self._program
        if program is not None and program.returncode is None:
            with contextlib.suppress(OSError):
                program.kill()
        if not self._bounded or self._over.wait(SECONDS - PROGRAM_SECONDS):
            return
        for work in self._left:
            with contextlib.suppress(Exception):
                work()
        say_now("rkcosim: ended in the middle of a step; files that were being written may be incomplete\n")
        os._exit(128 + self.number)


def say_now(text: str) -> None:
    """Write to standard error if that does not block."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        fd = sys.stderr.fileno()
        ready = select.poll()
        ready.register(fd, select.POLLOUT)
        if ready.poll(0):
            os.write(fd, text.encode())
