"""The simulated machine: its device nodes, its files, its processes."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from errno import EINVAL, ENXIO
from typing import TYPE_CHECKING

from rkcosim.driver.device import Device
from rkcosim.driver.kernel import sysfs
from rkcosim.driver.kernel.boards import Board, board_named
from rkcosim.driver.kernel.clock import Clock
from rkcosim.driver.kernel.files import DrmDevice, File
from rkcosim.driver.kernel.heaps import FOLDER, MAJOR, DmaHeaps, HeapFile
from rkcosim.driver.kernel.interface import Credentials, KernelError
from rkcosim.driver.kernel.log import Log
from rkcosim.driver.kernel.memory import PAGE, Ram
from rkcosim.driver.kernel.rknpu import Rknpu
from rkcosim.driver.kernel.rknpu_jobs import CLEARS, KEEPS, SOFT_RESETS
from rkcosim.driver.kernel.scheduler import Scheduler

if TYPE_CHECKING:
    from rkcosim.driver.kernel.rocket import Rocket

DRM_MAJOR, ACCEL_MAJOR = 226, 261
CARD, RENDER, ACCEL = "/dev/dri/card1", "/dev/dri/renderD129", "/dev/accel/accel0"
O_DIRECTORY = 0o200000
RAM_BYTES = 8 << 30


@dataclass(frozen=True)
class DeviceNode:
    """A character device of the machine, with the permissions that `stat` shows."""

    path: str
    major: int
    minor: int
    mode: int = 0o666


class Kernel:
    """One RK3588 with its NPU drivers; any thread may call every method.

    Parameters
    ----------
    device
        An engine or the golden model.  From now on it belongs to the kernel, which runs it in a separate
        thread; its memory must be able to map files (`rkcosim.driver.device.SharedMemory`).
    drivers
        Which of "rknpu" and "rocket" have device nodes.
    log
        Log of the kernel; None: a new one.
    clock_hz
        Clock frequency of the NPU, which defines a second of device time.
    guard_pages
        Number of unmapped pages next to each buffer (0 gives the addresses of a real board).
    sram
        Bytes of on-chip memory of the vendor's driver.
    ram
        Maximum bytes of all buffers together.
    reset_all
        Whether a soft reset of the vendor's driver fails the jobs of all processes, as on the board, or only
        those of the process whose job caused it or that requested it.
    isolate
        Reset a core when its next job belongs to another client, as if the power had been off in between.
        Otherwise registers and group pointers keep their values, as on a board within its `delayms`.
    rocket_interface
        Version of the Rocket uapi: a name of `rkcosim.driver.kernel.rocket_interface.INTERFACES`.
    soft_reset
        What a soft reset of the vendor's driver does to cores without a job: "clears" gives their registers
        the reset values, "keeps" leaves them.
    board
        Name of the board that the device tree shows (`rkcosim.driver.kernel.boards.BOARDS`); None for the
        default.

    Members
    -------
    hidden : folders whose real entries programs do not see.

    Raises
    ------
    ValueError
        For drivers, an interface, a soft reset or a board that do not exist.
    """

    hidden = ("/dev/dri", "/dev/accel", FOLDER)

    def __init__(
        self,
        device: Device,
        *,
        drivers: Iterable[str] = ("rknpu", "rocket"),
        log: Log | None = None,
        clock_hz: int = 1_000_000_000,
        guard_pages: int = 1,
        sram: int = 0,
        ram: int = RAM_BYTES,
        reset_all: bool = False,
        isolate: bool = True,
        rocket_interface: str | None = None,
        soft_reset: str = CLEARS,
        board: str | None = None,
    ) -> None:
        drivers = tuple(drivers)
        self.board = board_named(board)
        if not drivers or not set(drivers) <= {"rknpu", "rocket"}:
            raise ValueError(f"drivers must be of rknpu and rocket, not {', '.join(drivers) or 'none'}")
        if soft_reset not in SOFT_RESETS:
            raise ValueError(f"a soft reset must be one of {', '.join(SOFT_RESETS)}, not {soft_reset}")
        self.log = Log() if log is None else log
        self.scheduler = Scheduler(device, Clock(clock_hz), self.log, isolate=isolate)
        self.log.clock = lambda: self.scheduler.time / 1e9
        self.lock = self.scheduler.lock
        self._nodes: dict[str, tuple[DeviceNode, str, DrmDevice]] = {}
        memory, guard = Ram(ram), guard_pages * PAGE
        self.heaps = DmaHeaps(memory, self.log, self.lock)
        self.rknpu: Rknpu | None = None
        self.rocket: Rocket | None = None
        if "rknpu" in drivers:
            self.rknpu = Rknpu(self.scheduler, self.log, memory, sram=sram, guard=guard, reset_all=reset_all)
            self.rknpu.keeps_registers = soft_reset == KEEPS
            self._add(DeviceNode(CARD, DRM_MAJOR, 1), "card", self.rknpu)
            self._add(DeviceNode(RENDER, DRM_MAJOR, 129), "render", self.rknpu)
            self.log.info("[drm] Initialized rknpu 0.9.8 20240828 for fdab0000.npu on minor 1")
        if "rocket" in drivers:
            from rkcosim.driver.kernel.rocket import Rocket
            from rkcosim.driver.kernel.rocket_interface import DEFAULT, interface

            told = interface(rocket_interface or DEFAULT)
            self.rocket = Rocket(self.scheduler, self.log, memory, guard=guard, interface=told)
            self._add(DeviceNode(ACCEL, ACCEL_MAJOR, 0), "accel", self.rocket)
            version = ".".join(map(str, told.version))
            self.log.info(f"[drm] Initialized rocket {version} for rknn on minor 0")

    def _add(self, node: DeviceNode, kind: str, device: DrmDevice) -> None:
        self._nodes[node.path] = node, kind, device

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every file and stop the device's thread; the device itself remains open."""
        for _, _, device in self._nodes.values():
            for file in list(device.files):
                file.close()
        self.scheduler.close()

    def nodes(self) -> list[DeviceNode]:
        """The device nodes."""
        return [*(node for node, _, _ in self._nodes.values()), *_heap_nodes(self.heaps)]

    def files(self) -> dict[str, sysfs.TextFile]:
        """Every other file of the machine that programs read, by absolute path."""
        files = sysfs.board_files(self.board)
        if self.rknpu is not None:
            files |= sysfs.rknpu_files(self.rknpu)
        return files | sysfs.node_files(
            self._minors(),
            {
                name: "DRIVER=RKNPU\nOF_COMPATIBLE_0=rockchip,rk3588-rknpu\nOF_COMPATIBLE_N=1\n"
                if device is self.rknpu
                else "DRIVER=rocket\nMODALIAS=platform:rknn\n"
                for name, device in self._by_name().items()
            },
        )

    def links(self) -> dict[str, str]:
        """Symbolic links of the machine: path -> target."""
        drivers = {
            name: "RKNPU" if device is self.rknpu else "rocket" for name, device in self._by_name().items()
        }
        return sysfs.node_links(self._minors(), drivers)

    def _minors(self) -> dict[str, tuple[int, int]]:
        nodes = [node for node, _, _ in self._nodes.values()]
        return {node.path.removeprefix("/dev/"): (node.major, node.minor) for node in nodes}

    def _by_name(self) -> dict[str, DrmDevice]:
        return {path.removeprefix("/dev/"): device for path, (_, _, device) in self._nodes.items()}

    def open(self, path: str, flags: int, credentials: Credentials) -> File | HeapFile:
        """Open a device node.

        Raises
        ------
        KernelError
            ENXIO for a path that is no node of this machine, EINVAL for invalid flags.
        """
        if path not in self._nodes and path not in self.heaps.paths:
            raise KernelError(ENXIO, f"{path} is not a device of this machine")
        if flags & O_DIRECTORY:
            raise KernelError(EINVAL, f"{path} is not a directory")
        if path in self.heaps.paths:
            return self.heaps.open(path, credentials)
        _, kind, device = self._nodes[path]
        with device.lock:
            return File(device, kind, path, credentials)

    def process_died(self, pid: int) -> None:
        """Close every file that a process has opened."""
        for device in {id(device): device for _, _, device in self._nodes.values()}.values():
            with device.lock:
                files = [file for file in device.files if file.credentials.pid == pid]
            for file in files:
                file.close()


def _heap_nodes(heaps: DmaHeaps) -> list[DeviceNode]:
    return [DeviceNode(path, MAJOR, minor) for minor, path in enumerate(heaps.paths)]


class BoardView:
    """The files and memory heaps of a board without the NPU's nodes, for programs that reach it by a library.

    It has the members of `Kernel` that a server needs.

    Parameters
    ----------
    board
        The board.
    files
        Further files by absolute path, for example those of `rkcosim.driver.Driver.files`.
    log
        Log of the kernel; None: a new one.
    """

    hidden = (FOLDER,)

    def __init__(self, board: Board, files: Mapping[str, sysfs.TextFile], log: Log | None = None) -> None:
        self.board, self.log, self.lock = board, Log() if log is None else log, threading.RLock()
        self.heaps = DmaHeaps(Ram(RAM_BYTES), self.log, self.lock)
        self._files = sysfs.board_files(board) | dict(files)

    def nodes(self) -> list[DeviceNode]:
        """The device nodes: the heaps."""
        return _heap_nodes(self.heaps)

    def files(self) -> dict[str, sysfs.TextFile]:
        """The files, by absolute path."""
        return dict(self._files)

    def links(self) -> dict[str, str]:
        """Symbolic links: none."""
        return {}

    def open(self, path: str, flags: int, credentials: Credentials) -> HeapFile:
        """Open a heap; KernelError as of `Kernel.open`."""
        if path not in self.heaps.paths:
            raise KernelError(ENXIO, f"{path} is not a device of this machine")
        if flags & O_DIRECTORY:
            raise KernelError(EINVAL, f"{path} is not a directory")
        return self.heaps.open(path, credentials)
