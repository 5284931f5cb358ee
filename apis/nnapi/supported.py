"""Which operations of a model can be executed here."""

from __future__ import annotations

from rkcosim.apis.nnapi.model import Model, OperandLifeTime, Operation, Subgraph
from rkcosim.apis.nnapi.operations import OperationType
from rkcosim.apis.nnapi.runner import known
from rkcosim.apis.nnapi.validation import validate


def supported_operations(model: Model) -> list[bool]:
    """Return for each operation of the main subgraph whether it is executed, on the NPU or on the host.

    An IF or WHILE is, if all operations of its subgraphs are.

    Raises
    ------
    ModelInvalid
        If the model breaks a rule of NNAPI.
    """
    validate(model)
    return [_supported(model, model.main, operation) for operation in model.main.operations]


def _supported(model: Model, subgraph: Subgraph, operation: Operation) -> bool:
    if not known(OperationType(operation.type)):
        return False
    operands = [subgraph.operands[index] for index in operation.inputs]
    named = [o.location.offset for o in operands if o.lifetime is OperandLifeTime.SUBGRAPH]
    return all(
        _supported(model, model.referenced[index], inner)
        for index in named
        for inner in model.referenced[index].operations
    )
