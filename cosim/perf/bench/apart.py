"""Work in a process of its own, whose peak memory is its own."""

from __future__ import annotations

import multiprocessing
import resource
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import ParamSpec, TypeVar

from cosim.engines.errors import EngineError

P = ParamSpec("P")
T = TypeVar("T")


def apart(what: str, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Call a function in a fresh process and return what it does, or raise what it raises.

    Raises
    ------
    EngineError
        if the process ends without a word; `what` names it.
    """
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            return pool.submit(function, *arguments, **named).result()
    except BrokenProcessPool as error:
        raise EngineError(f"the process for {what} ended by itself (out of memory?)") from error


def peak_bytes() -> int:
    """The most memory that this process has taken so far.

    Linux carries `ru_maxrss` over from the process that started this one, so its own mark is read there.
    """
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # another system
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
