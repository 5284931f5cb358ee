"""Open files of a DRM device, and the dispatch of their ioctls (`drm_ioctl`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from errno import EACCES, EBADF, EBUSY, EINTR, EINVAL, EIO, ENOMEM
from typing import Any

from rkcosim.driver.kernel import structs as s
from rkcosim.driver.kernel.fences import DmaBuf
from rkcosim.driver.kernel.interface import (
    CallerError,
    Credentials,
    FdTable,
    KernelError,
    UserMemory,
    copied,
)
from rkcosim.driver.kernel.log import Log
from rkcosim.driver.kernel.memory import (
    OFFSET_END,
    OFFSET_FIRST,
    GemObject,
    HandleTable,
    RangeSpace,
    round_up,
)
from rkcosim.driver.kernel.scheduler import Client, Job, Scheduler

MAX_HANDLES = 4096
"""Maximum number of buffers of one open file: each is a descriptor of the server, which all clients share."""

MAX_JOBS = 4096
"""Maximum number of unfinished jobs of one open file."""

MAP_SHARED = 1


@dataclass
class IoctlCall:
    """One ioctl in progress.

    Members
    -------
    user, fds : memory and descriptors of the program.
    size : size of the structure in the ioctl number.
    passed : set by handlers when the first check of the arguments has succeeded.
    """

    user: UserMemory
    fds: FdTable
    size: int
    passed: bool = False


Handler = Callable[["File", Any, IoctlCall], int]


@dataclass(frozen=True)
class Command:
    """An entry of the dispatch table.

    Members
    -------
    name : name in the log.
    struct, direction : structure and direction in the kernel's ioctl number.
    handler : function that executes it; called without the lock.
    render : allowed on render nodes.
    auth : only for authenticated clients (and for render nodes, if allowed there).
    master : only for the DRM master.
    """

    name: str
    struct: type[s.Struct]
    direction: int
    handler: Handler
    render: bool = True
    auth: bool = False
    master: bool = False


class DrmDevice:
    """State that the open files of one driver share.

    Members
    -------
    name, date, description, version : values returned by VERSION.
    commands : commands by number.
    offsets : fake mmap offsets.
    names : buffers by their global (flink) name.
    """

    name = date = description = ""
    version = (0, 0, 0)

    def __init__(self, scheduler: Scheduler, log: Log) -> None:
        self.scheduler, self.log, self.lock = scheduler, log, scheduler.lock
        self.commands: dict[int, Command] = {}
        self.offsets = RangeSpace(OFFSET_FIRST, OFFSET_END)
        self.by_offset: dict[int, GemObject] = {}
        self.names: dict[int, GemObject] = {}
        self.files: list[File] = []
        self.exported: dict[int, DmaBuf] = {}
        self.magics = 0

    def opened(self, file: File) -> None:
        """Called after a file has been opened."""

    def closed(self, file: File) -> None:
        """Called after a file and all of its handles have been closed."""

    def released(self, item: GemObject) -> None:
        """Called before a buffer is destroyed."""
        if item.offset is not None:
            self.offsets.give(item.offset)
            del self.by_offset[item.offset]
        if item.flink:
            del self.names[item.flink]
        self.exported.pop(id(item), None)

    def offset_of(self, item: GemObject) -> int:
        """The fake mmap offset of a buffer, which is assigned at the first request."""
        if item.offset is None:
            item.offset = self.offsets.take(item.size)
            if item.offset is None:
                raise KernelError(ENOMEM, "no fake offsets left")
            self.by_offset[item.offset] = item
        return item.offset


class File(Client):
    """An open device node; any thread may call `ioctl`, `mmap`, `interrupt` and `close`."""

    def __init__(self, device: DrmDevice, node: str, path: str, credentials: Credentials) -> None:
        self.device, self.node, self.path = device, node, path
        super().__init__(credentials)
        self.handles = HandleTable()
        self.gone = False
        self.magic = self.nice = 0
        self.master: bool = node == "card" and not any(other.master for other in device.files)
        self.authenticated = self.master or credentials.uid == 0
        self.last_passed = False
        """Whether the last ioctl passed its first check (for statistics)."""
        self.data: Any = None
        """Data that the driver keeps for the file."""
        device.files.append(self)
        device.opened(self)

    def ioctl(self, request: int, argument: int, user: UserMemory, fds: FdTable) -> int:
        """Execute an ioctl.

        Parameters
        ----------
        request, argument
            As given by the program.
        user, fds
            Memory and descriptors of the program.

        Returns
        -------
        0 or a positive result.

        Raises
        ------
        KernelError
            With the errno; structures have nevertheless been copied back, as the DRM core does.
        """
        call = IoctlCall(user, fds, s.ioc_size(request))
        name = f"ioctl {request & 0xFFFFFFFF:#x}"
        try:
            command = self.device.commands.get(s.ioc_number(request))
            if self.closed:
                raise KernelError(EBADF, "the file is closed")
            if command is None:
                raise KernelError(EINVAL, f"{self.device.name} has no ioctl {s.ioc_number(request):#x}")
            name = command.name
            return self._dispatch(command, request, argument, call)
        except KernelError as error:
            # polling and interruptions are frequent; every other error is logged
            level = "debug" if error.code in (EBUSY, EINTR) else "info"
            self.device.log.add(
                level, f"{self.device.name}: {name} of process {self.credentials.pid}: -{error}"
            )
            raise
        except CallerError:
            raise
        except Exception as error:  # an error in this model must not stop the server
            self.device.log.failed(name, error)
            raise KernelError(EIO, "internal error") from error
        finally:
            self.last_passed = call.passed

    def _dispatch(self, command: Command, request: int, argument: int, call: IoctlCall) -> int:
        def work(arguments: s.Struct) -> int:
            self._permit(command)
            return command.handler(self, arguments, call)

        return copied(command.struct, command.direction, request, argument, call.user, work)

    def _permit(self, command: Command) -> None:
        if self.node == "render" and not command.render:
            raise KernelError(EACCES, "not allowed on a render node")
        if command.auth and self.node != "render" and not self.authenticated:
            raise KernelError(EACCES, "not authenticated")
        if command.master and not self.master:
            raise KernelError(EACCES, "not the DRM master")

    def mmap(self, offset: int, length: int, prot: int, flags: int, *, hold: bool = False) -> tuple[int, int]:
        """The file and offset that a program's mmap of this file maps instead.

        Parameters
        ----------
        offset, length, prot, flags
            As given by the program.
        hold
            Keep the buffer until `munmap(offset)`; for callers that observe the unmapping.

        Returns
        -------
        A memfd of the kernel and the offset in it, which the program maps shared.

        Raises
        ------
        KernelError
            EINVAL for an offset at which no buffer starts, a length beyond its end or a private mapping;
            EACCES for a buffer for which this file has no handle.
        """
        with self.device.lock:
            if self.closed:
                raise KernelError(EBADF, "the file is closed")
            item = self._at_offset(offset)
            if length <= 0 or round_up(length) > item.size:
                raise KernelError(EINVAL, f"mmap of {length} bytes of a buffer of {item.size}")
            if not self.handles.of(item):
                raise KernelError(EACCES, "mmap of another file's buffer")
            if not flags & MAP_SHARED:
                raise KernelError(EINVAL, "only shared mappings")
            if hold:
                item.hold()
            return item.backing.file, 0

    def munmap(self, offset: int) -> None:
        """A mapping that was made with `hold` has been removed."""
        with self.device.lock:
            self._at_offset(offset).drop()

    def _at_offset(self, offset: int) -> GemObject:
        item = self.device.by_offset.get(offset)
        if item is None:
            raise KernelError(EINVAL, f"mmap: no buffer at offset {offset:#x}")
        return item

    def interrupt(self) -> None:
        """A signal arrived: all interruptible waits for this file end with EINTR."""
        with self.device.scheduler.changed:
            self.interrupts += 1
            self.device.scheduler.changed.notify_all()

    def close(self) -> None:
        """The last descriptor is closed: waits end, queued jobs are dropped, running jobs end first."""
        scheduler = self.device.scheduler
        with scheduler.changed:
            if self.closed:
                return
            self.closed = True
            for job in [job for job in self.jobs if job.state == "queued"]:
                scheduler.end(job, EINTR)
            self._release()
            scheduler.wake()
            scheduler.changed.notify_all()

    def job_ended(self, job: Job) -> None:
        """One of the jobs of the file has ended."""
        super().job_ended(job)
        if self.closed:
            self._release()

    def _release(self) -> None:
        if self.jobs or self.gone:
            return
        self.gone = True
        self.handles.clear()
        self.device.files.remove(self)
        self.device.closed(self)

    def new_handle(self, item: GemObject) -> int:
        """Create a handle for a buffer.

        Raises
        ------
        KernelError
            ENOMEM if the file has too many handles; EBADF if it has been closed meanwhile.
        """
        if self.closed:
            raise KernelError(EBADF, "the file is closed")
        if len(self.handles) >= MAX_HANDLES:
            raise KernelError(ENOMEM, f"more than {MAX_HANDLES} handles")
        return self.handles.add(item)

    def check_jobs(self) -> None:
        """Raise ENOMEM if the file has too many jobs."""
        if len(self.jobs) >= MAX_JOBS:
            raise KernelError(ENOMEM, f"more than {MAX_JOBS} jobs")
