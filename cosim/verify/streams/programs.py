"""Register programs of streams, captures and compiled models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rkcosim.regcmd.program import Fetch, Program, fetch_from, program_of_chain
from rkcosim.verify.streams.contents import StreamContents

if TYPE_CHECKING:
    from rkcosim.compiler.model import CompiledModel
    from rkcosim.compiler.plan import Plan


def program_of_stream(stream: StreamContents, name: str = "stream") -> Program:
    """Return the tasks of a stream as the PC fetches them; `stopped` reports a damaged chain."""
    kick = stream.kick
    ranges = [(region.address, region.data.size) for region in stream.regions]
    settings: dict[str, Any] = {
        "mask": kick.interrupt_mask,
        "dma_base": kick.dma_base,
        "core": stream.core,
        "writes": list(stream.writes),
        "ranges": ranges,
        "contents": [(region.address, region.data.data) for region in stream.regions],
    }
    if kick.slave:
        return Program(name, [], 0, slave=True, **settings)
    return program_of_chain(name, stream_fetch(stream), kick.base, kick.amount, kick.tasks, **settings)


def stream_fetch(stream: StreamContents) -> Fetch:
    """Return a function that fetches command words from a stream's memory."""
    return fetch_from((region.address, region.data.tobytes()) for region in stream.regions)


def programs_of_model(compiled: CompiledModel, name: str = "model") -> Iterator[Program]:
    """Yield one program for each core of each job of a compiled model, with tasks named by layer.

    Regions are placed one after the other from 1 MiB on; a driver may use other addresses.
    """
    from rkcosim.regcmd.job import completion_mask

    plan = compiled.plan
    sizes, bases = _sizes(plan), bases_of_plan(plan)
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
                contents=[(bases["weights"], memoryview(plan.weights).cast("B"))],
            )
            tasks = plan.tasks[segment.first + first :][: len(program.tasks)]
            program.tasks = [
                replace(item, title=f"{plan.steps[task.layer].name}{task.note}")
                for item, task in zip(program.tasks, tasks, strict=True)
            ]
            yield program


def _sizes(plan: Plan) -> dict[str, int]:
    activations = plan.activation_bytes
    return {"regcmd": plan.regcmd_bytes(), "weights": len(plan.weights), "activations": activations}


def bases_of_plan(plan: Plan) -> dict[str, int]:
    """Addresses of a plan's regions in `programs_of_model`."""
    bases, at = {}, _MEGABYTE
    for region, size in _sizes(plan).items():
        bases[region] = at
        at += -(-max(size, 1) // _MEGABYTE) * _MEGABYTE
    return bases


_MEGABYTE = 1 << 20
