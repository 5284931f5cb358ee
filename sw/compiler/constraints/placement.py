"""Where an operator is computed although the NPU may have it: its neighbours, its size, the options."""

from __future__ import annotations

from rkcosim.compiler.constraints.constraint import constraint


@constraint()
def known_operator(kind: str, known: bool) -> str:
    """The operator is in the table of docs/models.md."""
    return "" if known else f"the NPU has no operator {kind}"


@constraint()
def reads_the_npu(hosted: bool, inputs: tuple[str, ...]) -> str:
    """A small or moving operator has an input that is a result of the NPU."""
    return f"its inputs {_quoted(inputs)} are on the host" if hosted else ""


@constraint()
def between_npu_operations(computing: int, kind: str, movement: bool) -> str:
    """The NPU computes another operation of the model."""
    if computing:
        return ""
    what = "it only moves elements" if movement else f"{kind} has no arithmetic of its own"
    return f"{what}, and the NPU computes no other operation of the model"


@constraint("Softmax")
def followed_by_npu(followed: bool, output: str) -> str:
    """An operation of the NPU reads the result."""
    return "" if followed else f"no operation of the NPU reads the result '{output}'"


@constraint()
def readable_by_host(value: str, quantised: bool, after: bool) -> str:
    """A result that the host reads is quantised or in fp16, and not computed after the NPU's part."""
    if quantised:
        return ""
    return f"the host uses its result '{value}'" if after else f"its result '{value}' is not quantised"


@constraint()
def one_result(more: tuple[str, ...]) -> str:
    """The operator has only the results that the NPU computes."""
    return f"its result '{more[0]}' is not computed" if more else ""


def _quoted(names: tuple[str, ...]) -> str:
    return ", ".join(f"'{name}'" for name in names[:3]) + (" and others" if len(names) > 3 else "")
