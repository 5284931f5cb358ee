"""Open files of a DRM device, and the dispatch of their ioctls (`drm_ioctl`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from errno import EACCES, EBADF, EBUSY, EFAULT, EINTR, EINVAL, EIO, ENOMEM
from typing import TYPE_CHECKING, Any

from sw.driver.kernel import structs as s
from sw.driver.kernel.errors import KernelError
from sw.driver.kernel.interface import Credentials, FdTable, UserMemory
from sw.driver.kernel.memory import OFFSET_END, OFFSET_FIRST, GemObject, HandleTable, RangeSpace, round_up

if TYPE_CHECKING:
    from sw.driver.kernel.fences import DmaBuf
    from sw.driver.kernel.jobs import Job
    from sw.driver.kernel.log import Log
    from sw.driver.kernel.scheduler import Scheduler

MAX_HANDLES = 4096
"""Buffers of one open file: each is a descriptor of the server, which others need too."""

MAX_JOBS = 4096
"""Jobs of one open file that have not ended."""

MAP_SHARED = 1


@dataclass
class Call:
    """One ioctl under way: `size` is the structure's size as the number has it; `passed` is set by handlers
    when the first check of the arguments is behind them."""

    user: UserMemory
    fds: FdTable
    size: int
    passed: bool = False


Handler = Callable[["File", Any, Call], int]


@dataclass(frozen=True)
class Command:
    """An entry of the dispatch table.

    Members
    -------
    name : for the log.
    struct, direction : of the kernel's own number.
    handler : does it; called without the lock.
    render : allowed on render nodes.
    auth : only for authenticated clients (and render nodes, if allowed there at all).
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
    """What the open files of one driver share.

    Members
    -------
    name, date, description, version : as VERSION tells them.
    commands : by number.
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
        """A file has been opened."""

    def closed(self, file: File) -> None:
        """A file has gone, with all its handles."""

    def released(self, item: GemObject) -> None:
        """A buffer is about to go."""
        if item.offset is not None:
            self.offsets.give(item.offset)
            del self.by_offset[item.offset]
        if item.flink:
            del self.names[item.flink]
        self.exported.pop(id(item), None)

    def offset_of(self, item: GemObject) -> int:
        """The fake offset of a buffer, made when first asked for."""
        if item.offset is None:
            item.offset = self.offsets.take(item.size)
            if item.offset is None:
                raise KernelError(ENOMEM, "no fake offsets left")
            self.by_offset[item.offset] = item
        return item.offset


class File:
    """An open device node; `ioctl`, `mmap`, `interrupt` and `close` may be called by any thread."""

    def __init__(self, device: DrmDevice, node: str, path: str, credentials: Credentials) -> None:
        self.device, self.node, self.path, self.credentials = device, node, path, credentials
        self.handles = HandleTable()
        self.jobs: set[Job] = set()
        self.interrupts = 0
        self.closed = False
        self.gone = False
        self.magic = self.nice = 0
        self.master: bool = node == "card" and not any(other.master for other in device.files)
        self.authenticated = self.master or credentials.uid == 0
        self.last_passed = False
        """Whether the last ioctl got past its first check (for statistics)."""
        self.data: Any = None
        """What the driver keeps for the file."""
        device.files.append(self)
        device.opened(self)

    def ioctl(self, request: int, argument: int, user: UserMemory, fds: FdTable) -> int:
        """Carry out an ioctl.

        Parameters
        ----------
        request, argument
            as the program gave them.
        user, fds
            memory and descriptors of the program.

        Returns
        -------
        0 or a positive result.

        Raises
        ------
        KernelError
            with the errno; structures have been copied back all the same, as the DRM core does.
        """
        call = Call(user, fds, s.ioc_size(request))
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
            # polling and interruptions are everyday events, anything else is worth a line
            level = "debug" if error.code in (EBUSY, EINTR) else "info"
            self.device.log.add(
                level, f"{self.device.name}: {name} of process {self.credentials.pid}: -{error}"
            )
            raise
        except Exception as error:  # a mistake of this model must not stop the server
            self.device.log.err(f"rkcosim: internal error in {name}: {type(error).__name__}: {error}")
            raise KernelError(EIO, "internal error") from error
        finally:
            self.last_passed = call.passed

    def _dispatch(self, command: Command, request: int, argument: int, call: Call) -> int:
        both = s.ioc_direction(request) & command.direction
        given = call.user.read(argument, call.size) if both & s.IOC_WRITE and call.size else b""
        arguments = command.struct.of(given)
        result: int | KernelError
        try:
            self._permit(command)
            result = command.handler(self, arguments, call)
        except KernelError as error:
            result = error
        if both & s.IOC_READ and call.size:
            own = bytes(arguments)
            back = own[: call.size] + given[len(own) :].ljust(max(0, call.size - len(own)), b"\0")
            try:
                call.user.write(argument, back[: call.size])
            except KernelError:
                raise KernelError(EFAULT, "cannot copy the structure back") from None
        if isinstance(result, KernelError):
            raise result
        return result

    def _permit(self, command: Command) -> None:
        if self.node == "render" and not command.render:
            raise KernelError(EACCES, "not allowed on a render node")
        if command.auth and self.node != "render" and not self.authenticated:
            raise KernelError(EACCES, "not authenticated")
        if command.master and not self.master:
            raise KernelError(EACCES, "not the DRM master")

    def mmap(self, offset: int, length: int, prot: int, flags: int, *, hold: bool = False) -> tuple[int, int]:
        """What a program's mmap of this file is to map instead.

        Parameters
        ----------
        offset, length, prot, flags
            as the program gave them.
        hold
            keep the buffer until `munmap(offset)`; for ways in that see the unmapping.

        Returns
        -------
        A memfd of the kernel and the offset in it, to be mapped shared by the program.

        Raises
        ------
        KernelError
            EINVAL for an offset that no buffer starts at, a length past its end or a private mapping;
            EACCES for a buffer that this file has no handle of.
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
            return item.backing.fd, 0

    def munmap(self, offset: int) -> None:
        """A mapping that was made with `hold` is gone."""
        with self.device.lock:
            self._at_offset(offset).drop()

    def _at_offset(self, offset: int) -> GemObject:
        item = self.device.by_offset.get(offset)
        if item is None:
            raise KernelError(EINVAL, f"mmap: no buffer at offset {offset:#x}")
        return item

    def interrupt(self) -> None:
        """A signal came: whoever waits interruptibly for this file gets EINTR."""
        with self.device.scheduler.changed:
            self.interrupts += 1
            self.device.scheduler.changed.notify_all()

    def close(self) -> None:
        """The last descriptor is gone: waiters leave, queued jobs are dropped; what runs ends first."""
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
        """One of its jobs has ended."""
        self.jobs.discard(job)
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
        """A handle for a buffer.

        Raises
        ------
        KernelError
            ENOMEM if the file has too many; EBADF if it has been closed meanwhile.
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
