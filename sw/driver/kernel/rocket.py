"""The mainline driver `rocket`: device and buffers (jobs: `rocket_jobs`)."""

from __future__ import annotations

import time
from errno import EBUSY, EINVAL, ENOENT, ETIMEDOUT

from sw.driver.kernel import structs as s
from sw.driver.kernel.drm import GenericDrm
from sw.driver.kernel.errors import KernelError
from sw.driver.kernel.files import Call, Command, File
from sw.driver.kernel.log import Log
from sw.driver.kernel.memory import PAGE, Backing, Domain, GemObject, Ram, RangeSpace, round_up
from sw.driver.kernel.rocket_jobs import submit
from sw.driver.kernel.scheduler import Scheduler

IOVA_END = 1 << 32


class Rocket(GenericDrm):
    """The driver's state.

    Parameters
    ----------
    scheduler, log, ram
        the machine's.
    guard
        bytes kept unmapped above each buffer.
    """

    name, date, description = "rocket", "0", "rocket DRM"

    def __init__(self, scheduler: Scheduler, log: Log, ram: Ram, *, guard: int = PAGE) -> None:
        super().__init__(scheduler, log)
        self.ram, self.guard = ram, guard
        self._files = 0
        both, write = s.IOC_READ | s.IOC_WRITE, s.IOC_WRITE
        self.commands |= {
            0x40: Command("CREATE_BO", s.CreateBo, both, self._create_bo),
            0x41: Command("SUBMIT", s.RocketSubmit, write, lambda *args: submit(self, *args)),
            0x42: Command("PREP_BO", s.PrepBo, write, self._prep_bo),
            0x43: Command("FINI_BO", s.FiniBo, write, self._fini_bo),
        }

    def opened(self, file: File) -> None:
        """Every file has an address space of its own, filled from 0 up."""
        self._files += 1
        file.data = Domain(f"rocket file {self._files}", RangeSpace(0, IOVA_END, guard=self.guard))

    def _create_bo(self, file: File, args: s.CreateBo, call: Call) -> int:
        if not args.size:
            raise KernelError(EINVAL, "a buffer of 0 bytes")
        call.passed = True
        with self.lock:
            backing = Backing(self.ram, round_up(args.size), "rocket")
            try:
                iova = file.data.map(backing)
            except KernelError:
                backing.drop()
                raise
            item = GemObject(backing, file.data, iova, on_release=self.released).hold()
            try:
                args.handle = file.new_handle(item)
                args.dma_address, args.offset = iova, self.offset_of(item)
            finally:
                item.drop()
        return 0

    def _prep_bo(self, file: File, args: s.PrepBo, call: Call) -> int:
        # The deadline is a time of the program's clock; what is left of it is spent as device time.
        left = args.timeout_ns - time.monotonic_ns()
        with self.lock:
            item = self._checked(file, args, call).hold()
            try:
                if not item.writers:
                    return 0
                if args.timeout_ns <= 0 or left <= 0:
                    raise KernelError(EBUSY, "the buffer is being written")
                if not self.scheduler.wait_for(file, lambda: not item.writers, left):
                    raise KernelError(ETIMEDOUT, "the buffer is still being written")
            finally:
                item.drop()
        return 0

    def _fini_bo(self, file: File, args: s.FiniBo, call: Call) -> int:
        self._checked(file, args, call)
        return 0

    def _checked(self, file: File, args: s.PrepBo | s.FiniBo, call: Call) -> GemObject:
        if args.reserved:
            raise KernelError(EINVAL, "reserved is not 0")
        call.passed = True
        with self.lock:
            return self.find(file, args.handle, ENOENT)
