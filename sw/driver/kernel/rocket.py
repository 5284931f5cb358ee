"""The mainline driver `rocket`: buffers, and jobs whose tasks run one after the other."""

from __future__ import annotations

import time
from ctypes import sizeof
from errno import E2BIG, EALREADY, EBUSY, ECANCELED, EINVAL, EIO, ENOENT, ENOMEM, ETIMEDOUT

from rkcosim.driver.core_port import CorePort, Kick, arm_kick, clip
from rkcosim.driver.kernel import structs as s
from rkcosim.driver.kernel.drm import GenericDrm
from rkcosim.driver.kernel.fences import Fence
from rkcosim.driver.kernel.files import MAX_JOBS, Command, File, IoctlCall
from rkcosim.driver.kernel.interface import KernelError
from rkcosim.driver.kernel.log import Log
from rkcosim.driver.kernel.memory import PAGE, Backing, Domain, GemObject, Ram, RangeSpace, round_up
from rkcosim.driver.kernel.rocket_interface import (
    DEFAULT,
    INTERFACES,
    JOB_BATCHED,
    JOB_PPU_DONE,
    MOST_RANGES,
    Interface,
)
from rkcosim.driver.kernel.scheduler import Job, Scheduler
from rkcosim.regcmd.job import MAX_TASKS_PER_KICK, interrupt_bits
from rkcosim.regcmd.tasks import words_of_amount
from rkcosim.spec.regs import registers

IOVA_END = 1 << 32

TIMEOUT = 500_000_000
"""Nanoseconds on the hardware after which a job times out."""

CORES = ("fdab0000.npu", "fdac0000.npu", "fdad0000.npu")

MAX_TASKS, MAX_HANDLES, MAX_BYTES = 65536, 4096, 16 << 20
"""Larger numbers of these in one job, or larger arrays, count as lack of memory."""


class Rocket(GenericDrm):
    """State of the driver.

    Parameters
    ----------
    scheduler, log, ram
        Those of the machine.
    guard
        Bytes kept unmapped above each buffer.
    interface
        Version of the uapi.
    """

    name, date, description = "rocket", "0", "rocket DRM"

    def __init__(
        self,
        scheduler: Scheduler,
        log: Log,
        ram: Ram,
        *,
        guard: int = PAGE,
        interface: Interface = INTERFACES[DEFAULT],
    ) -> None:
        super().__init__(scheduler, log)
        self.interface, self.version = interface, interface.version
        self.ram, self.guard = ram, guard
        self._files = 0
        both, write = s.IOC_READ | s.IOC_WRITE, s.IOC_WRITE
        self.commands |= {
            0x40: Command("CREATE_BO", s.CreateBo, both, self._create_bo),
            0x41: Command("SUBMIT", s.RocketSubmit, write, lambda *args: submit(self, *args)),
            0x42: Command("PREP_BO", s.PrepBo, write, self._prep_bo),
            0x43: Command("FINI_BO", s.FiniBo, write, self._fini_bo),
        }
        if interface.ranges:
            self.commands |= {
                0x44: Command("PREP_BO_RANGES", s.PrepBoRanges, write, self._prep_bo),
                0x45: Command("FINI_BO_RANGES", s.FiniBoRanges, write, self._fini_bo),
            }

    def opened(self, file: File) -> None:
        """Every file has a separate address space, filled from 0 up."""
        self._files += 1
        file.data = Domain(f"rocket file {self._files}", RangeSpace(0, IOVA_END, guard=self.guard))

    def _create_bo(self, file: File, args: s.CreateBo, call: IoctlCall) -> int:
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

    def _prep_bo(self, file: File, args: s.PrepBo | s.PrepBoRanges, call: IoctlCall) -> int:
        # The deadline is a time of the program's clock; the remaining time is spent as device time.
        left = args.timeout_ns - time.monotonic_ns()
        ranges = self._ranges(args, call)
        with self.lock:
            item = self._checked(file, args.handle, ranges).hold()
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

    def _fini_bo(self, file: File, args: s.FiniBo | s.FiniBoRanges, call: IoctlCall) -> int:
        ranges = self._ranges(args, call)
        with self.lock:
            self._checked(file, args.handle, ranges)
        return 0

    @staticmethod
    def _ranges(args: s.Struct, call: IoctlCall) -> list[s.BoRange]:
        """The ranges of a PREP_BO or FINI_BO, read without the lock; none for the whole buffer."""
        if args.reserved:
            raise KernelError(EINVAL, "reserved is not 0")
        data, size = b"", sizeof(s.BoRange)
        if isinstance(args, (s.PrepBoRanges, s.FiniBoRanges)) and args.range_count:
            if args.range_count > MOST_RANGES:
                raise KernelError(EINVAL, f"{args.range_count} ranges are more than {MOST_RANGES}")
            data = call.user.read(args.ranges, args.range_count * size)
        call.passed = True
        return [s.BoRange.of(data[at : at + size]) for at in range(0, len(data), size)]

    def _checked(self, file: File, handle: int, ranges: list[s.BoRange]) -> GemObject:
        """The buffer; with the lock held.  Its pages are shared, so that there is nothing to synchronise."""
        item = self.find(file, handle, ENOENT)
        end = 0
        for number, one in enumerate(ranges):
            if not one.size or one.offset + one.size > item.size:
                raise KernelError(EINVAL, f"range {number} is empty or not inside the buffer")
            if one.offset < end:
                raise KernelError(EINVAL, f"range {number} begins before the end of the previous one")
            end = one.offset + one.size
        return item


class RocketJob(Job):
    """A job: its tasks are separate kicks on one core.

    Parameters
    ----------
    driver, file
        Driver and open file that it belongs to.
    tasks
        (address of the commands, number of words).
    reads, writes
        Its buffers.
    flags
        As in `rocket_interface`.
    """

    def __init__(
        self,
        driver: Rocket,
        file: File,
        tasks: list[tuple[int, int]],
        reads: list[GemObject],
        writes: list[GemObject],
        flags: int = 0,
    ) -> None:
        super().__init__(file, [], file.data, Fence("rocket"))
        self.driver, self.tasks, self.writes = driver, tasks, writes
        self.queues = [file]
        self.batched, self.done = bool(flags & JOB_BATCHED), 0
        last = ("PPU_0", "PPU_1") if flags & JOB_PPU_DONE else ("DPU_0", "DPU_1")
        self.last_done = interrupt_bits(*last)
        self.holds = [item.hold() for item in (*reads, *writes)]
        self.after = [job for item in (*reads, *writes) for job in item.writers if isinstance(job, RocketJob)]
        for item in writes:
            item.writers.add(self)

    def ready(self) -> bool:
        """Whether earlier writers of its buffers have ended; selects the core with the fewest jobs."""
        if any(job.state != "ended" for job in self.after):
            return False
        scheduler = self.driver.scheduler
        if not self.cores:
            load = [0] * len(scheduler.ports)
            for job in scheduler.all_jobs():
                for core in job.cores:
                    load[core] += job is not self
            self.cores = [load.index(min(load))]
        return True

    def prepare(self) -> None:
        """Start its time."""
        self.timers.append(self.driver.scheduler.timer(TIMEOUT, self._timed_out))

    def begin(self, port: CorePort) -> None:
        """Start its first task on a core."""
        self._task(port)

    def _task(self, port: CorePort) -> None:
        base, words = self.tasks[self.done]
        pc = registers()["PC"]
        done, number = self._awaited(), len(self.tasks) if self.batched else 1
        amount = (words + 1) // words_of_amount(0) - 1
        amount = clip("PC", "REGISTER_AMOUNTS", "PC_DATA_AMOUNT", amount)
        arm_kick(port.write, port.core, Kick(base, amount, number, done, clear=done))
        port.write("PC", "OPERATION_ENABLE", pc["OPERATION_ENABLE"].encode(OP_EN=1))

    def _awaited(self) -> int:
        """Interrupt bits that mark the end of the kick."""
        last = self.batched or self.done == len(self.tasks) - 1
        return self.last_done if last else interrupt_bits("DPU_0", "DPU_1")

    def interrupt(self, port: CorePort) -> bool:
        """The end of the DPU (or of the PPU, by the job's flags) ends a kick; others are ignored."""
        _, raw = port.interrupt()
        self.driver.scheduler.trouble.look(raw)
        errors = raw & interrupt_bits("DMA_READ_ERROR", "DMA_WRITE_ERROR")
        if errors:
            self.driver.log.warn(f"rocket {CORES[port.core]}: WARNING: DMA error, raw status: {raw:#x}")
        if not raw & self._awaited():
            return False
        port.write("PC", "INTERRUPT_MASK", 0)
        port.write("PC", "OPERATION_ENABLE", 0)
        port.acknowledge()
        self.done += len(self.tasks) if self.batched else 1
        if self.done < len(self.tasks):
            self._task(port)
            return False
        return True

    def ended(self) -> None:
        """Mark its buffers as idle."""
        for item in self.writes:
            item.writers.discard(self)

    def _timed_out(self) -> None:
        """500 ms have passed; in the device's thread, with the lock held."""
        scheduler = self.driver.scheduler
        core = self.cores[0]
        self.driver.log.err(f"rocket {CORES[core]}: NPU job timed out")
        with scheduler.unlocked():  # may take long, and other clients must go on
            state = scheduler.guard(lambda: scheduler.device.block_state(core), "")
            scheduler.trouble.look()
            scheduler.trouble.gave_up(f"core {core}, a job was given up after its time-out", state)
        self.driver.log.info(f"rkcosim: core {core}, task {self.done} of {len(self.tasks)}: {state}")
        scheduler.guard(lambda: scheduler.device.reset(1 << core), None)
        scheduler.end(self, ECANCELED)


def submit(driver: Rocket, file: File, args: s.RocketSubmit, call: IoctlCall) -> int:
    """Queue jobs; before interface 1.0 errors of single jobs are only written to the log.

    Raises
    ------
    KernelError
        EINVAL, ENOMEM or EFAULT for the list of jobs; from interface 1.0 on also the error of the
        first job that is rejected; the jobs before it run.
    """
    if not args.job_count:
        return 0
    if args.job_struct_size < sizeof(s.RocketJob):
        raise KernelError(EINVAL, f"job_struct_size {args.job_struct_size}")
    if args.reserved:
        raise KernelError(EINVAL, "reserved is not 0")
    call.passed = True
    if args.job_count > MAX_JOBS or args.job_count * args.job_struct_size > MAX_BYTES:
        raise KernelError(ENOMEM, f"{args.job_count} jobs of {args.job_struct_size} bytes")
    stride = args.job_struct_size
    extensible = driver.interface.extensible
    last = stride if extensible else sizeof(s.RocketJob)
    data = call.user.read(args.jobs, (args.job_count - 1) * stride + last)
    for number in range(args.job_count):
        whole = data[number * stride : (number + 1) * stride]
        try:
            flags = _flags(driver.interface, whole[sizeof(s.RocketJob) :]) if extensible else 0
            _submit_job(driver, file, s.RocketJob.of(whole[: sizeof(s.RocketJob)]), flags, call)
        except KernelError as error:
            driver.log.info(f"rkcosim: rocket drops job {number} of {args.job_count}: {error}")
            if extensible:
                raise
    return 0


def _flags(interface: Interface, rest: bytes) -> int:
    """Flags of a job from the bytes after the structure of interface 1.0."""
    known = rest[: sizeof(s.RocketJobFlags)] if interface.flags else b""
    if any(rest[len(known) :]):
        raise KernelError(E2BIG, "a job has members that this interface does not know")
    fields = s.RocketJobFlags.of(known)
    if fields.flags & ~interface.flags or fields.reserved:
        raise KernelError(EINVAL, f"flags {fields.flags:#x}, reserved {fields.reserved:#x}")
    return int(fields.flags)


def _submit_job(driver: Rocket, file: File, job: s.RocketJob, flags: int, call: IoctlCall) -> None:
    if not job.task_count or job.task_struct_size < sizeof(s.RocketTask):
        raise KernelError(EINVAL, f"{job.task_count} tasks of {job.task_struct_size} bytes")
    if job.task_count > MAX_TASKS or job.task_count * job.task_struct_size > MAX_BYTES:
        raise KernelError(ENOMEM, f"{job.task_count} tasks of {job.task_struct_size} bytes")
    if max(job.in_bo_handle_count, job.out_bo_handle_count) > MAX_HANDLES:
        raise KernelError(ENOMEM, f"{job.in_bo_handle_count} and {job.out_bo_handle_count} handles")
    stride, size = job.task_struct_size, sizeof(s.RocketTask)
    extensible = driver.interface.extensible
    if flags & JOB_BATCHED and job.task_count > MAX_TASKS_PER_KICK:
        raise KernelError(EINVAL, f"a chain of {job.task_count} tasks")
    data = call.user.read(job.tasks, (job.task_count - 1) * stride + (stride if extensible else size))
    tasks = []
    for number in range(job.task_count):
        if extensible and any(data[number * stride + size : (number + 1) * stride]):
            raise KernelError(E2BIG, f"task {number} has members that this interface does not know")
        task = s.RocketTask.of(data[number * stride : number * stride + size])
        if not task.regcmd_count:
            raise KernelError(EINVAL, f"task {number} has no commands")
        tasks.append((task.regcmd, task.regcmd_count))
    lists = [
        _handles(call, job.in_bo_handles, job.in_bo_handle_count),
        _handles(call, job.out_bo_handles, job.out_bo_handle_count),
    ]
    with driver.lock:
        reads, writes = ([driver.find(file, handle) for handle in handles] for handles in lists)
        if len({id(item) for item in (*reads, *writes)}) < len(reads) + len(writes):
            raise KernelError(EALREADY, "a buffer is listed twice")
        if file.closed:
            raise KernelError(EIO, "the file is closed")
        file.check_jobs()
        queued = RocketJob(driver, file, tasks, reads, writes, flags)
        last = driver.scheduler.outstanding(file)
        if last and last[-1].cores:
            queued.cores = list(last[-1].cores)
        driver.scheduler.submit(queued)


def _handles(call: IoctlCall, address: int, count: int) -> list[int]:
    data = call.user.read(address, 4 * count) if count else b""
    return [int.from_bytes(data[at : at + 4], "little") for at in range(0, 4 * count, 4)]
