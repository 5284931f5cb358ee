"""Networks from `.rknn` files, with the plans and command lists of the files."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from rkcosim.compiler.interpreters import ModelInterpreter, register
from rkcosim.compiler.model import CompiledModel, asked_for
from rkcosim.rknn_file.check import check_host, check_lists
from rkcosim.rknn_file.container import RknnFile
from rkcosim.rknn_file.opening import JOBS, NETWORK_ONLY
from rkcosim.rknn_file.plan import FilePlan, file_plan
from rkcosim.rknn_file.reader import read_rknn

_SOUND: set[tuple[bytes, int, bool]] = set()
"""(digest of the file, cores, reuse) of each plan that was checked, since commands open a file repeatedly."""


class FileModel(CompiledModel):
    """A network from a `.rknn` file, run by the file's own command lists.

    Parameters
    ----------
    file
        Contents of the file.
    data
        Bytes of the file.
    reuse, cores
        See `rkcosim.rknn_file.plan.file_plan`.
    checked
        Refuse lists that the hardware would refuse or never end (`rkcosim.rknn_file.check`).

    Raises
    ------
    RknnFileError
        if the file cannot be planned, or its lists are refused.
    """

    lists_of_a_file = True

    def __init__(
        self, file: RknnFile, data: bytes, reuse: bool = True, cores: int = 1, checked: bool = True
    ) -> None:
        plan = file_plan(file, cores, reuse, JOBS.get())
        super().__init__(plan.graph, plan=plan)
        self.inputs, self.outputs = (  # the types are those of the file
            [replace(info, half=False) for info in infos] for infos in (self.inputs, self.outputs)
        )
        self.file, self._data, self._checked = file, data, checked
        self.samples = 1
        """Number of samples for which a program calls the network."""
        if not NETWORK_ONLY.get():
            self.samples = file.batch
            self.inputs = [
                replace(info, preprocessing=file.preprocessing.get(index))
                for info, index in zip(self.inputs, file.inputs, strict=True)
            ]
        key = hashlib.sha256(data).digest(), cores, reuse
        if checked and key not in _SOUND:
            check_lists(plan)
            if file.ours:
                check_host(self)
            _SOUND.add(key)

    @property
    def floats_in_fp16(self) -> bool:
        """False: types of a `.rknn` file are those that its compiler chose."""
        return False

    @property
    def fp16_layers(self) -> list[str]:
        """Empty, as `floats_in_fp16`."""
        return []

    @property
    def file_plan(self) -> FilePlan:
        """The plan with its own type."""
        return cast(FilePlan, self.plan)

    def replanned(self, cores: int) -> CompiledModel:
        """Return the model with the file's plan for `cores` cores; RknnFileError if there is none."""
        return FileModel(self.file, self._data, self.plan.reuse, cores, self._checked)

    def save(self, weights: bool = True) -> bytes:
        """Return the bytes of the file; ValueError without `weights`, which are a part of it."""
        if not weights:
            raise ValueError("a .rknn file cannot be written without its weights")
        return self._data


def _planned(data: bytes, *, reuse: bool | None, cores: int | None, checked: bool) -> FileModel:
    """Open a `.rknn` file."""
    keep, asked = asked_for()
    file = read_rknn(data)
    wanted = cores or asked
    if wanted == 1 and len(file.plans) == 1:  # a file with only a plan for several cores uses this plan
        wanted = next(iter(file.plans))
    return FileModel(file, data, not keep if reuse is None else reuse, wanted, checked)


def _operators(data: bytes) -> Mapping[str, int]:
    return Counter(node.type for node in read_rknn(data).nodes)


register(ModelInterpreter(".rknn file", plan=_planned, structure=_operators))
