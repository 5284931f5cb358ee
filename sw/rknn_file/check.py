"""Checks of a `.rknn` file before it runs: command lists by the rules of `regcmd lint`, and host steps.

A file is hostile input. Lists that the hardware would refuse, or that would never end, are refused here with
the node, the task and the register, so that a run does not fail on the device because of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.host_steps import compute
from rkcosim.compiler.model import CompiledModel
from rkcosim.compiler.steps import HostStep
from rkcosim.golden.task.rules import ERROR
from rkcosim.golden.task.rules import RULES as DIAGNOSED
from rkcosim.regcmd.job import record_problem
from rkcosim.regcmd.lint import RULES, Finding, lint
from rkcosim.regcmd.program import ListedTask, Program
from rkcosim.regcmd.tasks import TAIL_WORDS, amount_code
from rkcosim.regcmd.word import words_from_bytes
from rkcosim.rknn_file.container import TaskRecord
from rkcosim.rknn_file.plan import FilePlan
from rkcosim.rknn_file.tables import RknnFileError

_BLOCK = 1 << 20
"""Regions start at multiples of this number of bytes, with as many unmapped bytes between them."""

_RULES = [
    name
    for name, rule in RULES.items()
    if name in DIAGNOSED or (rule.severity == ERROR and name != "chain.first")
]
"""Rules that can refuse a file; `container` and `version6` check the places of the lists."""


@dataclass
class _Core:
    """The lists of one core in the order in which it runs them, and the last list of each of its jobs."""

    tasks: list[ListedTask] = field(default_factory=list)
    records: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)


def check_lists(plan: FilePlan) -> None:
    """Check all lists and task records of a plan.

    Parameters
    ----------
    plan
        The plan of a file for a number of cores.

    Raises
    ------
    RknnFileError
        if a rule of `rkcosim.regcmd.lint` finds an error or a diagnostic that the hardware raises, or if the
        masks of a record are wrong; the message names node, task, register and rule.
    """
    sizes = {
        "regcmd": plan.regcmd_bytes(),
        "weights": len(plan.weights),
        "activations": plan.activation_bytes,
    }
    bases, at = {}, _BLOCK
    for region, size in sizes.items():
        bases[region] = at
        at += (-(-max(size, 1) // _BLOCK) + 1) * _BLOCK
    if at >> 32:
        raise RknnFileError(f".rknn file whose memory of {at} bytes does not fit 32-bit addresses")
    ranges = [(bases[region], max(size, 1)) for region, size in sizes.items()]
    entries = plan.task_list(bases)
    for place, task in enumerate(plan.job_tasks(entries.tasks)):
        if problem := record_problem(task):
            where = _label(plan, plan.records[place])
            raise RknnFileError(f".rknn file that the NPU cannot run: {where}: {problem}")
    words = words_from_bytes(entries.data)
    for number, core in enumerate(_cores(plan, words, bases["regcmd"])):
        contents = [(bases["weights"], memoryview(plan.weights).cast("B"))]
        program = Program("file", core.tasks, core=number, ranges=ranges, contents=contents)
        for finding in lint(program, _RULES):
            if finding.severity == ERROR or finding.code or finding.rule == _DECODED:
                raise _refusal(plan, core, finding)
        for end in core.ends:
            mask = plan.file.records[core.records[end]].int_mask
            last = Program("file", [core.tasks[end]], mask=mask, core=number)
            for finding in lint(last, ["irq.never"]):
                if finding.severity == ERROR:
                    raise _refusal(plan, core, finding, end)


def own_inputs(plan: FilePlan, bases: Mapping[str, int]) -> dict[int, str]:
    """Find the tasks that write where they read, so that what they read depends on timing.

    Parameters
    ----------
    plan
        The plan of a file for a number of cores.
    bases
        Address of each region of memory.

    Returns
    -------
    Node and number of each such task (the rule `memory.own-input` of `rkcosim.regcmd.lint`), by the address
    of its list, in order of execution.
    """
    words = words_from_bytes(plan.task_list(bases).data)
    found: dict[int, str] = {}
    for number, core in enumerate(_cores(plan, words, bases["regcmd"])):
        for finding in lint(Program("file", core.tasks, core=number), ["memory.own-input"]):
            address = core.tasks[finding.task].address
            assert address is not None
            found[address] = _label(plan, core.records[finding.task])
    return found


def check_host(model: CompiledModel) -> None:
    """Compute the host's part of one of our files on zeros, since the file describes its functions.

    Parameters
    ----------
    model
        The network of the file.

    Raises
    ------
    RknnFileError
        if an attribute is missing or of a wrong type, or a result does not fit its tensor.
    """

    def zeros(name: str) -> npt.NDArray[Any]:
        tensor = model.graph.tensors[name]
        return np.zeros(tensor.cube, tensor.dtype)

    for step in model.plan.steps:
        if isinstance(step, HostStep):
            with _described(f"{step.kind} '{step.name}'"):
                made = compute(step, [zeros(tensor.name) for tensor in step.inputs])
                if made.size != step.output.elements or made.dtype != step.output.dtype:
                    raise ValueError(f"it gives {made.dtype} {made.shape}, not {step.output.shape}")
    for index, output in enumerate(model.graph.outputs):
        if output.real:
            with _described(f"output '{output.name}'"):
                model.decode_output(index, zeros)


@contextmanager
def _described(label: str) -> Iterator[None]:
    """Convert errors of functions with wrong attributes."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise RknnFileError(f"damaged .rknn file: {label} on the host: {reason}") from error


def _cores(plan: FilePlan, words: list[int], base: int) -> Iterator[_Core]:
    """Yield the lists of each core. A job does not reset registers, so that all its jobs are one program."""
    cores: dict[int, _Core] = {}
    for segment in plan.segments():
        for core, (first, count) in enumerate(segment.parts if segment.host is None else ()):
            own = cores.setdefault(core, _Core())
            for number in plan.records[segment.first + first :][:count]:
                record = plan.file.records[number]
                own.tasks.append(_listed(record, words, base))
                own.records.append(number)
            if count:
                own.ends.append(len(own.tasks) - 1)
    for number in sorted(cores):
        yield cores[number]


def _listed(record: TaskRecord, words: list[int], base: int) -> ListedTask:
    count = record.amount + TAIL_WORDS
    fetched = tuple(words[record.first : record.first + count])
    return ListedTask(fetched, base + record.first * 8, amount_code(count))


_DECODED = "conv.weight-code"
"""Rule that decodes compressed weights; what it cannot check is refused as well."""

_SIZES = ("rdma.cube", "dpu.surfaces")
"""Rules about sizes of readers and writers that a bilinear Resize of the toolkit 2.3 breaks."""


def _label(plan: FilePlan, number: int) -> str:
    """Return the node and the number of a task in the file."""
    node = plan.file.nodes[plan.file.records[number].node]
    return f"{node.type} '{node.name}', task {number} of the file"


def _refusal(plan: FilePlan, core: _Core, finding: Finding, task: int | None = None) -> RknnFileError:
    number = core.records[max(finding.task, 0) if task is None else task]
    where = _label(plan, number)
    if finding.word is not None and finding.word >= 0:
        where += f", word {finding.word}"
        if finding.set_in is not None and finding.set_in not in (finding.task, -1):
            where += f" of task {core.records[finding.set_in]}"
    value = "" if finding.value is None else f" = 0x{finding.value & (1 << 64) - 1:X}"
    what = f"{finding.path}{value}: " if finding.path else ""
    needed = ""
    if plan.file.nodes[plan.file.records[number].node].type == "Resize" and finding.rule in _SIZES:
        needed = "; needed is a board's answer to how the writer counts there, the question in docs/board.md"
    return RknnFileError(
        f".rknn file that the NPU cannot run: {where}: {what}{finding.message} [{finding.rule}]{needed}"
    )
