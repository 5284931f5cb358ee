"""The process behind onnxruntime's provider, forked from one that has imported everything.

The provider's library starts a process for each session, which imports for more than a second before it
compiles a graph of a few nodes. In the search the library starts this module instead: it hands the connection
to the process whose socket `VARIABLE` names, which forks, and the fork serves the session as
`rkcosim.apis.link.worker` does. Without that variable the module is the worker itself.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

MODULE = "tools.graph_fuzz.forks"
VARIABLE = "GRAPH_FUZZ_FORKS"
DESCRIPTOR = 3
"""The connection of the library, as in `rkcosim.apis.link.worker`, which is not imported for this number."""

ENDED = 70
"""Exit code if the fork ends without one."""


class Forks:
    """The process that forks; a context manager around the sessions of onnxruntime that use it."""

    def __init__(self) -> None:
        from rkcosim.base import PACKAGE

        self._folder = tempfile.TemporaryDirectory(prefix="forks-")
        self._path = str(Path(self._folder.name) / "socket")
        listening = socket.socket(socket.AF_UNIX)
        with listening:
            listening.bind(self._path)
            listening.listen()
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", MODULE, str(listening.fileno())],
                stdin=subprocess.PIPE,
                pass_fds=[listening.fileno()],
                env=os.environ | {"PYTHONPATH": str(PACKAGE.absolute().parent)},
            )

    def library(self) -> Path:
        """Return the path of a provider's library that starts this module."""
        from rkcosim.apis.ort.library import provider_library

        return provider_library(module=MODULE)

    def use(self, forked: bool) -> None:
        """Say whether the processes of the next sessions are forked, or start from nothing."""
        os.environ.pop(VARIABLE, None)
        if forked:
            os.environ[VARIABLE] = self._path

    def close(self) -> None:
        """End the process."""
        self.use(False)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._folder.cleanup()


def _serve(descriptor: int) -> None:
    """Fork for each connection until standard input is closed."""
    import select

    import rkcosim.apis.link.worker
    import rkcosim.apis.ort.calls
    from rkcosim.compiler.host_runtimes import import_onnxruntime

    assert rkcosim.apis.ort.calls
    import_onnxruntime()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for forks
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=descriptor) as listening:
        while True:
            ready, _, _ = select.select([listening, sys.stdin], [], [])
            if sys.stdin in ready:
                return
            asking, _ = listening.accept()
            with asking:
                if os.fork() == 0:
                    listening.close()
                    os._exit(_fork(asking))


def _fork(asking: socket.socket) -> int:
    """Serve a session, and tell the exit code to the process that asked."""
    from rkcosim.apis.link.worker import main
    from rkcosim.apis.ort.worker import ort_calls

    for number in (signal.SIGCHLD, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    _, got, _, _ = socket.recv_fds(asking, 1, 1)
    if got[0] != DESCRIPTOR:
        if asking.fileno() == DESCRIPTOR:
            asking = asking.dup()
        os.dup2(got[0], DESCRIPTOR)
        os.close(got[0])
    code = ENDED
    try:
        main(ort_calls)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        with suppress(OSError):
            asking.send(bytes([code & 0xFF]))
    return code


def _hand_over(path: str) -> int:
    """Give the connection of the library to the process that forks; return the exit code of the fork."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(path)
        socket.send_fds(asking, [b"\0"], [DESCRIPTOR])
        os.close(DESCRIPTOR)
        told = asking.recv(1)
        return told[0] if told else ENDED


def _main() -> int:
    if len(sys.argv) > 1:
        _serve(int(sys.argv[1]))
        return 0
    if path := os.environ.get(VARIABLE):
        return _hand_over(path)
    from rkcosim.apis.link.worker import main
    from rkcosim.apis.ort.worker import ort_calls

    main(ort_calls)
    return 0


if __name__ == "__main__":
    raise SystemExit(_main())
