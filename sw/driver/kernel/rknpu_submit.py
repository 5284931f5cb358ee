"""The vendor's SUBMIT: its checks in their order, and what it writes back."""

from __future__ import annotations

from errno import ECANCELED, EINVAL, ETIMEDOUT
from typing import TYPE_CHECKING

from sw.driver.kernel import structs as s
from sw.driver.kernel.errors import KernelError
from sw.driver.kernel.fences import Fence, SyncFile, install
from sw.driver.kernel.files import Call, File
from sw.driver.kernel.jobs import Job
from sw.driver.kernel.memory import GemObject
from sw.driver.kernel.rknpu_jobs import TASK_BYTES, RknpuJob

if TYPE_CHECKING:
    from sw.driver.kernel.rknpu import Rknpu

ALL_CORES_MASK = 7
ALL_CORES_ENTRY = 2
"""First entry of subcore_task for a job on three cores."""


def submit(driver: Rknpu, file: File, args: s.RknpuSubmit, call: Call) -> int:
    """Check, queue and (unless NONBLOCK) wait.

    Raises
    ------
    KernelError
        EINVAL for arguments, a job that never started or was reset; ETIMEDOUT.
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


def _submit(driver: Rknpu, file: File, args: s.RknpuSubmit, call: Call, tasks: GemObject | None) -> int:
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
            if not fence.queued:  # else the job will signal it, even if nobody waits for that any more
                fence.signal(driver.scheduler.time, ECANCELED)
        raise


def _run(
    driver: Rknpu,
    file: File,
    args: s.RknpuSubmit,
    tasks: GemObject | None,
    fence: Fence,
    after: list[Fence],
) -> int:
    """Queue the job, and wait for it if it is a blocking one."""
    scheduler = driver.scheduler
    if args.flags & s.JOB_NONBLOCK:
        with driver.lock:
            _queue(driver, file, args, tasks, fence, after)
        return 0
    with driver.lock:
        leads = scheduler.take_over()
    try:
        with driver.lock:
            job = _queue(driver, file, args, tasks, fence, after)
        return _wait(driver, file, args, job)
    finally:
        if leads:
            with driver.lock:
                scheduler.hand_over()


def _task_buffer(driver: Rknpu, file: File, args: s.RknpuSubmit) -> GemObject | None:
    if not args.task_obj_addr:
        return None
    tasks = driver.object_at(file, args.task_obj_addr)
    if not tasks.flags & s.MEM_KERNEL_MAPPING:
        driver.say("the task buffer has no kernel mapping")
        raise KernelError(EINVAL, "the task buffer was created without KERNEL_MAPPING")
    return tasks


def _fences_in(driver: Rknpu, args: s.RknpuSubmit, call: Call) -> list[Fence]:
    try:
        found = call.fds.lookup(args.fence_fd)
    except KernelError:
        found = None
    if not isinstance(found, SyncFile):
        driver.say(f"invalid fence in fd, fd: {args.fence_fd}")
        raise KernelError(EINVAL, f"descriptor {args.fence_fd} is no sync file")
    args.fence_fd = -1
    return found.fences


def _fence_out(driver: Rknpu, args: s.RknpuSubmit, call: Call, fence: Fence) -> None:
    try:
        args.fence_fd = install(call.fds, SyncFile([fence], "rknpu", driver.lock), cloexec=True)
    except KernelError as error:
        args.fence_fd = -error.code


def _mine(driver: Rknpu, file: File, job: Job) -> bool:
    """Whether a program may have a job dropped: only those of its own process, but for `reset_all`."""
    return driver.reset_all or job.file.credentials.pid == file.credentials.pid


def _late(driver: Rknpu, file: File, mask: int) -> list[tuple[int, RknpuJob]]:
    """Jobs on wanted cores that have run for as many microseconds as their time-out's number says."""
    with driver.lock:
        return [
            (core, job)
            for core, job in driver.scheduler.busy.items()
            if mask >> core & 1
            and isinstance(job, RknpuJob)
            and job.elapsed_us() >= job.timeout_ms
            and _mine(driver, file, job)
        ]


def _drop_late(driver: Rknpu, file: File, mask: int) -> None:
    """Late jobs go, and what is queued behind them; in the device's thread, with the lock held."""
    scheduler = driver.scheduler
    for core, job in _late(driver, file, mask):
        if job.state == "ended":
            continue  # it was on two cores
        driver.say(f"job timeout clean, core {core}, elapsed time: {job.elapsed_us()}us", "warn")
        behind = [other for other in scheduler.outstanding(core) if other is not job]
        scheduler.end(job, EINVAL if job.blocking else ECANCELED)
        driver.soft_reset(job)
        for other in behind:
            if _mine(driver, file, other):
                blocking = isinstance(other, RknpuJob) and other.blocking
                scheduler.end(other, EINVAL if blocking else ECANCELED)


def _queue(
    driver: Rknpu,
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
    driver.scheduler.submit(job)
    fence.queued = True
    job.watch()
    return job


def _idlest(driver: Rknpu) -> int:
    """The core with the fewest outstanding tasks."""

    def tasks(core: int) -> int:
        jobs = driver.scheduler.outstanding(core)
        return sum(job.number_on(core) for job in jobs if isinstance(job, RknpuJob))

    return min(range(driver.scheduler.device.cores), key=tasks)


def _wait(driver: Rknpu, file: File, args: s.RknpuSubmit, job: RknpuJob) -> int:
    driver.scheduler.wait(file, lambda: job.state == "ended", interruptible=False)
    if job.error:
        if job.error == ETIMEDOUT:
            args.task_counter = job.task_counter
        raise KernelError(job.error, "the job did not end well, see the log")
    args.task_counter = args.task_number
    args.hw_elapse_time = job.elapse
    return 0
