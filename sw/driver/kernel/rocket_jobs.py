"""Jobs of the mainline driver: reading them, their order, their tasks one by one."""

from __future__ import annotations

from ctypes import sizeof
from errno import EALREADY, ECANCELED, EINVAL, EIO, ENOMEM
from typing import TYPE_CHECKING

from rtl.regs import registers
from sw.driver.core_port import CorePort, Kick
from sw.driver.job import interrupt_bits
from sw.driver.kernel import structs as s
from sw.driver.kernel.errors import KernelError
from sw.driver.kernel.fences import Fence
from sw.driver.kernel.files import MAX_JOBS, Call, File
from sw.driver.kernel.jobs import Job
from sw.driver.kernel.memory import GemObject
from sw.driver.kernel.rknpu_jobs import clip
from sw.driver.kernel.trouble import report_faults
from sw.regcmd.tasks import words_of_amount

if TYPE_CHECKING:
    from sw.driver.kernel.rocket import Rocket

TIMEOUT = 500_000_000
"""Nanoseconds on the hardware after which a job is given up."""

CORES = ("fdab0000.npu", "fdac0000.npu", "fdad0000.npu")

MAX_TASKS, MAX_HANDLES, MAX_BYTES = 65536, 4096, 16 << 20
"""More of these in one job, or larger arrays, count as lack of memory."""


class RocketJob(Job):
    """A job: its tasks are kicks of their own on one core.

    Parameters
    ----------
    driver, file
        whose it is.
    tasks
        (address of the commands, number of words).
    reads, writes
        its buffers.
    """

    def __init__(
        self,
        driver: Rocket,
        file: File,
        tasks: list[tuple[int, int]],
        reads: list[GemObject],
        writes: list[GemObject],
    ) -> None:
        super().__init__(file, [], file.data, Fence("rocket"))
        self.driver, self.tasks, self.writes = driver, tasks, writes
        self.queues = [file]
        self.done = 0
        self.holds = [item.hold() for item in (*reads, *writes)]
        self.after = [job for item in (*reads, *writes) for job in item.writers]
        for item in writes:
            item.writers.add(self)

    def ready(self) -> bool:
        """Earlier writers of its buffers have ended; takes the core with the fewest jobs."""
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
        """Its time starts."""
        self.timers.append(self.driver.scheduler.timer(TIMEOUT, self._timed_out))

    def begin(self, port: CorePort) -> None:
        """Start its first task."""
        self._task(port)

    def _task(self, port: CorePort) -> None:
        base, words = self.tasks[self.done]
        pc = registers()["PC"]
        done = interrupt_bits("DPU_0", "DPU_1")
        amount = (words + 1) // words_of_amount(0) - 1
        port.arm(
            Kick(
                base, clip("PC", "REGISTER_AMOUNTS", "PC_DATA_AMOUNT", amount), tasks=1, mask=done, clear=done
            )
        )
        port.write("PC", "OPERATION_ENABLE", pc["OPERATION_ENABLE"].encode(OP_EN=1))

    def interrupt(self, port: CorePort) -> bool:
        """The DPU's end ends a task; anything else is not claimed."""
        _, raw = port.interrupt()
        report_faults(self.driver.scheduler, port, raw)
        errors = raw & interrupt_bits("DMA_READ_ERROR", "DMA_WRITE_ERROR")
        if errors:
            self.driver.log.warn(f"rocket {CORES[port.core]}: WARNING: DMA error, raw status: {raw:#x}")
        if not raw & interrupt_bits("DPU_0", "DPU_1"):
            return False
        port.write("PC", "INTERRUPT_MASK", 0)
        port.write("PC", "OPERATION_ENABLE", 0)
        port.acknowledge()
        self.done += 1
        if self.done < len(self.tasks):
            self._task(port)
            return False
        return True

    def ended(self) -> None:
        """Its buffers are idle."""
        for item in self.writes:
            item.writers.discard(self)

    def _timed_out(self) -> None:
        """500 ms are over; in the device's thread, with the lock held."""
        scheduler = self.driver.scheduler
        core = self.cores[0]
        self.driver.log.err(f"rocket {CORES[core]}: NPU job timed out")
        state = scheduler.guard(lambda: scheduler.device.block_state(core), "")
        self.driver.log.info(f"rkcosim: core {core}, task {self.done} of {len(self.tasks)}: {state}")
        report_faults(scheduler, scheduler.ports[core], 0, look=True)
        scheduler.guard(lambda: scheduler.device.reset(1 << core), None)
        scheduler.end(self, ECANCELED)


def submit(driver: Rocket, file: File, args: s.RocketSubmit, call: Call) -> int:
    """Queue jobs; whatever is wrong with one of them goes to the log only.

    Raises
    ------
    KernelError
        EINVAL, ENOMEM or EFAULT for the list of jobs itself.
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
    data = call.user.read(args.jobs, (args.job_count - 1) * stride + sizeof(s.RocketJob))
    for number in range(args.job_count):
        job = s.RocketJob.of(data[number * stride : number * stride + sizeof(s.RocketJob)])
        try:
            _submit_job(driver, file, job, call)
        except KernelError as error:
            driver.log.info(f"rkcosim: rocket drops job {number} of {args.job_count}: {error}")
    return 0


def _submit_job(driver: Rocket, file: File, job: s.RocketJob, call: Call) -> None:
    if not job.task_count or job.task_struct_size < sizeof(s.RocketTask):
        raise KernelError(EINVAL, f"{job.task_count} tasks of {job.task_struct_size} bytes")
    if job.task_count > MAX_TASKS or job.task_count * job.task_struct_size > MAX_BYTES:
        raise KernelError(ENOMEM, f"{job.task_count} tasks of {job.task_struct_size} bytes")
    if max(job.in_bo_handle_count, job.out_bo_handle_count) > MAX_HANDLES:
        raise KernelError(ENOMEM, f"{job.in_bo_handle_count} and {job.out_bo_handle_count} handles")
    stride, size = job.task_struct_size, sizeof(s.RocketTask)
    data = call.user.read(job.tasks, (job.task_count - 1) * stride + size)
    tasks = []
    for number in range(job.task_count):
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
        queued = RocketJob(driver, file, tasks, reads, writes)
        last = driver.scheduler.outstanding(file)
        if last and last[-1].cores:
            queued.cores = list(last[-1].cores)
        driver.scheduler.submit(queued)


def _handles(call: Call, address: int, count: int) -> list[int]:
    data = call.user.read(address, 4 * count) if count else b""
    return [int.from_bytes(data[at : at + 4], "little") for at in range(0, 4 * count, 4)]
