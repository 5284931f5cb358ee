"""An engine with a driver, some data, and small tasks on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rkcosim.driver import Driver, Job
from rkcosim.engines import DramConfig, SocEngine
from rkcosim.regcmd import TaskBuilder
from tests.makers.jobs import (
    engine_or_skip,
    filled,
    first_difference,
    golden_image,
    records_of_builders,
)
from tests.makers.small_tasks import add_task, conv_task, pool_task

HEIGHT, WIDTH = 4, 6
BOUND = 400_000
NOWHERE = 0xC000_0000
"""An address without memory."""


class Bench:
    """An engine with a driver, some data, and tasks on them."""

    def __init__(self, engine: SocEngine) -> None:
        self.engine, self.driver = engine, Driver(engine, max_cycles=BOUND)
        size = HEIGHT * WIDTH * 32
        self.left = filled(self.driver, size, "left", 1)
        self.right = filled(self.driver, size, "right", 2)
        self.weights = filled(self.driver, 1024, "weights", 3)
        self.target = filled(self.driver, size, "target", 4)

    def conv(self, name: str = "conv") -> TaskBuilder:
        return conv_task(self.left.iova, self.weights.iova, self.target.iova, HEIGHT, WIDTH, name)

    def add(self, name: str = "add", **how: bool) -> TaskBuilder:
        return add_task(self.left.iova, self.right.iova, self.target.iova, HEIGHT, WIDTH, name, **how)

    def pool(self, name: str = "pool") -> TaskBuilder:
        return pool_task(self.left.iova, self.target.iova, HEIGHT, WIDTH, name)

    def job(self, *tasks: TaskBuilder, core: int = 0, max_cycles: int | None = None) -> Job:
        return Job(records_of_builders(self.driver, tasks), core_mask=1 << core, max_cycles=max_cycles)

    def submit(self, *tasks: TaskBuilder, core: int = 0, max_cycles: int | None = None) -> int:
        """Return the cycles of a job that must succeed."""
        return self.driver.submit(self.job(*tasks, core=core, max_cycles=max_cycles)).cycles

    def works(self, core: int = 0) -> None:
        """Run a correct chain of tasks on the core; its result equals the golden model's."""
        self.target.view()[:] = 0
        job = self.job(self.conv(), self.add(), core=core)
        expected = golden_image(self.engine, job)
        self.driver.submit(job)
        assert first_difference(self.engine, expected) is None
        assert any(self.target.read())

    def codes(self, core: int = 0) -> list[str]:
        return [d.code for d in self.engine.diagnostics() if d.core == core]


@contextmanager
def bench(on_diagnostic: str, cores: int = 1, dram: DramConfig | None = None) -> Iterator[Bench]:
    """Open a new engine; `on_diagnostic` as for `open_engine`."""
    with engine_or_skip(cores=cores, on_diagnostic=on_diagnostic, dram=dram) as engine:
        yield Bench(engine)
