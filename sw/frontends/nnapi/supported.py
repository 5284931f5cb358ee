"""Which operations of a model can be executed here."""

from __future__ import annotations

from rkcosim.frontends.nnapi import prepared
from rkcosim.frontends.nnapi.model import Model
from rkcosim.frontends.nnapi.operations import OperationType
from rkcosim.frontends.nnapi.values import HOST


def supported_operations(model: Model) -> list[bool]:
    """Return for each operation of the main subgraph whether it is executed, on the NPU or on the host.

    Raises
    ------
    ModelInvalid
        If the model breaks a rule of NNAPI.
    """
    assert prepared.MODULES  # they fill the registry
    prepared.validate(model)
    return [OperationType(operation.type) in HOST for operation in model.main.operations]
