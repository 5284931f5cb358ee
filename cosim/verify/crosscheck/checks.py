"""The option check of an interface: every tensor of every inference is compared with both golden models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from rkcosim.compiler import CompiledModel, RunReport
from rkcosim.compiler.batch import BatchLoaded
from rkcosim.running.machine import Listener, Mismatch, RunningModel
from rkcosim.verify.crosscheck.model_check import ModelChecker


def checker_for(loaded: Any, device: str) -> Any:
    """Return the checker (`rkcosim.running.session.Checker`) for a model on a device.

    Parameters
    ----------
    loaded
        A compiled model or a vendor file in a device's memory.
    device
        Name of the device in messages.
    """
    if isinstance(loaded.model, CompiledModel) and loaded.model.lists_of_a_file:
        from rkcosim.verify.crosscheck.file_check import FileChecker

        return FileChecker(loaded, device)
    if isinstance(loaded, BatchLoaded):
        from rkcosim.verify.crosscheck.batch_check import BatchChecker

        return BatchChecker(loaded, device)
    return ModelChecker(loaded, device)


@dataclass(frozen=True)
class Deviation:
    """The first difference of an inference: in words, and its address in the device's memory."""

    where: str
    address: int | None


def first_wrong(checker: Any, inputs: Sequence[npt.NDArray[Any]]) -> Deviation | None:
    """Compare the tensors and the memory of the last inference.

    Parameters
    ----------
    checker
        A `rkcosim.running.session.Checker`.
    inputs
        The inputs of the inference.
    """
    found, address = checker.check(list(inputs)), checker.check_memory()
    if found.first is not None:
        return Deviation(str(found.first), found.first.address)
    return None if address is None else Deviation(f"padding at 0x{address:08X}", address)


class Checks(Listener):
    """Compares each inference, and sets `RunningModel.verdict`; comes behind listeners that must be told of
    each inference, because it raises `Mismatch`.
    """

    needs_inputs = True

    def __init__(self) -> None:
        self._checkers: dict[RunningModel, Any] = {}

    def loaded(self, model: RunningModel) -> None:
        """See `Listener`."""
        self._checkers[model] = checker_for(model.loaded, model.machine.engine.name)

    def inference(
        self, model: RunningModel, inputs: Sequence[npt.NDArray[Any]], report: RunReport, seconds: float
    ) -> None:
        """See `Listener`."""
        checker = self._checkers[model]
        wrong = first_wrong(checker, inputs)
        if wrong is None:
            if model.verdict["match"] is None:
                lost = len(model.model.plan.lost)
                model.verdict = {"match": True, **checker.levels(), "overwritten": lost}
            return
        number = model.inferences - 1
        if model.verdict["match"] is not False:
            model.verdict = {"match": False, "inference": number, "first_difference": wrong.where}
        raise Mismatch(f"inference {number} differs from the golden models: {wrong.where}")

    def unloading(self, model: RunningModel) -> None:
        """See `Listener`."""
        self._checkers.pop(model).close()
