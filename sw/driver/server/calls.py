"""What a program's calls do, whichever way they come: in process or over the socket."""

from __future__ import annotations

import os
import stat
from errno import EACCES, EBADF, EINVAL, ENFILE, ENODEV, ENOTTY
from pathlib import Path
from typing import Any

from sw.driver.kernel import Kernel, KernelError
from sw.driver.server.descriptors import NODES, Descriptors, Mark
from sw.driver.server.tree import Tree

_ACCESS = os.O_RDONLY | os.O_WRONLY | os.O_RDWR


class TextFile:
    """A text of the simulated kernel that a program has opened for writing."""

    def __init__(self, text: Any) -> None:
        self._text = text

    def write(self, data: bytes) -> int:
        """Bytes taken; KernelError as the kernel's file gives it."""
        self._text.write(data)
        return len(data)

    def close(self) -> None:
        """Nothing is left behind."""


class Machine:
    """The simulated kernel with the descriptors that programs have of it.

    Parameters
    ----------
    kernel : see `sw.driver.kernel.Kernel`.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.descriptors = Descriptors()
        self.nodes = list(kernel.nodes())
        if len(self.nodes) > NODES:
            raise ValueError(f"{len(self.nodes)} device nodes are more than {NODES}")
        self.texts: dict[str, Any] = dict(kernel.files())

    def open(self, path: str, flags: int, who: Any) -> int:
        """A descriptor, close-on-exec, for the caller to hand over.

        Raises
        ------
        KernelError
        """
        for number, node in enumerate(self.nodes):
            if node.path == path:
                file = self.kernel.open(path, flags, who)
                try:
                    return self.descriptors.make(
                        file, Mark.NODE + number, nonblock=bool(flags & os.O_NONBLOCK)
                    )
                except OSError as error:
                    file.close()
                    raise KernelError(ENFILE, f"the server has no descriptors left: {error}") from error
        text = self.texts.get(path)
        if text is None:
            raise KernelError(ENODEV, f"{path} is not of the simulated machine")
        return self._open_text(text, flags & _ACCESS)

    def _open_text(self, text: Any, access: int) -> int:
        content = text.read() if access != os.O_WRONLY else b""
        if access != os.O_RDONLY:
            if not text.writable:
                raise KernelError(EACCES)
            return self.descriptors.make_text(TextFile(text), content)
        fd = os.memfd_create("npu text", os.MFD_CLOEXEC)
        try:
            os.write(fd, content)
            return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.close(fd)

    def ioctl(self, obj: Any, request: int, argument: int, user: Any, fds: Any) -> int:
        """The value of an ioctl; KernelError."""
        if obj is None or isinstance(obj, TextFile):
            raise KernelError(ENOTTY)
        return obj.ioctl(request, argument, user, fds) or 0

    def map(self, obj: Any, offset: int, length: int, protection: int, flags: int) -> tuple[int, int]:
        """(memory descriptor for the caller to close, offset in it) to make a mapping of; KernelError."""
        if hasattr(obj, "mmap"):
            with self.kernel.scheduler.lock:  # nobody frees the buffer meanwhile
                fd, place = obj.mmap(offset, length, protection, flags)
                return os.dup(fd), place
        if obj is None or isinstance(obj, TextFile) or is_sync(obj):
            raise KernelError(ENODEV)
        size = os.fstat(obj.fileno()).st_size
        if length <= 0 or offset < 0 or offset + length > size + (-size) % 4096:
            raise KernelError(EINVAL)
        return os.dup(obj.fileno()), offset

    def size(self, obj: Any) -> int:
        """Bytes of a buffer's descriptor; KernelError."""
        if obj is None or isinstance(obj, TextFile) or hasattr(obj, "mmap") or is_sync(obj):
            raise KernelError(EINVAL)
        return os.fstat(obj.fileno()).st_size

    def write(self, obj: Any, data: bytes) -> int:
        """Bytes of a text taken; KernelError."""
        if not isinstance(obj, TextFile):
            raise KernelError(EBADF)
        return obj.write(data)

    def install(self, obj: Any) -> int:
        """A descriptor, close-on-exec, for an object that the kernel makes during a call.

        The caller of the kernel's table holds the object for it.
        """
        sync = is_sync(obj)
        watched = obj.fileno() if sync else -1
        return self.descriptors.make(obj, Mark.SYNC if sync else Mark.DMABUF, watched=watched)

    def tree(self, root: Path) -> Tree:
        """The machine's files below a new folder; OSError if that cannot be made."""
        texts = {path: (0o644 if text.writable else 0o444, text.read()) for path, text in self.texts.items()}
        return Tree(root, self.nodes, dict(self.kernel.links()), texts)

    def close(self) -> None:
        """Close everything that programs have open."""
        self.descriptors.close()


def is_sync(obj: Any) -> bool:
    """Whether an object is polled rather than mapped."""
    return not hasattr(obj, "mmap") and not stat.S_ISREG(os.fstat(obj.fileno()).st_mode)
