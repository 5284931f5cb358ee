"""Process that reads one waveform through pywellen for `rkcosim.waves.backends`.

pywellen's Rust code ends its process where it cannot have memory, as for a damaged file that declares much.

The parent writes requests, lists of references of signals, and reads answers (`rkcosim.waves.framing`). The
first answer comes without a request.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import Any

from rkcosim.waves.backends import WellenBackend
from rkcosim.waves.files import WaveError
from rkcosim.waves.framing import receive, send


def main(path: str, form: str, most_bytes: int) -> None:
    """Open a waveform and answer requests until there are no more.

    Parameters
    ----------
    path, form : the file, and "vcd" or "fst".
    most_bytes : address space of this process.
    """
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the library prints is not an answer
    resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))

    def answered(work: Any) -> bool:
        try:
            send(answers, ("right", work()))
            return True
        except (KeyboardInterrupt, BrokenPipeError):
            raise
        except BaseException as error:  # a panic of Rust code is no Exception
            known = isinstance(error, (WaveError, RuntimeError)) or type(error).__name__ == "PanicException"
            text = " ".join(str(error).split())
            kind = "WaveError" if isinstance(error, WaveError) else "" if known else type(error).__name__
            send(answers, (kind or "RuntimeError", text))
            return False

    backend: list[WellenBackend] = []

    def opened() -> Any:
        backend.append(WellenBackend(Path(path), form))
        first = backend[0]
        signals = [(item.name, item.width, item.reference) for item in first.signals]
        return first.unit.numerator, first.unit.denominator, signals

    if answered(opened):
        while True:
            try:
                wanted = receive(sys.stdin.buffer)
            except EOFError:
                return
            answered(lambda wanted=wanted: backend[0].read_references(wanted))


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(1)
