"""Ioctls of the vendor's driver `rknpu` 0.9.8, except SUBMIT (`rknpu_jobs`)."""

from __future__ import annotations

from errno import EINVAL

from rkcosim.driver.kernel import structs as s
from rkcosim.driver.kernel.fences import DmaBuf
from rkcosim.driver.kernel.files import Command, File, IoctlCall
from rkcosim.driver.kernel.interface import KernelError
from rkcosim.driver.kernel.log import Log
from rkcosim.driver.kernel.memory import PAGE, GemObject, Ram, RangeSpace, round_up
from rkcosim.driver.kernel.rknpu_jobs import IOVA_HIGH, IOVA_LOW, RknpuCore, submit
from rkcosim.driver.kernel.scheduler import Scheduler
from rkcosim.spec.regs import registers

DOMAINS = 16
DOMAIN_WAIT = 6_000_000_000
"""Nanoseconds for which a domain switch waits for the jobs of another domain."""

HW_VERSION = registers()["PC"]["VERSION"].reset + (registers()["PC"]["VERSION_NUM"].reset & 0xFFFF)
"""Hardware version that both drivers compute from a core's registers and log."""

ACTIONS = (
    "GET_HW_VERSION GET_DRV_VERSION GET_FREQ SET_FREQ GET_VOLT SET_VOLT ACT_RESET "
    "GET_BW_PRIORITY SET_BW_PRIORITY GET_BW_EXPECT SET_BW_EXPECT GET_BW_TW SET_BW_TW "
    "ACT_CLR_TOTAL_RW_AMOUNT GET_DT_WR_AMOUNT GET_DT_RD_AMOUNT GET_WT_RD_AMOUNT GET_TOTAL_RW_AMOUNT "
    "GET_IOMMU_EN SET_PROC_NICE POWER_ON POWER_OFF GET_TOTAL_SRAM_SIZE GET_FREE_SRAM_SIZE "
    "GET_IOMMU_DOMAIN_ID SET_IOMMU_DOMAIN_ID"
).split()
"""Names of the action codes, from 0 on."""


class Rknpu(RknpuCore):
    """The driver with its ioctls.

    Parameters
    ----------
    scheduler, log, ram
        Those of the machine.
    sram
        Bytes of on-chip memory for the NPU; 0 as on boards whose device tree assigns none.
    guard
        Bytes kept unmapped below each buffer.
    reset_all
        A soft reset stops the jobs of all processes, as on the hardware; otherwise only those of the
        process that caused it.
    """

    dumb_buffers = True

    def __init__(
        self,
        scheduler: Scheduler,
        log: Log,
        ram: Ram,
        *,
        sram: int = 0,
        guard: int = PAGE,
        reset_all: bool = False,
    ) -> None:
        spaces = (RangeSpace(IOVA_LOW, IOVA_HIGH, top_down=True, guard=guard) for _ in range(DOMAINS))
        super().__init__(scheduler, log, ram, spaces, reset_all=reset_all)
        self.sram = self.sram_free = sram
        both = s.IOC_READ | s.IOC_WRITE
        self.commands |= {
            0x40: Command("ACTION", s.Action, both, self._action),
            0x41: Command("SUBMIT", s.RknpuSubmit, both, lambda *args: submit(self, *args)),
            0x42: Command("MEM_CREATE", s.MemCreate, both, self._mem_create),
            0x43: Command("MEM_MAP", s.MemMap, both, self._mem_map),
            0x44: Command("MEM_DESTROY", s.MemDestroy, both, self._mem_destroy),
            0x45: Command("MEM_SYNC", s.MemSync, both, self._mem_sync),
        }

    # Buffers

    def create_dumb(self, size: int) -> GemObject:
        """A page-list, write-combined buffer of domain 0."""
        return self.create(size, s.MEM_NON_CONTIGUOUS | s.MEM_WRITE_COMBINE, 0)

    def adopt(self, other: DmaBuf) -> GemObject:
        """Pages of another driver, mapped in the current domain."""
        return self.place(other.item.backing.hold(), s.MEM_NON_CONTIGUOUS, self.domain, imported=True)

    # Domains

    def switch_domain(self, file: File, domain: int) -> None:
        """Make a domain current; called without the lock.

        Raises
        ------
        KernelError
            EINVAL if there is no such domain, or if jobs of another one run for 6 s of device time.
        """
        if not 0 <= domain < DOMAINS:
            self.say(f"invalid iommu domain id: {domain}")
            raise KernelError(EINVAL, f"no IOMMU domain {domain}")

        def idle() -> bool:
            target = self.domains[domain]
            return all(job.domain is target for job in self.running())

        with self.lock:
            if domain == self.domain:
                return
            if not self.scheduler.wait_for(file, idle, DOMAIN_WAIT):
                self.say(f"failed to switch iommu domain from {self.domain} to {domain}, jobs are running")
                raise KernelError(EINVAL, f"IOMMU domain {self.domain} is busy")
            self.set_domain(domain)

    # Handlers

    def _action(self, file: File, args: s.Action, call: IoctlCall) -> int:
        code = args.flags
        if code >= len(ACTIONS):
            raise KernelError(EINVAL, f"no action {code}")
        call.passed = True
        name = ACTIONS[code]
        clock, major, minor, patch = self.scheduler.clock, *self.version
        with self.lock:
            values = {
                "GET_HW_VERSION": HW_VERSION,
                "GET_DRV_VERSION": major * 10000 + minor * 100 + patch,
                "GET_FREQ": clock.hz,
                "GET_VOLT": clock.microvolts,
                "GET_IOMMU_EN": 1,
                "GET_TOTAL_SRAM_SIZE": self.sram,
                "GET_FREE_SRAM_SIZE": self.sram_free,
                "GET_IOMMU_DOMAIN_ID": self.domain,
            }
        if name in values:
            args.value = values[name]
        elif name == "ACT_RESET":
            self.scheduler.call(lambda: self.soft_reset(pid=file.credentials.pid))
        elif name.endswith("RW_AMOUNT") or name.startswith(("GET_DT_", "GET_WT_")):
            self.say(f"{name.lower()} is not supported on this device!", "warn")
        elif name == "SET_PROC_NICE":
            file.nice = min(19, max(-20, args.value - ((args.value & 0x8000_0000) << 1)))
        elif name == "SET_IOMMU_DOMAIN_ID":
            self.switch_domain(file, args.value)
        else:
            raise KernelError(EINVAL, f"{name} is not supported on this device")
        return 0

    def _mem_create(self, file: File, args: s.MemCreate, call: IoctlCall) -> int:
        self.switch_domain(file, args.iommu_domain_id)
        with self.lock:
            item = file.handles.get(args.handle) if args.handle else None
            if item is None:
                if not args.size:
                    raise KernelError(EINVAL, "a buffer of 0 bytes")
                call.passed = True
                sram = self._sram_for(args)
                item = self.create(args.size, args.flags, args.iommu_domain_id, sram).hold()
                try:
                    args.handle = file.new_handle(item)
                finally:
                    item.drop()
            call.passed = True
            args.size, args.sram_size = item.size, item.sram_size
            args.obj_addr, args.dma_addr = item.address, item.iova
        return 0

    def _sram_for(self, args: s.MemCreate) -> int:
        """Bytes of SRAM for a new buffer."""
        if not args.flags & s.MEM_TRY_ALLOC_SRAM:
            return 0
        wanted = min(args.sram_size or args.size, args.size)
        return min(round_up(wanted), self.sram_free // PAGE * PAGE)

    def _mem_map(self, file: File, args: s.MemMap, call: IoctlCall) -> int:
        with self.lock:
            item = self.find(file, args.handle)
            call.passed = True
            args.offset = self.mmap_offset(item)
        return 0

    def _mem_destroy(self, file: File, args: s.MemDestroy, call: IoctlCall) -> int:
        with self.lock:
            item = self.find(file, args.handle, EINVAL)
            call.passed = True
            domain = self.domains.index(item.domain)
        self.switch_domain(file, domain)
        with self.lock:
            if not file.handles.remove(args.handle):
                raise KernelError(EINVAL, f"no handle {args.handle}")
        return 0

    def _mem_sync(self, file: File, args: s.MemSync, call: IoctlCall) -> int:
        if not args.obj_addr:
            raise KernelError(EINVAL, "obj_addr is 0")
        call.passed = True
        with self.lock:
            item = self.object_at(file, args.obj_addr)
            if not item.flags & s.MEM_CACHEABLE:
                raise KernelError(EINVAL, "the buffer is not cacheable")
            domain = self.domains.index(item.domain)
        self.switch_domain(file, domain)  # pages are shared, so there is nothing to clean or to invalidate
        return 0
