"""Opening of models from any supported file: `.rknn` files with their own plans, others by the compiler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal

from rkcosim.base.files import read_model
from rkcosim.compiler.batch import BatchModel, compile_divided
from rkcosim.compiler.interpreters import find
from rkcosim.compiler.model import CompiledModel, naming_model
from rkcosim.compiler.tiling import holding

JobsBy = Literal["chain", "node"]

JOBS: ContextVar[JobsBy | None] = ContextVar("jobs_by", default=None)
"""`jobs_by` of the files that are loaded in this context."""

NETWORK_ONLY: ContextVar[bool] = ContextVar("network only", default=False)
"""Whether files that are loaded in this context are plain networks."""


@contextmanager
def jobs_by(how: JobsBy | None) -> Iterator[None]:
    """Set `jobs_by` of `rkcosim.rknn_file.plan.file_plan` for `.rknn` files loaded in this context."""
    with holding(JOBS, how):
        yield


def network_only() -> AbstractContextManager[None]:
    """Load `.rknn` files as plain networks in this context: inputs take the network's own numbers for one
    sample, without the file's preprocessing and batch."""
    return holding(NETWORK_ONLY, True)


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
