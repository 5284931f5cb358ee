"""The simulated machine: its device nodes, its files, its processes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from errno import EINVAL, ENXIO

from sw.driver.device import Device
from sw.driver.kernel import sysfs
from sw.driver.kernel.clock import Clock
from sw.driver.kernel.errors import KernelError
from sw.driver.kernel.files import DrmDevice, File
from sw.driver.kernel.interface import Credentials
from sw.driver.kernel.log import Log
from sw.driver.kernel.memory import PAGE, Ram
from sw.driver.kernel.rknpu import Rknpu
from sw.driver.kernel.rocket import Rocket
from sw.driver.kernel.scheduler import Scheduler

DRM_MAJOR, ACCEL_MAJOR = 226, 261
CARD, RENDER, ACCEL = "/dev/dri/card1", "/dev/dri/renderD129", "/dev/accel/accel0"
O_DIRECTORY = 0o200000
RAM_BYTES = 8 << 30


@dataclass(frozen=True)
class Node:
    """A character device of the machine: permissions as `stat` shows them."""

    path: str
    major: int
    minor: int
    mode: int = 0o666


class Kernel:
    """One RK3588 with its NPU drivers; every method may be called by any thread.

    Parameters
    ----------
    device
        an engine or the golden model.  From now on it belongs to the kernel, which runs it in a thread of its
        own; its memory must be able to map files (`sw.driver.device.SharedMemory`).
    drivers
        which of "rknpu" and "rocket" have their nodes.
    log
        the kernel's log; a new one by default.
    clock_hz
        the NPU's clock: what a second of device time means.
    guard_pages
        unmapped pages next to each buffer (0 gives the addresses of a real board).
    sram
        bytes of on-chip memory of the vendor's driver.
    ram
        bytes that all buffers together may take.
    reset_all
        whether a soft reset of the vendor's driver fails the jobs of all processes, as on the board, or only
        those of the process whose job caused it or that asked for it.
    isolate
        reset a core when its next job is another client's, as if the power had been off in between; otherwise
        registers and group pointers stay as the last client left them, as on a board within its `delayms`.
    """

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
    ) -> None:
        drivers = tuple(drivers)
        if not drivers or not set(drivers) <= {"rknpu", "rocket"}:
            raise ValueError(f"drivers must be of rknpu and rocket, not {', '.join(drivers) or 'none'}")
        self.log = Log() if log is None else log
        self.scheduler = Scheduler(device, Clock(clock_hz), self.log, isolate=isolate)
        self.log.clock = lambda: self.scheduler.time / 1e9
        self._nodes: dict[str, tuple[Node, str, DrmDevice]] = {}
        memory, guard = Ram(ram), guard_pages * PAGE
        self.rknpu: Rknpu | None = None
        self.rocket: Rocket | None = None
        if "rknpu" in drivers:
            self.rknpu = Rknpu(self.scheduler, self.log, memory, sram=sram, guard=guard, reset_all=reset_all)
            self._add(Node(CARD, DRM_MAJOR, 1), "card", self.rknpu)
            self._add(Node(RENDER, DRM_MAJOR, 129), "render", self.rknpu)
            self.log.info("[drm] Initialized rknpu 0.9.8 20240828 for fdab0000.npu on minor 1")
        if "rocket" in drivers:
            self.rocket = Rocket(self.scheduler, self.log, memory, guard=guard)
            self._add(Node(ACCEL, ACCEL_MAJOR, 0), "accel", self.rocket)
            self.log.info("[drm] Initialized rocket 0.0.0 for rknn on minor 0")

    def _add(self, node: Node, kind: str, device: DrmDevice) -> None:
        self._nodes[node.path] = node, kind, device

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every file and stop the device's thread; the device itself stays open."""
        for _, _, device in self._nodes.values():
            for file in list(device.files):
                file.close()
        self.scheduler.close()

    def nodes(self) -> list[Node]:
        """The device nodes."""
        return [node for node, _, _ in self._nodes.values()]

    def files(self) -> dict[str, sysfs.TextFile]:
        """Every other file of the machine that programs look at, by absolute path."""
        files = sysfs.board_files()
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
        return {node.path.removeprefix("/dev/"): (node.major, node.minor) for node in self.nodes()}

    def _by_name(self) -> dict[str, DrmDevice]:
        return {path.removeprefix("/dev/"): device for path, (_, _, device) in self._nodes.items()}

    def open(self, path: str, flags: int, credentials: Credentials) -> File:
        """Open a device node.

        Raises
        ------
        KernelError
            ENXIO for a path that is no node of this machine, EINVAL for flags that make no sense.
        """
        if path not in self._nodes:
            raise KernelError(ENXIO, f"{path} is no device of this machine")
        if flags & O_DIRECTORY:
            raise KernelError(EINVAL, f"{path} is no directory")
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
