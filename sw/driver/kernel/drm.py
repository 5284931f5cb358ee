"""Ioctls that the DRM core provides for every driver: version, handles, names, PRIME, dumb buffers."""

from __future__ import annotations

from errno import EBADF, EINVAL, ENOENT, ENOSYS, EOPNOTSUPP

from rkcosim.driver.kernel import structs as s
from rkcosim.driver.kernel.fences import DmaBuf, install
from rkcosim.driver.kernel.files import Command, DrmDevice, File, IoctlCall
from rkcosim.driver.kernel.interface import KernelError
from rkcosim.driver.kernel.log import Log
from rkcosim.driver.kernel.memory import GemObject, round_up
from rkcosim.driver.kernel.scheduler import Scheduler

O_CLOEXEC, O_RDWR = 0x80000, 0x2
PRIME_BOTH_WAYS = 3
MAX_DUMB = 0xFFFFFFFF


class GenericDrm(DrmDevice):
    """A driver with GEM buffers; drivers add their own commands to `commands`."""

    dumb_buffers = False

    def __init__(self, scheduler: Scheduler, log: Log) -> None:
        super().__init__(scheduler, log)
        both, read, write = s.IOC_READ | s.IOC_WRITE, s.IOC_READ, s.IOC_WRITE
        self.commands |= {
            0x00: Command("VERSION", s.Version, both, self._version),
            0x01: Command("GET_UNIQUE", s.Unique, both, self._unique, render=False),
            0x02: Command("GET_MAGIC", s.Auth, read, self._get_magic, render=False),
            0x09: Command("GEM_CLOSE", s.GemClose, write, self._gem_close),
            0x0A: Command("GEM_FLINK", s.GemFlink, both, self._flink, render=False, auth=True),
            0x0B: Command("GEM_OPEN", s.GemOpen, both, self._open, render=False, auth=True),
            0x0C: Command("GET_CAP", s.GetCap, both, self._get_cap),
            0x11: Command("AUTH_MAGIC", s.Auth, write, self._auth_magic, render=False, master=True),
            0x2D: Command("PRIME_HANDLE_TO_FD", s.PrimeHandle, both, self._export),
            0x2E: Command("PRIME_FD_TO_HANDLE", s.PrimeHandle, both, self._import),
        }
        self.commands |= {
            0xB2: Command("CREATE_DUMB", s.CreateDumb, both, self._create_dumb, render=False),
            0xB3: Command("MAP_DUMB", s.MapDumb, both, self._map_dumb, render=False),
            0xB4: Command("DESTROY_DUMB", s.DestroyDumb, both, self._destroy_dumb, render=False),
        }

    # Methods that drivers override

    def create_dumb(self, size: int) -> GemObject:
        """Create a buffer for CREATE_DUMB."""
        raise NotImplementedError

    def adopt(self, other: DmaBuf) -> GemObject:
        """Import the pages of another driver's buffer; drivers without support reject it."""
        raise KernelError(EINVAL, "this driver imports no foreign dma-buf")

    def mmap_offset(self, item: GemObject) -> int:
        """The fake mmap offset; rejected for imported pages."""
        if item.imported:
            raise KernelError(EINVAL, "an imported buffer cannot be mapped here")
        return self.offset_of(item)

    def _check_dumb(self) -> None:
        if not self.dumb_buffers:
            raise KernelError(ENOSYS, f"{self.name} has no dumb buffers")

    def find(self, file: File, handle: int, errno: int = ENOENT) -> GemObject:
        """The buffer of a handle; call with the lock held."""
        item = file.handles.get(handle)
        if item is None:
            raise KernelError(errno, f"no handle {handle}")
        return item

    # Handlers

    def _version(self, file: File, args: s.Version, call: IoctlCall) -> int:
        call.passed = True
        args.version_major, args.version_minor, args.version_patchlevel = self.version
        for field, text in (("name", self.name), ("date", self.date), ("desc", self.description)):
            data, room = text.encode(), getattr(args, f"{field}_len")
            setattr(args, f"{field}_len", len(data))
            if getattr(args, field) and (part := data[:room]):
                call.user.write(getattr(args, field), part)
        return 0

    def _unique(self, file: File, args: s.Unique, call: IoctlCall) -> int:
        args.unique_len = 0  # only set by a master with SET_VERSION
        return 0

    def _get_magic(self, file: File, args: s.Auth, call: IoctlCall) -> int:
        with self.lock:
            if not file.magic:
                self.magics += 1
                file.magic = self.magics
            args.magic = file.magic
        return 0

    def _auth_magic(self, file: File, args: s.Auth, call: IoctlCall) -> int:
        with self.lock:
            for other in self.files:
                if args.magic and other.magic == args.magic:
                    other.authenticated, other.magic = True, 0
                    call.passed = True
                    return 0
        raise KernelError(EINVAL, f"no client has the magic {args.magic}")

    def _gem_close(self, file: File, args: s.GemClose, call: IoctlCall) -> int:
        with self.lock:
            if not file.handles.remove(args.handle):
                raise KernelError(EINVAL, f"no handle {args.handle}")
            call.passed = True
        return 0

    def _flink(self, file: File, args: s.GemFlink, call: IoctlCall) -> int:
        with self.lock:
            item = self.find(file, args.handle)
            call.passed = True
            if not item.flink:
                item.flink = next(n for n in range(1, len(self.names) + 2) if n not in self.names)
                self.names[item.flink] = item
            args.name = item.flink
        return 0

    def _open(self, file: File, args: s.GemOpen, call: IoctlCall) -> int:
        with self.lock:
            item = self.names.get(args.name)
            if item is None:
                raise KernelError(ENOENT, f"no buffer is named {args.name}")
            call.passed = True
            args.handle, args.size = file.new_handle(item), item.size
        return 0

    def _get_cap(self, file: File, args: s.GetCap, call: IoctlCall) -> int:
        values = {
            s.CAP_PRIME: PRIME_BOTH_WAYS,
            s.CAP_TIMESTAMP_MONOTONIC: 1,
            s.CAP_SYNCOBJ: 0,
            s.CAP_SYNCOBJ_TIMELINE: 0,
        }
        if args.capability not in values:
            raise KernelError(EOPNOTSUPP, f"capability {args.capability:#x} belongs to displays")
        call.passed = True
        args.value = values[args.capability]
        return 0

    def _export(self, file: File, args: s.PrimeHandle, call: IoctlCall) -> int:
        if args.flags & ~(O_CLOEXEC | O_RDWR):
            raise KernelError(EINVAL, f"flags {args.flags:#x}")
        call.passed = True
        with self.lock:
            item = self.find(file, args.handle)
            buffer = self.exported.setdefault(id(item), DmaBuf(item, self, self.lock, args.flags & O_RDWR))
            item.hold()  # held until the descriptor holds it, because another thread may close the handle
        try:
            args.fd = install(call.fds, buffer, bool(args.flags & O_CLOEXEC))
        finally:
            with self.lock:
                item.drop()
        return 0

    def _import(self, file: File, args: s.PrimeHandle, call: IoctlCall) -> int:
        buffer = call.fds.lookup(args.fd)
        if not isinstance(buffer, DmaBuf):
            raise KernelError(EINVAL, f"descriptor {args.fd} is not a dma-buf")
        call.passed = True
        with self.lock:
            if not buffer.item.alive:
                raise KernelError(EBADF, f"descriptor {args.fd} is being closed")
            own = buffer.item
            item = (
                own if buffer.driver is self and isinstance(own, GemObject) else self._adopted(file, buffer)
            )
            item.hold()
            try:
                args.handle = file.handles.of(item) or file.new_handle(item)
            finally:
                item.drop()
        return 0

    def _adopted(self, file: File, buffer: DmaBuf) -> GemObject:
        """The import of a foreign buffer; the existing one if this file has already imported it."""
        for item in file.handles.items():
            if item.imported and item.backing is buffer.item.backing:
                return item
        return self.adopt(buffer)

    def _create_dumb(self, file: File, args: s.CreateDumb, call: IoctlCall) -> int:
        self._check_dumb()
        if not args.width or not args.height or not args.bpp:
            raise KernelError(EINVAL, "width, height and bpp must not be 0")
        pitch = args.width * (-(-args.bpp // 8))
        if pitch > MAX_DUMB or round_up(pitch * args.height) > MAX_DUMB or args.flags:
            raise KernelError(EINVAL, f"a buffer of {args.width} x {args.height} x {args.bpp} bits")
        call.passed = True
        with self.lock:
            item = self.create_dumb(pitch * args.height).hold()
            try:
                args.handle = file.new_handle(item)
            finally:
                item.drop()
            args.pitch, args.size = pitch, item.size
        return 0

    def _map_dumb(self, file: File, args: s.MapDumb, call: IoctlCall) -> int:
        self._check_dumb()
        with self.lock:
            item = self.find(file, args.handle)
            call.passed = True
            args.offset = self.mmap_offset(item)
        return 0

    def _destroy_dumb(self, file: File, args: s.DestroyDumb, call: IoctlCall) -> int:
        self._check_dumb()
        with self.lock:
            if not file.handles.remove(args.handle):
                raise KernelError(EINVAL, f"no handle {args.handle}")
            call.passed = True
        return 0
