"""Register programs of everything that carries one: streams, captures, compiled models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cosim.streams.stream import Stream
from sw.regcmd.program import Fetch, Program, fetch_from, program_of_chain

if TYPE_CHECKING:
    from sw.compiler.model import CompiledModel


def program_of_stream(stream: Stream, name: str = "stream") -> Program:
    """The tasks of a stream as the PC walks them; a damaged chain says so in `stopped`."""
    kick = stream.kick
    ranges = [(region.address, region.data.size) for region in stream.regions]
    settings: dict[str, Any] = {
        "mask": kick.interrupt_mask,
        "dma_base": kick.dma_base,
        "core": stream.core,
        "writes": list(stream.writes),
        "ranges": ranges,
    }
    if kick.slave:
        return Program(name, [], 0, slave=True, **settings)
    return program_of_chain(name, stream_fetch(stream), kick.base, kick.amount, kick.tasks, **settings)


def stream_fetch(stream: Stream) -> Fetch:
    """Command words out of a stream's memory."""
    return fetch_from((region.address, region.data.tobytes()) for region in stream.regions)


def programs_of_model(compiled: CompiledModel, name: str = "model") -> Iterator[Program]:
    """One program for each core of each job of a compiled model, its tasks named by layer.

    Regions lie one behind the other from 1 MiB on; a driver may place them elsewhere.
    """
    from sw.driver.job import completion_mask

    plan = compiled.plan
    sizes = {
        "regcmd": plan.regcmd_bytes(),
        "weights": len(plan.weights),
        "activations": plan.activation_bytes,
    }
    bases, at = {}, _MEGABYTE
    for region, size in sizes.items():
        bases[region] = at
        at += -(-max(size, 1) // _MEGABYTE) * _MEGABYTE
    ranges = [(bases[region], max(size, 1)) for region, size in sizes.items()]
    listed = plan.task_list(bases)
    fetch = fetch_from([(listed.address, listed.data)])
    for number, segment in enumerate(s for s in plan.segments() if s.host is None):
        for core, (first, count) in enumerate(segment.parts):
            label = f"{name}, job {number}" + (f", core {core}" if len(segment.parts) > 1 else "")
            entries = listed.tasks[segment.first + first :][:count]
            if not entries:
                continue
            mask = completion_mask(entries[-1].mask)
            program = program_of_chain(
                label,
                fetch,
                entries[0].address,
                entries[0].amount,
                count,
                mask=mask,
                core=core,
                ranges=ranges,
            )
            tasks = plan.tasks[segment.first + first :][: len(program.tasks)]
            program.tasks = [
                replace(item, title=f"{plan.steps[task.layer].name}{task.note}")
                for item, task in zip(program.tasks, tasks, strict=True)
            ]
            yield program


def program_of_records(name: str, records: Any, fetch: Fetch, **settings: Any) -> Program:
    """The tasks of a driver's job (`sw.driver.job.Task` each), fetched as its first record says."""
    first, last = records[0], records[-1]
    return program_of_chain(
        name, fetch, first.regcmd_addr, first.amount, len(records), mask=last.int_mask, **settings
    )


_MEGABYTE = 1 << 20
