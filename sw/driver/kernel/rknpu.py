"""The vendor's driver `rknpu` 0.9.8: device, actions and buffers (jobs: `rknpu_jobs`)."""

from __future__ import annotations

from errno import EINVAL, ENOMEM, ENOSPC

from rtl.regs import registers
from sw.driver.kernel import structs as s
from sw.driver.kernel.drm import GenericDrm
from sw.driver.kernel.errors import KernelError
from sw.driver.kernel.fences import DmaBuf
from sw.driver.kernel.files import Call, Command, File
from sw.driver.kernel.log import Log
from sw.driver.kernel.memory import PAGE, Backing, Domain, GemObject, Ram, RangeSpace, round_up
from sw.driver.kernel.rknpu_jobs import RknpuJob
from sw.driver.kernel.rknpu_submit import submit
from sw.driver.kernel.scheduler import Scheduler

DOMAINS = 16
IOVA_LOW, IOVA_HIGH = 0x1000, 0xFFFA_8000
"""The kernel has the top 88 pages for itself on the board that was captured."""

OBJECT_FIRST, OBJECT_STEP = 0xFFFF_FF81_0000_0000, 0x400
"""Kernel addresses of buffers."""

DOMAIN_WAIT = 6_000_000_000
"""Nanoseconds that a domain switch waits for the jobs of another domain."""

HW_VERSION = registers()["PC"]["VERSION"].reset + (registers()["PC"]["VERSION_NUM"].reset & 0xFFFF)
"""What both drivers compute from a core's registers and log."""

RESET_PAUSE = 100_000_000
RESET_LINES = 6

ACTIONS = (
    "GET_HW_VERSION GET_DRV_VERSION GET_FREQ SET_FREQ GET_VOLT SET_VOLT ACT_RESET "
    "GET_BW_PRIORITY SET_BW_PRIORITY GET_BW_EXPECT SET_BW_EXPECT GET_BW_TW SET_BW_TW "
    "ACT_CLR_TOTAL_RW_AMOUNT GET_DT_WR_AMOUNT GET_DT_RD_AMOUNT GET_WT_RD_AMOUNT GET_TOTAL_RW_AMOUNT "
    "GET_IOMMU_EN SET_PROC_NICE POWER_ON POWER_OFF GET_TOTAL_SRAM_SIZE GET_FREE_SRAM_SIZE "
    "GET_IOMMU_DOMAIN_ID SET_IOMMU_DOMAIN_ID"
).split()
"""Names of the action codes, from 0."""


class Rknpu(GenericDrm):
    """The driver's state.

    Parameters
    ----------
    scheduler, log, ram
        the machine's.
    sram
        bytes of on-chip memory given to the NPU; 0 as on boards whose device tree gives it none.
    guard
        bytes kept unmapped below each buffer.
    reset_all
        a soft reset stops the jobs of all processes, as the hardware's does; otherwise only those of the
        process that caused it.
    """

    name, date, description, version = "rknpu", "20240828", "RKNPU driver", (0, 9, 8)
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
        super().__init__(scheduler, log)
        self.ram, self.sram, self.sram_free, self.reset_all = ram, sram, sram, reset_all
        self.domains = [
            Domain(f"rknpu {number}", RangeSpace(IOVA_LOW, IOVA_HIGH, top_down=True, guard=guard))
            for number in range(DOMAINS)
        ]
        self.domain = 0
        self.objects: dict[int, GemObject] = {}
        self.bypass_reset = False
        self.resetting = False
        self.delay_ms = 3000
        self.powered = True
        self._next_address = OBJECT_FIRST
        both = s.IOC_READ | s.IOC_WRITE
        self.commands |= {
            0x40: Command("ACTION", s.Action, both, self._action),
            0x41: Command("SUBMIT", s.RknpuSubmit, both, lambda *args: submit(self, *args)),
            0x42: Command("MEM_CREATE", s.MemCreate, both, self._mem_create),
            0x43: Command("MEM_MAP", s.MemMap, both, self._mem_map),
            0x44: Command("MEM_DESTROY", s.MemDestroy, both, self._mem_destroy),
            0x45: Command("MEM_SYNC", s.MemSync, both, self._mem_sync),
        }

    def say(self, text: str, level: str = "err") -> None:
        """A line of the driver in the kernel's log."""
        self.log.add(level, f"RKNPU: {text}")

    # Buffers

    def create(self, size: int, flags: int, domain: int, sram: int = 0) -> GemObject:
        """A new buffer without references.

        Raises
        ------
        KernelError
            EINVAL for an empty one, ENOMEM if memory or addresses are used up.
        """
        if not size:
            raise KernelError(EINVAL, "a buffer of 0 bytes")
        if size > IOVA_HIGH:
            raise KernelError(ENOMEM, f"a buffer of {size} bytes")
        return self._place(Backing(self.ram, round_up(size), "rknpu"), flags, domain, sram)

    def _place(
        self, backing: Backing, flags: int, domain: int, sram: int = 0, imported: bool = False
    ) -> GemObject:
        align = PAGE if flags & s.MEM_LIMIT_IOVA_ALIGNMENT else 1 << (backing.size - 1).bit_length()
        try:
            iova = self.domains[domain].map(backing, max(PAGE, align))
        except KernelError as error:
            backing.drop()
            raise KernelError(ENOMEM if error.code == ENOSPC else error.code, error.why) from None
        self._next_address += OBJECT_STEP
        item = GemObject(
            backing,
            self.domains[domain],
            iova,
            flags=flags,
            address=self._next_address,
            sram_size=sram,
            imported=imported,
            on_release=self.released,
        )
        self.sram_free -= sram
        self.objects[item.address] = item
        return item

    def released(self, item: GemObject) -> None:
        """A buffer is about to go."""
        super().released(item)
        self.sram_free += item.sram_size
        del self.objects[item.address]

    def create_dumb(self, size: int) -> GemObject:
        """A page-list, write-combined buffer of domain 0."""
        return self.create(size, s.MEM_NON_CONTIGUOUS | s.MEM_WRITE_COMBINE, 0)

    def adopt(self, other: DmaBuf) -> GemObject:
        """Another driver's pages, mapped in the current domain."""
        return self._place(other.item.backing.hold(), s.MEM_NON_CONTIGUOUS, self.domain, imported=True)

    def object_at(self, file: File, address: int) -> GemObject:
        """The buffer with a kernel address, which programs pass as `obj_addr`.

        The real driver follows the address blindly; here it must be that of a buffer which the process has a
        handle of.

        Raises
        ------
        KernelError
            EINVAL.
        """
        item = self.objects.get(address)
        pid = file.credentials.pid
        mine = [other for other in self.files if other is file or other.credentials.pid == pid]
        if item is None or not any(other.handles.of(item) for other in mine):
            self.say(f"invalid obj_addr: {address:#x}")
            raise KernelError(EINVAL, f"obj_addr {address:#x} is no buffer of this process")
        return item

    # Domains

    def switch_domain(self, file: File, domain: int) -> None:
        """Make a domain current; called without the lock.

        Raises
        ------
        KernelError
            EINVAL if there is no such domain, or jobs of another one run for 6 s of device time.
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

    def set_domain(self, domain: int) -> None:
        """A domain becomes current; with the lock held."""
        if domain != self.domain:
            self.say(f"switch iommu domain from {self.domain} to {domain}", "info")
            self.domain = domain

    def running(self) -> list[RknpuJob]:
        """Jobs on the hardware."""
        jobs = {id(job): job for job in self.scheduler.busy.values() if isinstance(job, RknpuJob)}
        return list(jobs.values())

    # Reset

    def soft_reset(self, cause: RknpuJob | None = None, pid: int | None = None) -> None:
        """Reset the cores and fail the jobs on them; in the device's thread, with the lock held.

        Parameters
        ----------
        cause, pid
            the job or the process that it is for: without `reset_all` other processes are not hit.
        """
        if self.bypass_reset or self.resetting:
            return
        self.resetting = True
        scheduler = self.scheduler
        self.say(f"soft reset, num: {RESET_LINES}", "info")
        cores = 0
        for core in range(scheduler.device.cores):
            job = scheduler.busy.get(core)
            if job is None or job is cause:
                cores |= 1 << core
            elif isinstance(job, RknpuJob) and self._hit(job, cause, pid):
                cores |= 1 << core
        scheduler.guard(lambda: scheduler.device.reset(cores), None)
        for job in scheduler.all_jobs():
            if not isinstance(job, RknpuJob) or job is cause or not self._hit(job, cause, pid):
                continue
            if job.state == "running" or job.blocking:
                self.say(f"job abort, flags: {0:#x}, ret: {-EINVAL}, elapsed time: {job.elapsed_us()}us")
                scheduler.end(job, EINVAL)
        if not scheduler.busy:  # the pause of the reset; jobs of others would run through it
            pause = scheduler.clock.cycles(RESET_PAUSE)
            scheduler.guard(lambda: scheduler.device.run_until_irq(0, pause), 0)
            scheduler.stamp()
        self.resetting = False

    def _hit(self, job: RknpuJob, cause: RknpuJob | None, pid: int | None) -> bool:
        """Whether a soft reset stops a job."""
        if self.reset_all or (cause is None and pid is None):
            return True
        return job.file.credentials.pid == (pid if cause is None else cause.file.credentials.pid)

    # Handlers

    def _action(self, file: File, args: s.Action, call: Call) -> int:
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

    def _mem_create(self, file: File, args: s.MemCreate, call: Call) -> int:
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
        """Bytes of SRAM that a new buffer gets."""
        if not args.flags & s.MEM_TRY_ALLOC_SRAM:
            return 0
        wanted = min(args.sram_size or args.size, args.size)
        return min(round_up(wanted), self.sram_free // PAGE * PAGE)

    def _mem_map(self, file: File, args: s.MemMap, call: Call) -> int:
        with self.lock:
            item = self.find(file, args.handle)
            call.passed = True
            args.offset = self.mmap_offset(item)
        return 0

    def _mem_destroy(self, file: File, args: s.MemDestroy, call: Call) -> int:
        with self.lock:
            item = self.find(file, args.handle, EINVAL)
            call.passed = True
            domain = self.domains.index(item.domain)
        self.switch_domain(file, domain)
        with self.lock:
            if not file.handles.remove(args.handle):
                raise KernelError(EINVAL, f"no handle {args.handle}")
        return 0

    def _mem_sync(self, file: File, args: s.MemSync, call: Call) -> int:
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
