"""AOSP's operation specifications as examples: models with inputs and expected outputs.

The specifications (`runtime/test/specs/*/*.mod.py` of packages/modules/NeuralNetworks) are Python programs
for a generator that is in the same checkout; it is imported from there.  Only the public names of its scope
are used, with the function that it calls for each variation of an example.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rkcosim.apis.nnapi.model import (
    DataLocation,
    Model,
    Operand,
    OperandLifeTime,
    OperandType,
    Operation,
    Subgraph,
    SymmPerChannelQuantParams,
)
from rkcosim.apis.nnapi.operations import OperationType
from rkcosim.apis.nnapi.values import Array

FOLDERS = ("V1_0", "V1_1", "V1_2", "V1_3", "V1_3_cts_only", "AIDL_V2", "AIDL_V3")
"""Folders of specifications below runtime/test/specs."""

GENERATOR = Path("tools/test_generator/test_generator.py")
SPECS = Path("runtime/test/specs")
L = OperandLifeTime


@dataclass(frozen=True)
class Example:
    """One example of a specification.

    Members
    -------
    name : its file and its own name, for messages.
    operations : names of the operations of the main subgraph.
    model : the model.
    inputs : an array for each input, None for omitted ones.
    expected : the expected array for each output; None for ignored ones.
    fails : whether preparation or execution must fail.
    tolerance : of RANDOM_MULTINOMIAL's distribution; 0 for all others.
    """

    name: str
    operations: tuple[str, ...]
    model: Model
    inputs: tuple[Array | None, ...]
    expected: tuple[Array | None, ...]
    fails: bool
    tolerance: float = 0.0


def spec_files(folder: Path) -> list[Path]:
    """Return the files with specifications of a checkout.

    Raises
    ------
    ValueError
        If the folder has no generator or no specifications; the message names what is missing.
    """
    if not (folder / GENERATOR).is_file():
        raise ValueError(
            f"{folder} has no {GENERATOR}: it is not a checkout of packages/modules/NeuralNetworks"
        )
    found = [path for name in FOLDERS for path in sorted((folder / SPECS / name).glob("*.mod.py"))]
    if not found:
        raise ValueError(f"{folder / SPECS} has no specifications (*.mod.py)")
    return found


def load_generator(folder: Path) -> Any:
    """Return the generator's module."""
    name = "_nnapi_test_generator"
    spec = importlib.util.spec_from_file_location(name, folder / GENERATOR)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def examples(generator: Any, path: Path) -> Iterator[Example]:
    """Return the examples of a file, with all variations that the generator makes.

    Raises
    ------
    ValueError
        If the file cannot be executed; the message names it.
    """
    found: list[Example] = []
    names = generator.FileNames
    names.specFiles, names.specNames = [str(path)], [path.name.removesuffix(".mod.py")]
    names.exampleFiles, names.fileIndex = [None], 0
    names.NextFile()
    said = io.StringIO()
    place = f"{path.parent.name}/{path.name.removesuffix('.mod.py')}"
    try:
        with contextlib.redirect_stdout(said):
            exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), generator.GetExecScope())
            generator.Example.DumpAllExamples(
                DumpExample=lambda example, _: found.append(_example(place, example)), example_fd=said
            )
    except Exception as error:  # a specification is a program: anything may be raised
        raise ValueError(f"{path}: {type(error).__name__}: {error}") from error
    yield from found


class _Constants:
    """The bytes of the constants of a model, as they are collected."""

    def __init__(self) -> None:
        self.data = bytearray()

    def place(self, array: Array) -> DataLocation:
        self.data += bytes(-len(self.data) % 8)
        offset = len(self.data)
        self.data += array.tobytes()
        return DataLocation(offset=offset, length=array.nbytes)


def _example(place: str, example: Any) -> Example:
    constants = _Constants()
    main = _subgraph(example.model, constants)
    referenced = tuple(_subgraph(model, constants) for model in example.model.GetReferencedModels())
    model = Model(
        main,
        referenced,
        bytes(constants.data),
        relax_computation_float32_to_float16=bool(example.model.isRelaxed),
    )
    ignored = {op.name for op in example.model.GetIgnoredOutputs()}
    return Example(
        f"{place}:{example.testName}",
        tuple(op.optype for op in example.model.operations),
        model,
        tuple(_given(op) for op in example.model.GetInputs()),
        tuple(None if op.name in ignored else _array(op) for op in example.model.GetOutputs()),
        bool(example.expectFailure),
        float(example.expectedMultinomialDistributionTolerance),
    )


def _subgraph(model: Any, constants: _Constants) -> Subgraph:
    operations = tuple(
        Operation(
            OperationType[op.optype].value,
            tuple(item.model_index for item in op.ins),
            tuple(item.model_index for item in op.outs),
        )
        for op in model.operations
    )
    inputs = tuple(op.model_index for op in model.GetInputs())
    outputs = tuple(op.model_index for op in model.GetOutputs())
    return Subgraph(tuple(_operand(op, constants) for op in model.operands), operations, inputs, outputs)


def _operand(operand: Any, constants: _Constants) -> Operand:
    kept = operand.lifetime.replace("CONSTANT_REFERENCE", "CONSTANT_COPY")
    lifetime: OperandLifeTime = getattr(L, kept)
    location = DataLocation()
    if lifetime is L.CONSTANT_COPY:
        location = constants.place(_array(operand))
    elif lifetime is L.SUBGRAPH:
        location = DataLocation(offset=int(operand.value[0]))
    extra = operand.type.extraParams
    params = None
    if extra is not None and not extra.hide:
        params = SymmPerChannelQuantParams(tuple(float(s) for s in extra.scales), extra.channelDim)
    return Operand(
        OperandType[operand.type.type],
        tuple(int(n) for n in operand.type.dimensions),
        float(np.float32(operand.type.scale)),
        operand.type.zeroPoint,
        lifetime,
        location,
        params,
    )


def _given(operand: Any) -> Array | None:
    """Return the array of an input; one without elements where the operand has some is omitted."""
    array = _array(operand)
    return array if array.size or 0 in operand.type.dimensions else None


def _array(operand: Any) -> Array:
    dtype = OperandType[operand.type.type].dtype
    values = np.asarray(operand.value if operand.value is not None else [])
    if dtype.kind in "iu":
        values = np.asarray([int(n) for n in values.reshape(-1)], np.int64)
        info = np.iinfo(dtype)
        values = (
            values
            if not values.size or info.min <= values.min() <= values.max() <= info.max
            else (values & ((1 << 8 * dtype.itemsize) - 1))
        )
    with np.errstate(over="ignore"):
        made = values.astype(dtype)
    shape = tuple(int(n) for n in operand.type.dimensions)
    if 0 in shape and made.size:  # an unknown dimension: what the elements leave
        known = int(np.prod([n for n in shape if n])) or 1
        shape = tuple(n or made.size // known for n in shape) if shape.count(0) == 1 else (made.size,)
    return made.reshape(shape) if made.size == np.prod(shape, dtype=np.int64) else made
