"""The table of operators, and a call of one: its arguments are checked, its errors become results."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from rkcosim.apis.diopi.bounds import check_bound
from rkcosim.apis.diopi.enums import Error
from rkcosim.apis.diopi.npu import Network
from rkcosim.apis.diopi.runtime import NPU, Context, set_last_error
from rkcosim.apis.diopi.tensor import TensorP, diopiTensor
from rkcosim.apis.diopi.values import DiopiError, diopiScalar, diopiSize

Array = npt.NDArray[Any]
Host = Callable[..., Any]

HOST_ONLY = "the NPU has no form of it"

OPERATORS: dict[str, Callable[..., Error]] = {}
"""By name, with the prefix diopi."""

FAILURES = (ArithmeticError, AssertionError, IndexError, MemoryError, TypeError, ValueError)
"""Errors of numpy for sizes that do not fit; they are the operator's error."""


@dataclass(frozen=True)
class OperatorCall:
    """One call of an operator: its results are written together at its end, and none if it fails.

    Members
    -------
    name : for reports and errors.
    made : the tensors of its results, with their elements.
    """

    name: str
    made: list[tuple[Array, Array]] = field(default_factory=list)

    def put(self, out: diopiTensor, value: Any) -> None:
        """Keep a result, rounded or converted to the tensor's type, until the call's end.

        Raises
        ------
        DiopiError
            if the tensor has another shape.
        """
        target, made = out.array(), np.asarray(value)
        if made.shape != target.shape:
            raise DiopiError(f"out has the shape {target.shape}, the result {made.shape}")
        with np.errstate(all="ignore"):
            if made.dtype.kind in "fc" and target.dtype.kind in "iu":
                made = made.astype(np.int64)
            self.made.append((target, made.astype(target.dtype)))

    def write(self) -> None:
        """Write the results into their tensors."""
        for target, elements in self.made:
            target[...] = elements

    def compute(
        self,
        out: diopiTensor,
        arrays: Sequence[Array],
        host: Host,
        network: Callable[[], Network | str],
        sums: Host | None = None,
    ) -> None:
        """Compute an operator on the NPU if it can, otherwise on the host.

        Parameters
        ----------
        out : the tensor of the result.
        arrays : the operands, whose types decide.
        host : computes the result with numpy from the operands.
        network : makes the operator for the NPU, or says why there is none.
        sums : computes bounds of the partial sums from the operands' magnitudes, for `NPU.compare`; without
            it the largest magnitude of operands and result is the bound.

        Raises
        ------
        DiopiError
            also if `NPU.compare` is set and the NPU's result is not within its bound of the host's.
        """
        reason = NPU.takes([*arrays, out.array()])
        if reason is None:
            made = network()
            if not isinstance(made, str) and drops_nan(made):
                made = "NaN, of which the NPU's comparisons and tables make numbers"
            found = made if isinstance(made, str) else NPU.run(self.name, made)
            if not isinstance(found, str) and overflowed(found, arrays, host):
                NPU.taken_back(self.name)
                found = "a number between is beyond fp16, the result is not"
            if not isinstance(found, str):
                if NPU.compare:
                    check_bound(found, arrays, host, sums)
                self.put(out, found)
                return
            reason = found
        self.on_host(out, lambda: host(*arrays), reason)

    def on_host(self, out: diopiTensor, host: Callable[[], Any], reason: str = HOST_ONLY) -> None:
        """Compute an operator with numpy; the reason is for reports."""
        NPU.on_host(self.name, reason)
        with np.errstate(all="ignore"):
            value = host()
        self.put(out, value)


def overflowed(found: Array, arrays: Sequence[Array], host: Host) -> bool:
    """Whether a result of the NPU is infinite or NaN where the host's is a number of fp16."""
    if np.isfinite(found).all():
        return False
    with np.errstate(all="ignore"):
        right = np.asarray(host(*arrays)).astype(np.float16)
    return bool((np.isfinite(right) & ~np.isfinite(found.reshape(right.shape))).any())


DROPPING = {"Clip", "HardSwish", "Max", "Min", "Sigmoid", "Tanh"}
"""Types of nodes that make numbers of NaN on the NPU: its EW compares [HW 7.8], its tables have limits."""


def drops_nan(network: Network) -> bool:
    """Whether an operand has NaN and the NPU would lose it."""
    if not any(node.kind in DROPPING for node in network.nodes):
        return False
    return any(bool(np.isnan(array).any()) for array in network.feeds.values())


Function = Callable[..., None]
KINDS = {diopiTensor: "a tensor", diopiSize: "a size", diopiScalar: "a scalar"}


def operator(name: str, *, inplace: bool = False) -> Callable[[Function], Function]:
    """Register an operator.

    Parameters
    ----------
    name : without the prefix diopi.
    inplace : also register the form in place, which has no `out` and whose result replaces the first input:
        `<name>Inp`, or `<name>InpScalar` of `<name>Scalar`.
    """

    def register(function: Function) -> Function:
        whole = f"diopi{name}"
        OPERATORS[whole] = _called(whole, function)
        if inplace:

            def in_place(call: OperatorCall, input: diopiTensor, *rest: Any) -> None:
                function(call, input, input, *rest)

            plain = whole.removesuffix("Scalar")
            other = f"{plain}Inp{whole[len(plain) :]}"
            OPERATORS[other] = _called(other, in_place, function)
        return function

    return register


def _called(name: str, function: Function, declared: Function | None = None) -> Callable[..., Error]:
    """Return the function that callers see."""
    hints = get_type_hints(declared or function)
    parameters = list(inspect.signature(declared or function).parameters.values())[1:]
    if declared is not None:
        parameters = parameters[1:]  # no `out`
    signature = inspect.Signature(parameters)

    def call(context: Context, *arguments: Any) -> Error:
        bound = signature.bind(*arguments)  # TypeError for a wrong number, as from a C++ binding
        bound.apply_defaults()
        try:
            if not isinstance(context, Context):
                raise DiopiError("the context is null")
            for place, value in bound.arguments.items():
                _check(place, value, hints[place])
            context.synchronize()
            begun = OperatorCall(name)
            function(begun, *bound.arguments.values())
            begun.write()
        except DiopiError as error:
            set_last_error(f"{name}: {error}")
            return error.code
        except FAILURES as error:
            set_last_error(f"{name}: {error}")
            return Error.diopi_error_occurred
        return Error.diopi_success

    call.__name__ = call.__qualname__ = name
    call.__doc__ = (declared or function).__doc__
    return call


def _check(place: str, value: Any, hint: Any) -> None:
    """Raise DiopiError for an argument of another type; a None stands for a null pointer."""
    allowed = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if value is None:
        if type(None) not in allowed:
            raise DiopiError(f"{place} is null")
        return
    for kind in allowed:
        plain = get_origin(kind) or kind
        if isinstance(value, plain) or (plain is float and isinstance(value, int)):
            return
        if plain is int and isinstance(value, np.integer):
            return
    wanted = KINDS.get(allowed[0], getattr(allowed[0], "__name__", "another type"))
    raise DiopiError(f"{place} is {type(value).__name__}, not {wanted}")


def tensors_of(pointers: list[TensorP], count: int) -> list[diopiTensor]:
    """Return the tensors of a list of pointers; raises DiopiError for a null pointer or a wrong number."""
    if not 0 <= count <= len(pointers):
        raise DiopiError(f"{count} tensors of a list of {len(pointers)}")
    made = [one.data() if isinstance(one, TensorP) else one for one in pointers[:count]]
    for index, tensor in enumerate(made):
        if not isinstance(tensor, diopiTensor):
            raise DiopiError(f"tensor {index} of the list is null")
    return made


def axis_of(dim: int, rank: int) -> int:
    """Return an axis from 0; raises DiopiError if there is none."""
    if not -max(rank, 1) <= dim < max(rank, 1):
        raise DiopiError(f"axis {dim} of a tensor of rank {rank}")
    return dim % max(rank, 1)


def axes_of(dims: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return axes from 0, all of them for an empty list; raises DiopiError for an axis given twice."""
    made = tuple(axis_of(dim, rank) for dim in dims) if rank else ()
    if len(set(made)) != len(made):
        raise DiopiError(f"an axis is given twice: {list(dims)}")
    return made or tuple(range(rank))
