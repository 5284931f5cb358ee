"""Buffers and jobs of the vendor's driver: SUBMIT, kicks, interrupts, waits, time-outs, resets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ctypes import sizeof
from errno import ECANCELED, EINVAL, ENOMEM, ENOSPC, ETIMEDOUT
from functools import partial

from rkcosim.driver.core_port import WORD32, CorePort, Kick
from rkcosim.driver.kernel import structs as s
from rkcosim.driver.kernel.drm import GenericDrm
from rkcosim.driver.kernel.fences import Fence, SyncFile, install
from rkcosim.driver.kernel.files import File, IoctlCall
from rkcosim.driver.kernel.interface import KernelError
from rkcosim.driver.kernel.log import Log
from rkcosim.driver.kernel.memory import PAGE, Backing, Domain, GemObject, Ram, RangeSpace, round_up
from rkcosim.driver.kernel.scheduler import Job, Scheduler
from rkcosim.regcmd.job import MAX_TASKS_PER_KICK, Task, fold_interrupts, kicks

IOVA_LOW, IOVA_HIGH = 0x1000, 0xFFFA_8000
"""Limits of IOVAs; on the captured board the kernel reserves the top 88 pages."""

OBJECT_FIRST, OBJECT_STEP = 0xFFFF_FF81_0000_0000, 0x400
"""Kernel addresses of buffers."""

CLEARS, KEEPS = "clears", "keeps"
SOFT_RESETS = (CLEARS, KEEPS)
"""What a soft reset that a program asks for does to the registers of cores without a job.

They take their reset values: a back end that resets before every kernel and leaves most registers unwritten
passes its tests on a board only so [HW 13.43]. Nobody has read them back there (docs/board.md).
"""

RESET_PAUSE = 100_000_000
RESET_LINES = 6
MILLISECOND = 1_000_000
MAX_WAITS = 3
MAX_TIMEOUT_MS = 60_000
"""Maximum simulated wait in ms, so that no job can occupy a core for weeks of device time."""

ORPHAN_MS = 100
"""Minimum lifetime in ms of a job that nothing waits for."""

TASK_BYTES = sizeof(s.RknpuTask)
ALL_CORES_MASK = 7
ALL_CORES_ENTRY = 2
"""First entry of subcore_task for a job on three cores."""

STARTED_MASKS = (1, 2, 4, 3, 7)


class RknpuCore(GenericDrm):
    """The part of the driver below the ioctls: buffers in IOMMU domains, services for jobs, resets.

    Parameters
    ----------
    scheduler, log, ram
        Those of the machine.
    spaces
        Address space of each IOMMU domain.
    shared
        Whether buffers are files that programs map. Otherwise only buffers with a kernel mapping are files,
        and the pages of all others belong to the device's memory.
    reset_all
        Whether a soft reset stops the jobs of all processes.
    """

    name = "rknpu"
    date, description, version = "20240828", "RKNPU driver", (0, 9, 8)

    def __init__(
        self,
        scheduler: Scheduler,
        log: Log,
        ram: Ram,
        spaces: Iterable[RangeSpace],
        *,
        shared: bool = True,
        reset_all: bool = False,
    ) -> None:
        super().__init__(scheduler, log)
        self.ram, self.shared, self.reset_all = ram, shared, reset_all
        self.domains = [Domain(f"rknpu {number}", space) for number, space in enumerate(spaces)]
        self.domain = 0
        self.objects: dict[int, GemObject] = {}
        self.sram = self.sram_free = 0
        self.delay_ms = 3000
        self.powered = True
        self.bypass_reset = False
        self.keeps_registers = False
        """Whether a soft reset that a program asks for leaves the registers of cores without a job."""
        self.resetting = False
        self._next_address = OBJECT_FIRST

    def say(self, text: str, level: str = "err") -> None:
        """Write a line of the driver to the kernel's log."""
        self.log.add(level, f"RKNPU: {text}")

    # Buffers

    def create(self, size: int, flags: int, domain: int, sram: int = 0, at: int | None = None) -> GemObject:
        """Create a buffer without references, at the address `at` or at any free address.

        Raises
        ------
        KernelError
            EINVAL for an empty buffer, ENOMEM if memory or addresses are used up.
        """
        if not size:
            raise KernelError(EINVAL, "a buffer of 0 bytes")
        if size > IOVA_HIGH:
            raise KernelError(ENOMEM, f"a buffer of {size} bytes")
        shared = self.shared or bool(flags & s.MEM_KERNEL_MAPPING)
        return self.place(Backing(self.ram, round_up(size), "rknpu", shared), flags, domain, sram, at=at)

    def place(
        self,
        backing: Backing,
        flags: int,
        domain: int,
        sram: int = 0,
        imported: bool = False,
        at: int | None = None,
    ) -> GemObject:
        """Map pages, which the caller holds for this buffer, in a domain; call with the lock held.

        Raises
        ------
        KernelError
            ENOMEM if there is no room; the pages are released then.
        """
        align = PAGE if flags & s.MEM_LIMIT_IOVA_ALIGNMENT else 1 << (backing.size - 1).bit_length()
        try:
            iova = self.domains[domain].map(backing, max(PAGE, align), at)
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
        """Called before a buffer is destroyed."""
        super().released(item)
        self.sram_free += item.sram_size
        del self.objects[item.address]

    def object_at(self, file: File, address: int) -> GemObject:
        """The buffer with a kernel address, which programs pass as `obj_addr`.

        The real driver uses the address without a check; here it must be that of a buffer for which the
        process has a handle.

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
            raise KernelError(EINVAL, f"obj_addr {address:#x} is not a buffer of this process")
        return item

    def set_domain(self, domain: int) -> None:
        """Make a domain current; with the lock held."""
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
            Job or process that causes the reset: without `reset_all` other processes are not affected.
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
                if cause is not None or not self.keeps_registers:
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
        if not scheduler.busy:  # the pause of the reset, during which the jobs of others continue
            pause = scheduler.clock.cycles(RESET_PAUSE)
            scheduler.guard(lambda: scheduler.device.run_until_irq(0, pause), 0)
            scheduler.stamp()
        self.resetting = False

    def _hit(self, job: RknpuJob, cause: RknpuJob | None, pid: int | None) -> bool:
        """Whether a soft reset stops a job."""
        if self.reset_all or (cause is None and pid is None):
            return True
        return job.file.credentials.pid == (pid if cause is None else cause.file.credentials.pid)


def record_of(task: Task) -> s.RknpuTask:
    """The record of a task, as a task buffer holds it."""
    return s.RknpuTask(
        op_idx=task.op_idx,
        enable_mask=task.enable_mask,
        int_mask=task.int_mask,
        int_clear=task.int_clear,
        regcfg_amount=task.regcfg_amount,
        regcmd_addr=task.regcmd_addr,
    )


class Part:
    """Part of a job on one core: its kicks, and the last status of the core."""

    def __init__(self, first: int, number: int) -> None:
        self.first, self.number = first, number
        self.rest: Iterator[tuple[int, int]] = iter(kicks(first, number))
        self.mask = 0
        self.first_task = self.last_task = -1
        self.status = self.raw = 0


class RknpuJob(Job):
    """A submitted job.

    Parameters
    ----------
    driver, file
        Driver and open file that it belongs to.
    args
        The structure as submitted.
    cores
        The selected cores.
    ranges
        Core -> (first task, number of tasks); checked against the buffer.
    tasks
        The task buffer; None for the address 0.
    after
        Fences that must have signalled before it starts.
    """

    def __init__(
        self,
        driver: RknpuCore,
        file: File,
        args: s.RknpuSubmit,
        cores: list[int],
        ranges: dict[int, tuple[int, int]],
        tasks: GemObject | None,
        fence: Fence,
        after: list[Fence],
    ) -> None:
        super().__init__(file, cores, driver.domains[args.iommu_domain_id], fence)
        self.driver, self.tasks, self.after = driver, tasks, after
        self.flags, self.domain_id, self.base = args.flags, args.iommu_domain_id, args.task_base_addr & WORD32
        self.blocking = not args.flags & s.JOB_NONBLOCK
        self.timeout_ms = args.timeout
        self.bound = min(args.timeout, MAX_TIMEOUT_MS) * MILLISECOND
        """Maximum duration in nanoseconds of device time."""
        self.mask = sum(1 << core for core in cores)
        self.parts = {core: Part(*ranges.get(core, (0, 0))) for core in cores}
        self.on_hardware = False
        self.waits = 0
        self.task_counter = 0
        self.elapse = 0
        self.last_core = cores[0]
        if tasks is not None:
            self.holds.append(tasks.hold())

    @property
    def wait_core(self) -> int:
        """The core whose interrupt and counter the driver uses."""
        return self.cores[0]

    def number_on(self, core: int) -> int:
        """Number of its tasks on a core."""
        return self.parts[core].number if core in self.parts else 0

    def elapsed_us(self) -> int:
        """Time since it was removed from its queue."""
        if self.started_at < 0:
            return 0
        clock = self.driver.scheduler.clock
        return (self.driver.scheduler.time - clock.time(self.started_at)) // 1000

    def queue(self) -> None:
        """Queue the job and start its timer; with the lock held."""
        self.driver.scheduler.submit(self)
        self.fence.queued = True
        self.watch()

    def watch(self) -> None:
        """Start its timer; with the lock held, when it is queued."""
        timeout = self.bound
        if not self.blocking:
            timeout = max(timeout, ORPHAN_MS * MILLISECOND)
            if self.state == "queued":
                return  # the time is counted from its start
        call = self._expired if self.blocking else self._forgotten
        self.timers.append(self.driver.scheduler.timer(timeout, call))

    # Called by the scheduler

    def ready(self) -> bool:
        """Whether its input fences have signalled; until then it keeps its place in the queues."""
        return all(fence.signalled for fence in self.after)

    def prepare(self) -> None:
        """Reject what the driver does not commit."""
        self.driver.set_domain(self.domain_id)
        refused = ""
        if not self.flags & s.JOB_PC:
            self.driver.scheduler.end(self, EINVAL)
            refused = "slave mode is not supported"
        elif self.mask not in STARTED_MASKS:
            self.driver.say(f"Unknown core mask: {self.mask}")
            refused = f"core mask {self.mask:#x} starts no core"
        elif self.tasks is None:
            refused = "task_obj_addr is 0"
        else:
            self.on_hardware = True
        if refused:
            self.driver.say("job commit failed")
            self.driver.log.info(f"rkcosim: {refused}")
            if not self.blocking and self.state != "ended":
                self.driver.scheduler.end(self, EINVAL)
        if not self.blocking and self.state != "ended":
            self.watch()

    def begin(self, port: CorePort) -> None:
        """Start the first kick of a core."""
        if self.on_hardware:
            self._kick(port)

    def _record(self, index: int) -> s.RknpuTask:
        assert self.tasks is not None
        return s.RknpuTask.of(self.tasks.backing.read(index * TASK_BYTES, TASK_BYTES))

    def _kick(self, port: CorePort) -> bool:
        """Start a core's next kick; False if there is none."""
        part = self.parts[port.core]
        kick = next(part.rest, None)
        if kick is None:
            return False
        index, number = kick
        first, last = self._record(index), self._record(index + number - 1)
        part.mask, part.first_task, part.last_task = last.int_mask, index, index + number - 1
        self.last_core = port.core
        self.kicks_off(port, index, number)
        port.start(Kick.of(first, last, number, self.base, bool(self.flags & s.JOB_PINGPONG)))
        return True

    def kicks_off(self, port: CorePort, first: int, number: int) -> None:
        """Called without the lock before a core is kicked for `number` records from `first` on."""

    def interrupt(self, port: CorePort) -> bool:
        """Compare the status with the mask of the kick's last task; continue, keep waiting, or finish."""
        part = self.parts[port.core]
        part.status, part.raw = port.interrupt()
        complete = fold_interrupts(part.status) == part.mask
        if not complete:
            self.driver.say(
                f"invalid irq status: {part.status:#x}, raw status: {part.raw:#x}, "
                f"require mask: {part.mask:#x}, task counter: {port.task_counter():#x}"
            )
        self.driver.scheduler.trouble.look(part.raw)
        port.acknowledge()
        return complete and not self._kick(port)

    def ended(self) -> None:
        """Write the status of the wait core into the last record that was started."""
        clock = self.driver.scheduler.clock
        if self.on_hardware:
            self.elapse = clock.time(self.ended_at) - clock.time(self.started_at)
        if self.blocking and self.on_hardware and self.error in (0, ETIMEDOUT) and self.tasks is not None:
            place = self.parts[self.last_core].last_task
            if place >= 0:
                at = place * TASK_BYTES + s.RknpuTask.int_status.offset
                status = self.parts[self.wait_core].status
                self.tasks.backing.write(at, status.to_bytes(4, "little"))

    # Waits; in the device's thread, with the lock held

    def _expired(self) -> None:
        """A blocking wait timed out: wait again if the job was not on the hardware for the whole time."""
        scheduler, driver = self.driver.scheduler, self.driver
        if self.file.closed:
            self._forgotten()
            return
        self.waits += 1
        again = self.waits < MAX_WAITS and (self.started_at < 0 or self.elapsed_us() < self.bound // 1000)
        waited = (scheduler.time - scheduler.clock.time(self.queued_at)) // 1000
        driver.say(
            f"job: {self.number:#x}, mask: {self.mask:#x}, job iommu domain id: {self.domain_id}, "
            f"dev iommu domain id: {driver.domain}, wait_count: {self.waits}, continue wait: {int(again)}, "
            f"commit elapse time: {self.elapsed_us()}us, wait time: {waited}us, "
            f"timeout: {self.timeout_ms * 1000}us"
        )
        if again:
            self.watch()
        elif self.on_hardware:
            self._time_out()
        else:
            driver.say(f"job abort, flags: {0:#x}, ret: {-EINVAL}, elapsed time: {self.elapsed_us()}us")
            scheduler.end(self, EINVAL)

    def _time_out(self) -> None:
        """The job timed out on the hardware: read what the driver reads, reset, fail."""
        driver, scheduler = self.driver, self.driver.scheduler
        with scheduler.unlocked():  # may take long, and other clients must go on
            counters = {core: self._counter(core) for core in self.cores}
            states = {core: self._state(core) for core in self.cores if core in self.waiting}
            scheduler.trouble.look()
            for core, state in states.items():
                scheduler.trouble.gave_up(f"core {core}, a job was given up after its time-out", state)
        self.task_counter = counters[self.wait_core]
        driver.say(
            f"failed to wait job, task counter: {self.task_counter}, flags: {self.flags:#x}, ret = 0, "
            f"elapsed time: {self.elapsed_us()}us"
        )
        driver.say("job timeout, flags: 0x0:")
        for core, part in self.parts.items():
            driver.say(
                f"\tcore {core} irq status: {part.status:#x}, raw status: {part.raw:#x}, "
                f"require mask: {part.mask:#x}, task counter: {counters[core]:#x}, "
                f"elapsed time: {self.elapsed_us()}us"
            )
            if core in self.waiting:
                driver.log.info(f"rkcosim: core {core}: {states[core]}")
        scheduler.end(self, ETIMEDOUT)
        driver.soft_reset(self)

    def _state(self, core: int) -> str:
        scheduler = self.driver.scheduler
        return scheduler.guard(partial(scheduler.device.block_state, core), "")

    def _counter(self, core: int) -> int:
        return (
            self.driver.scheduler.guard(self.driver.scheduler.ports[core].task_counter, 0)
            & MAX_TASKS_PER_KICK
        )

    def _forgotten(self) -> None:
        """A job that nothing waits for has used its time: only its cores are reset."""
        driver, scheduler = self.driver, self.driver.scheduler
        driver.say(f"job dropped, nobody waits for it, elapsed time: {self.elapsed_us()}us", "warn")
        cores = sum(1 << core for core in self.waiting)
        scheduler.end(self, ECANCELED)
        scheduler.guard(lambda: scheduler.device.reset(cores), None)


def submit(driver: RknpuCore, file: File, args: s.RknpuSubmit, call: IoctlCall) -> int:
    """Check and queue a job, and (unless NONBLOCK) wait for it.

    Raises
    ------
    KernelError
        EINVAL for wrong arguments, or a job that never started or was reset; ETIMEDOUT.
    """
    if not args.task_number:
        driver.say("invalid rknpu task number!")
        raise KernelError(EINVAL, "task_number is 0")
    if args.core_mask > ALL_CORES_MASK:
        driver.say(f"invalid rknpu core mask: {args.core_mask:#x}")
        raise KernelError(EINVAL, f"core mask {args.core_mask:#x}")
    call.passed = True
    with driver.lock:
        file.check_jobs()
        tasks = _task_buffer(driver, file, args)
        if tasks is not None:
            tasks.hold()
    try:
        return _submit(driver, file, args, call, tasks)
    finally:
        if tasks is not None:
            with driver.lock:
                tasks.drop()


def _submit(
    driver: RknpuCore, file: File, args: s.RknpuSubmit, call: IoctlCall, tasks: GemObject | None
) -> int:
    if args.iommu_domain_id >= len(driver.domains):
        raise KernelError(EINVAL, f"no IOMMU domain {args.iommu_domain_id}")
    after = _fences_in(driver, args, call) if args.flags & s.JOB_FENCE_IN else []
    fence = Fence(f"rknpu-job-{file.credentials.pid}")
    try:
        if args.flags & s.JOB_FENCE_OUT:
            _fence_out(driver, args, call, fence)
        if args.flags & s.JOB_NONBLOCK and args.core_mask and _late(driver, file, args.core_mask):
            driver.scheduler.call(lambda: _drop_late(driver, file, args.core_mask))
        return _run(driver, file, args, tasks, fence, after)
    except BaseException:
        with driver.lock:
            if not fence.queued:  # otherwise the job will signal it, even if nothing waits for it any more
                fence.signal(driver.scheduler.time, ECANCELED)
        raise


def _run(
    driver: RknpuCore,
    file: File,
    args: s.RknpuSubmit,
    tasks: GemObject | None,
    fence: Fence,
    after: list[Fence],
) -> int:
    """Queue the job, and wait for it if it is blocking."""

    def queue() -> RknpuJob:
        return _queue(driver, file, args, tasks, fence, after)

    if args.flags & s.JOB_NONBLOCK:
        with driver.lock:
            queue()
        return 0
    job = driver.scheduler.run(file, queue)
    if job.error:
        if job.error == ETIMEDOUT:
            args.task_counter = job.task_counter
        raise KernelError(job.error, "the job did not end well, see the log")
    args.task_counter = args.task_number
    args.hw_elapse_time = job.elapse
    return 0


def _task_buffer(driver: RknpuCore, file: File, args: s.RknpuSubmit) -> GemObject | None:
    if not args.task_obj_addr:
        return None
    tasks = driver.object_at(file, args.task_obj_addr)
    if not tasks.flags & s.MEM_KERNEL_MAPPING:
        driver.say("the task buffer has no kernel mapping")
        raise KernelError(EINVAL, "the task buffer was created without KERNEL_MAPPING")
    return tasks


def _fences_in(driver: RknpuCore, args: s.RknpuSubmit, call: IoctlCall) -> list[Fence]:
    try:
        found = call.fds.lookup(args.fence_fd)
    except KernelError:
        found = None
    if not isinstance(found, SyncFile):
        driver.say(f"invalid fence in fd, fd: {args.fence_fd}")
        raise KernelError(EINVAL, f"descriptor {args.fence_fd} is not a sync file")
    args.fence_fd = -1
    return found.fences


def _fence_out(driver: RknpuCore, args: s.RknpuSubmit, call: IoctlCall, fence: Fence) -> None:
    try:
        args.fence_fd = install(call.fds, SyncFile([fence], "rknpu", driver.lock), cloexec=True)
    except KernelError as error:
        args.fence_fd = -error.code


def _mine(driver: RknpuCore, file: File, job: Job) -> bool:
    """Whether a program may drop a job: only jobs of its own process, unless `reset_all` is set."""
    return driver.reset_all or job.file.credentials.pid == file.credentials.pid


def _late(driver: RknpuCore, file: File, mask: int) -> list[tuple[int, RknpuJob]]:
    """Jobs on the wanted cores that have run for as many microseconds as the number in their time-out."""
    with driver.lock:
        return [
            (core, job)
            for core, job in driver.scheduler.busy.items()
            if mask >> core & 1
            and isinstance(job, RknpuJob)
            and job.elapsed_us() >= job.timeout_ms
            and _mine(driver, file, job)
        ]


def _drop_late(driver: RknpuCore, file: File, mask: int) -> None:
    """Drop late jobs and those queued behind them; in the device's thread, with the lock held."""
    scheduler = driver.scheduler
    for core, job in _late(driver, file, mask):
        if job.state == "ended":
            continue  # it ran on two cores
        driver.say(f"job timeout clean, core {core}, elapsed time: {job.elapsed_us()}us", "warn")
        behind = [other for other in scheduler.outstanding(core) if other is not job]
        scheduler.end(job, EINVAL if job.blocking else ECANCELED)
        driver.soft_reset(job)
        for other in behind:
            if _mine(driver, file, other):
                blocking = isinstance(other, RknpuJob) and other.blocking
                scheduler.end(other, EINVAL if blocking else ECANCELED)


def _queue(
    driver: RknpuCore,
    file: File,
    args: s.RknpuSubmit,
    tasks: GemObject | None,
    fence: Fence,
    after: list[Fence],
) -> RknpuJob:
    if file.closed:
        raise KernelError(EINVAL, "the file is closed")
    cores = [core for core in range(driver.scheduler.device.cores) if args.core_mask >> core & 1]
    if not args.core_mask:
        cores = [_idlest(driver)]
    if not cores or args.core_mask >> driver.scheduler.device.cores:
        raise KernelError(EINVAL, f"core mask {args.core_mask:#x}, but the device has fewer cores")
    ranges = {}
    for core in cores if tasks is not None else []:
        entry = args.subcore_task[core + (ALL_CORES_ENTRY if len(cores) > ALL_CORES_ENTRY else 0)]
        ranges[core] = entry.task_start, entry.task_number
        room = 0 if tasks is None else tasks.size // TASK_BYTES
        if args.flags & s.JOB_PC and not 0 < entry.task_number <= room - entry.task_start:
            driver.say(f"invalid subcore task range of core {core}: {entry.task_start}, {entry.task_number}")
            raise KernelError(EINVAL, f"the task buffer has {room} records, not those of core {core}")
    job = RknpuJob(driver, file, args, cores, ranges, tasks, fence, after)
    if not args.core_mask and job.blocking:
        args.core_mask = job.mask
    job.queue()
    return job


def _idlest(driver: RknpuCore) -> int:
    """The core with the fewest outstanding tasks."""

    def tasks(core: int) -> int:
        jobs = driver.scheduler.outstanding(core)
        return sum(job.number_on(core) for job in jobs if isinstance(job, RknpuJob))

    return min(range(driver.scheduler.device.cores), key=tasks)
