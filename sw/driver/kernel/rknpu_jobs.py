"""Jobs of the vendor's driver: kicks, interrupts, waits, time-outs."""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import sizeof
from errno import ECANCELED, EINVAL, ETIMEDOUT
from functools import partial
from typing import TYPE_CHECKING

from rtl.regs import registers
from sw.driver.core_port import CorePort, Kick
from sw.driver.job import MAX_TASKS_PER_KICK, fold_interrupts, kicks
from sw.driver.kernel import structs as s
from sw.driver.kernel.fences import Fence
from sw.driver.kernel.files import File
from sw.driver.kernel.jobs import Job
from sw.driver.kernel.memory import GemObject
from sw.driver.kernel.trouble import report_faults
from sw.regcmd.tasks import FETCH_BYTES, TAIL_WORDS
from sw.regcmd.word import WORD_BYTES

if TYPE_CHECKING:
    from sw.driver.kernel.rknpu import Rknpu

MILLISECOND = 1_000_000
MAX_WAITS = 3
MAX_TIMEOUT_MS = 60_000
"""Longest wait that is simulated, so that no job can hold a core for weeks of device time."""

ORPHAN_MS = 100
"""Shortest life of a job that nobody waits for."""

TASK_BYTES = sizeof(s.RknpuTask)
STARTED_MASKS = (1, 2, 4, 3, 7)
WORDS_PER_UNIT = FETCH_BYTES // WORD_BYTES
WORD32 = 0xFFFF_FFFF


def clip(block: str, register: str, field: str, value: int) -> int:
    """The bits of a number that its field can hold."""
    return value & (1 << registers()[block][register].fields[field].width) - 1


class Part:
    """What a job does on one core: its kicks, and what the core said last."""

    def __init__(self, first: int, number: int) -> None:
        self.first, self.number = first, number
        self.rest: Iterator[tuple[int, int]] = iter(kicks(first, number))
        self.mask = 0
        self.last_task = -1
        self.status = self.raw = 0


class RknpuJob(Job):
    """A submitted job.

    Parameters
    ----------
    driver, file
        whose it is.
    args
        the structure, as it came.
    cores
        chosen ones.
    ranges
        core -> (first task, number of tasks); checked against the buffer.
    tasks
        the task buffer, None for the address 0.
    after
        fences that must have signalled before it starts.
    """

    def __init__(
        self,
        driver: Rknpu,
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
        """The core whose interrupt and counter the driver looks at."""
        return self.cores[0]

    def number_on(self, core: int) -> int:
        """Its tasks on a core."""
        return self.parts[core].number if core in self.parts else 0

    def elapsed_us(self) -> int:
        """Time since it was taken from its queue."""
        if self.started_at < 0:
            return 0
        clock = self.driver.scheduler.clock
        return (self.driver.scheduler.time - clock.time(self.started_at)) // 1000

    def watch(self) -> None:
        """Start its clock; with the lock held, when it is queued."""
        timeout = min(self.timeout_ms, MAX_TIMEOUT_MS) * MILLISECOND
        if not self.blocking:
            timeout = max(timeout, ORPHAN_MS * MILLISECOND)
            if self.state == "queued":
                return  # counts from its start
        call = self._expired if self.blocking else self._forgotten
        self.timers.append(self.driver.scheduler.timer(timeout, call))

    # The scheduler's side

    def ready(self) -> bool:
        """Fences that came in keep its place in the queues."""
        return all(fence.signalled for fence in self.after)

    def prepare(self) -> None:
        """Refuse what the driver refuses to commit."""
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
        part.mask, part.last_task = last.int_mask, index + number - 1
        self.last_core = port.core
        amount = ((first.regcfg_amount + TAIL_WORDS + WORDS_PER_UNIT - 1) & WORD32) // WORDS_PER_UNIT - 1
        port.start(
            Kick(
                base=first.regcmd_addr & WORD32,
                amount=clip("PC", "REGISTER_AMOUNTS", "PC_DATA_AMOUNT", amount),
                tasks=number,
                mask=clip("PC", "INTERRUPT_MASK", "int_mask", last.int_mask),
                clear=clip("PC", "INTERRUPT_CLEAR", "int_clr", first.int_mask),
                dma_base=self.base,
                pp_en=int(bool(self.flags & s.JOB_PINGPONG)),
            )
        )
        return True

    def interrupt(self, port: CorePort) -> bool:
        """Compare the status with the mask of the kick's last task; go on, wait on or finish."""
        part = self.parts[port.core]
        part.status, part.raw = port.interrupt()
        complete = fold_interrupts(part.status) == part.mask
        if not complete:
            self.driver.say(
                f"invalid irq status: {part.status:#x}, raw status: {part.raw:#x}, "
                f"require mask: {part.mask:#x}, task counter: {port.task_counter():#x}"
            )
        report_faults(self.driver.scheduler, port, part.raw)
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
        """A blocking wait ran out: once more if the hardware has not had the whole time yet."""
        scheduler, driver = self.driver.scheduler, self.driver
        if self.file.closed:
            self._forgotten()
            return
        self.waits += 1
        limit = min(self.timeout_ms, MAX_TIMEOUT_MS) * 1000
        again = self.waits < MAX_WAITS and (self.started_at < 0 or self.elapsed_us() < limit)
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
        """Given up on the hardware: read what the driver reads, reset, fail."""
        driver, scheduler = self.driver, self.driver.scheduler
        counters = {core: self._counter(core) for core in self.cores}
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
                state = scheduler.guard(partial(scheduler.device.block_state, core), "")
                driver.log.info(f"rkcosim: core {core}: {state}")
                report_faults(scheduler, scheduler.ports[core], 0, look=True)
        scheduler.end(self, ETIMEDOUT)
        driver.soft_reset(self)

    def _counter(self, core: int) -> int:
        return (
            self.driver.scheduler.guard(self.driver.scheduler.ports[core].task_counter, 0)
            & MAX_TASKS_PER_KICK
        )

    def _forgotten(self) -> None:
        """A job that nobody waits for has had its time: only its own cores are reset."""
        driver, scheduler = self.driver, self.driver.scheduler
        driver.say(f"job dropped, nobody waits for it, elapsed time: {self.elapsed_us()}us", "warn")
        cores = sum(1 << core for core in self.waiting)
        scheduler.end(self, ECANCELED)
        scheduler.guard(lambda: scheduler.device.reset(cores), None)
