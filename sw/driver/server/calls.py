"""Implementation of a program's calls, for both entries: in process and over the socket."""

from __future__ import annotations

import mmap
import os
import stat
from errno import EACCES, EBADF, EINVAL, ENFILE, ENODEV, ENOTTY
from pathlib import Path
from typing import Any

from rkcosim.driver.kernel import BoardView, DmaBuf, Kernel, KernelError, TextFile
from rkcosim.driver.kernel.memory import Backing
from rkcosim.driver.server.descriptors import NODES, Descriptors, Mark
from rkcosim.driver.server.tree import Tree

_ACCESS = os.O_RDONLY | os.O_WRONLY | os.O_RDWR


class Machine:
    """The simulated kernel with the descriptors that programs have of it.

    Parameters
    ----------
    kernel : see `rkcosim.driver.kernel.Kernel` and `BoardView`.
    """

    def __init__(self, kernel: Kernel | BoardView) -> None:
        self.kernel: Any = kernel
        self.descriptors = Descriptors()
        self.nodes = list(kernel.nodes())
        if len(self.nodes) > NODES:
            raise ValueError(f"{len(self.nodes)} device nodes are more than {NODES}")
        self.texts: dict[str, TextFile] = dict(kernel.files())

    def open(self, path: str, flags: int, who: Any) -> int:
        """Return a descriptor, close-on-exec, which the caller passes on.

        Raises
        ------
        KernelError
            If the path is not one of the simulated machine or cannot be opened.
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

    def _open_text(self, text: TextFile, access: int) -> int:
        content = text.read() if access != os.O_WRONLY else b""
        if access != os.O_RDONLY:
            if not text.writable:
                raise KernelError(EACCES)
            return self.descriptors.make_text(text, content)
        fd = os.memfd_create("npu text", os.MFD_CLOEXEC)
        try:
            os.write(fd, content)
            return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.close(fd)

    def ioctl(self, obj: Any, request: int, argument: int, user: Any, fds: Any) -> int:
        """Return the result of an ioctl, or raise KernelError."""
        if obj is None or isinstance(obj, TextFile):
            raise KernelError(ENOTTY)
        return obj.ioctl(request, argument, user, fds) or 0

    def map(self, obj: Any, offset: int, length: int, protection: int, flags: int) -> tuple[int, int]:
        """Return (memory descriptor for the caller to close, offset in it) to map, or raise KernelError.

        EACCES for pages of a dma-buf that its access mode excludes, as the kernel's mmap checks it.
        """
        if hasattr(obj, "mmap"):
            with self.kernel.lock:  # the buffer is kept meanwhile
                fd, place = obj.mmap(offset, length, protection, flags)
                return os.dup(fd), place
        if obj is None or isinstance(obj, TextFile) or is_sync(obj):
            raise KernelError(ENODEV)
        writes = protection & mmap.PROT_WRITE and flags & mmap.MAP_SHARED
        if obj.access == os.O_WRONLY or (obj.access == os.O_RDONLY and writes):
            raise KernelError(EACCES, "the access mode of the dma-buf excludes this")
        size = os.fstat(obj.fileno()).st_size
        if length <= 0 or offset < 0 or offset + length > size + (-size) % 4096:
            raise KernelError(EINVAL)
        return os.dup(obj.fileno()), offset

    def size(self, obj: Any) -> int:
        """Return the size in bytes of a buffer's descriptor, or raise KernelError."""
        if obj is None or isinstance(obj, TextFile) or hasattr(obj, "mmap") or is_sync(obj):
            raise KernelError(EINVAL)
        return os.fstat(obj.fileno()).st_size

    def write(self, obj: Any, data: bytes) -> int:
        """Write to a text file; returns the number of bytes accepted, or raises KernelError."""
        if not isinstance(obj, TextFile):
            raise KernelError(EBADF)
        return obj.write(data)

    def install(self, obj: Any) -> int:
        """Return a descriptor, close-on-exec, for an object that the kernel creates during a call.

        The caller of the kernel's table holds the object for it.
        """
        sync = is_sync(obj)
        watched = obj.fileno() if sync else -1
        mark = Mark.SYNC if sync else Mark.DMABUF
        return self.descriptors.make(obj, mark, watched=watched, access=obj.access)

    def backing_of(self, fd: int) -> Backing | None:
        """Return the pages of a dma-buf from its descriptor in this process; None for other descriptors."""
        obj = self.descriptors.find_fd(fd)
        return obj.item.backing if isinstance(obj, DmaBuf) else None

    def tree(self, root: Path) -> Tree:
        """Create the machine's files below a new folder; raises OSError if that fails."""
        texts = {path: (0o644 if text.writable else 0o444, text.read()) for path, text in self.texts.items()}
        return Tree(root, self.nodes, dict(self.kernel.links()), texts, self.kernel.hidden)

    def close(self) -> None:
        """Close everything that programs have opened."""
        self.descriptors.close()


def is_sync(obj: Any) -> bool:
    """Whether an object is polled rather than mapped."""
    return not hasattr(obj, "mmap") and not stat.S_ISREG(os.fstat(obj.fileno()).st_mode)
