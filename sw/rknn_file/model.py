"""Loading of models from any supported file: `.rknn` files with their own plans, others by the compiler."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

from rkcosim.base.files import read_model
from rkcosim.compiler.batch import BatchModel, compile_divided
from rkcosim.compiler.interpreters import ModelInterpreter, find, register
from rkcosim.compiler.model import CompiledModel, asked_for, naming_model
from rkcosim.compiler.tiling import holding
from rkcosim.rknn_file.check import check_host, check_lists
from rkcosim.rknn_file.container import RknnFile
from rkcosim.rknn_file.plan import FilePlan, file_plan
from rkcosim.rknn_file.reader import read_rknn

JobsBy = Literal["chain", "node"]

_JOBS: ContextVar[JobsBy | None] = ContextVar("jobs_by", default=None)

_NETWORK_ONLY: ContextVar[bool] = ContextVar("network only", default=False)

_SOUND: set[tuple[bytes, int, bool]] = set()
"""(digest of the file, cores, reuse) of each plan that was checked, since commands open a file repeatedly."""


@contextmanager
def jobs_by(how: JobsBy | None) -> Iterator[None]:
    """Set `jobs_by` of `rkcosim.rknn_file.plan.file_plan` for `.rknn` files loaded in this context."""
    with holding(_JOBS, how):
        yield


def network_only() -> AbstractContextManager[None]:
    """Load `.rknn` files as plain networks in this context: inputs take the network's own numbers for one
    sample, without the file's preprocessing and batch."""
    return holding(_NETWORK_ONLY, True)


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

    def __init__(
        self, file: RknnFile, data: bytes, reuse: bool = True, cores: int = 1, checked: bool = True
    ) -> None:
        plan = file_plan(file, cores, reuse, _JOBS.get())
        super().__init__(plan.graph, plan=plan)
        self.inputs, self.outputs = (  # the types are those of the file
            [replace(info, half=False) for info in infos] for infos in (self.inputs, self.outputs)
        )
        self.file, self._data, self._checked = file, data, checked
        self.samples = 1
        """Number of samples for which a program calls the network."""
        if not _NETWORK_ONLY.get():
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


def open_model(
    data: bytes,
    reuse: bool | None = None,
    cores: int | None = None,
    fuse: bool = True,
    *,
    checked: bool = True,
) -> CompiledModel | BatchModel:
    """Compile a model, or take the plan of a compiled model or of a `.rknn` file.

    The kind of the file is recognised by its content.

    Parameters
    ----------
    data
        Bytes of the file.
    reuse, cores, fuse
        See `rkcosim.compiler.batch.compile_divided`; `cores` selects one of the plans of a `.rknn` file.
    checked
        See `FileModel`; False to show the lists of a file that cannot run.

    Raises
    ------
    ModelError
        if the model cannot be read or run.
    """
    found = find(data)
    if found is None or found.plan is None:
        return compile_divided(data, reuse, cores, fuse)
    made: CompiledModel = found.plan(data, reuse=reuse, cores=cores, checked=checked)
    return made


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


def open_file(path: Path, **options: Any) -> CompiledModel | BatchModel:
    """Open a model from a path; see `open_model`.

    Raises
    ------
    ModelError
        if the model cannot be read or run; the message names file, node and tensor.
    WrongKindError, GivenFileError, OSError
        if the file is not a model or cannot be read; see `rkcosim.base.files.read_model`.
    """
    data = read_model(path)
    with naming_model(path):
        return open_model(data, **options)
