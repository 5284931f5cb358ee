"""What programs that call rknn_api.h find: the library, its server, and the device files of a board."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rkcosim.base.failures import Failures
from rkcosim.devices.rknn_library import environment, lay_out, rknn_library, seeing

if TYPE_CHECKING:
    from rkcosim.driver.kernel import BoardView, Kernel


@contextmanager
def rknn_surroundings(
    folder: Path,
    failures: Failures,
    *,
    files: BoardView | Kernel | None,
    machine: str | None = None,
    audit: Path | None = None,
    closed: Callable[[str, Any], None] | None = None,
) -> Iterator[dict[str, str]]:
    """Serve programs while the context is open, on the device of `rknn_api.use_device`.

    Parameters
    ----------
    folder : an existing folder for sockets and libraries.
    failures : receives unforeseen errors behind the calls of programs.
    files : device tree and NPU files of a board that programs see, or these with the nodes of the device;
        None: they see neither.
    machine : the machine that `uname` tells programs, None for this one.
    audit : the library for LD_AUDIT, for programs that name the library with a path.
    closed : called with the name of its model and each context, before it is destroyed.

    Returns
    -------
    The environment of a program.

    Raises
    ------
    OSError, rkcosim.engines.protocol.BuildError
        if a file cannot be written, or the library cannot be built.
    """
    from rkcosim.driver.server import Server
    from rkcosim.rknn_api.server import RknnServer

    lay_out(folder, rknn_library())
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(RknnServer(folder / "rknn", closed, failures))
        env = environment(folder, server.path, audit)
        if files is not None:
            view = stack.enter_context(Server(files, folder / "board"))
            server.share(view.machine.backing_of)
            env = seeing(env, view.path, machine)
        yield env
