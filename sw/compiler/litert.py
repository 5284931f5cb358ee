"""LiteRT as a runtime for parts of TFLite models, in a process of its own.

LiteRT checks the files that it reads only in part: a damaged model can end the process, and a WHILE may run
for ever.  The worker process ends alone, and the caller gets an error.
"""

from __future__ import annotations

import atexit
import importlib.util
import itertools
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from rkcosim.base.processes import end_child
from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.host_runtimes import LONGEST
from rkcosim.compiler.litert_worker import receive, send

Array = npt.NDArray[Any]

_SCRIPT = Path(__file__).with_name("litert_worker.py")


class _Pipe:
    """The worker's standard output as a file whose `read` has a time limit."""

    def __init__(self, file: BinaryIO, limit: float) -> None:
        self.file, self.end = file, time.monotonic() + limit

    def read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            left = self.end - time.monotonic()
            if left <= 0 or not select.select([self.file], [], [], left)[0]:
                raise TimeoutError
            part = os.read(self.file.fileno(), min(size - len(parts), 1 << 20))
            if not part:
                break
            parts += part
        return bytes(parts)


class _Worker:
    """The process; it is started again after it has ended, or in a forked process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.owner = 0
        self.starts = 0
        """Counts processes: programs that were loaded by an earlier one are gone."""

    def ask(self, text: dict[str, Any], arrays: Sequence[Array] = ()) -> tuple[dict[str, Any], list[Array]]:
        """Send a request and return text and arrays of the answer.

        Raises
        ------
        ModelError
            If the process ends or takes longer than `LONGEST`.
        """
        process = self.started()
        assert process.stdin is not None and process.stdout is not None
        try:
            send(cast(BinaryIO, process.stdin), text, arrays)
            return receive(cast(BinaryIO, _Pipe(cast(BinaryIO, process.stdout), LONGEST)))
        except TimeoutError:
            self.end()
            raise ModelError(f"LiteRT needs more than {LONGEST:.0f} s for a part of the model") from None
        except (EOFError, BrokenPipeError):
            code = self.end()
            said = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise ModelError(f"LiteRT ends with {said} on a part of the model") from None
        except BaseException:  # interrupted between request and answer
            self.end()
            raise

    def started(self) -> subprocess.Popen[bytes]:
        """Return the running process of this process."""
        if self.process is None or self.owner != os.getpid():
            self.process = subprocess.Popen(
                [sys.executable, "-P", str(_SCRIPT)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=-1,
            )
            self.owner = os.getpid()
            self.starts += 1
        return self.process

    def end(self) -> int:
        """End the process, if it runs, and return its exit code."""
        process, self.process = self.process, None
        if process is None or self.owner != os.getpid():
            return 0
        return end_child(process)


_WORKER = _Worker()
_KEYS = itertools.count()
atexit.register(_WORKER.end)


def start() -> None:
    """Start the worker process, if the package is installed and it does not run yet.

    A program that counts its open descriptors calls this before.
    """
    if importlib.util.find_spec("ai_edge_litert") is not None:
        with _WORKER.lock:
            _WORKER.started()


class LiteRtRuntime:
    """LiteRT on TFLite files, with its own kernels on one thread; see `HostRuntime`.

    Each call begins with the initial values of all variables, so that a result depends on the inputs alone.
    """

    name, extra = "LiteRT", "litert"

    def load(self, data: bytes, takes: Sequence[str], gives: Sequence[str]) -> LiteRtProgram:
        """Read a TFLite file; see `HostRuntime.load`."""
        if importlib.util.find_spec("ai_edge_litert") is None:
            raise ImportError("ai_edge_litert")
        return LiteRtProgram(data)


class LiteRtProgram:
    """A program in the worker process; called with arrays, it returns arrays.

    Parameters
    ----------
    data
        A TFLite file.

    Attributes
    ----------
    shapes
        Shapes of its outputs, as far as LiteRT knows them before it computes them.

    Raises
    ------
    ImportError
        If the package is not installed.
    ModelError
        If LiteRT refuses the file; the message has its reason.
    """

    def __init__(self, data: bytes) -> None:
        self._data, self._key, self._start = data, str(next(_KEYS)), -1
        self.shapes: list[tuple[int, ...]] = []
        with _WORKER.lock:
            self._place()

    def _place(self) -> None:
        """Load the program, unless the running process has it."""
        _WORKER.started()
        if self._start == _WORKER.starts:
            return
        data = np.frombuffer(self._data, np.uint8)
        answer = _WORKER.ask({"call": "load", "key": self._key}, [data])
        _checked(answer, "refuses")
        self.shapes = [tuple(shape) for shape in answer[0]["shapes"]]
        self._start = _WORKER.starts

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        """Compute the outputs; raises ModelError if LiteRT fails, ends or takes too long."""
        with _WORKER.lock:
            self._place()
            return _checked(_WORKER.ask({"call": "run", "key": self._key}, arrays), "fails on")

    def __del__(self) -> None:
        if _WORKER is None:  # the interpreter ends and has removed the names of this module
            return
        if self._start == _WORKER.starts and _WORKER.process is not None and _WORKER.lock.acquire(False):
            try:
                _WORKER.ask({"call": "free", "key": self._key})
            except (ModelError, OSError, ValueError):
                pass
            finally:
                _WORKER.lock.release()


def _checked(answer: tuple[dict[str, Any], list[Array]], verb: str) -> list[Array]:
    text, arrays = answer
    if "missing" in text:
        raise ImportError(text["missing"])
    if "error" in text:
        said = " ".join(str(text["error"]).split())[:300]
        raise ModelError(f"LiteRT {verb} a part of the model: {said}")
    return arrays
