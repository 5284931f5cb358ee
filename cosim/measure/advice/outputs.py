"""Outputs in front of what only moves or decodes numbers, which the program then does itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from rkcosim.compiler.loaders.onnx_file import cut_outputs
from rkcosim.measure.advice.change import Change, NotApplicable, Subject
from rkcosim.measure.advice.net import Net, replace

TAIL = (
    *("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Concat", "Split", "Slice", "Gather"),
    *("Sigmoid", "Softmax", "LogSoftmax", "ArgMax", "TopK", "NonMaxSuppression", "GatherND", "Cast", "Exp"),
    *("Add", "Sub", "Mul", "Div", "Pow", "ReduceMax", "Expand", "Tile", "Shape", "Identity", "Resize"),
    *("DepthToSpace", "SpaceToDepth", "ReduceMean", "ReduceSum", "Clip", "Where", "Less", "Greater"),
)
"""Operators that a program can do behind the network."""

MOST = 24
"""Largest number of outputs that are made."""


def frontier(net: Net, name: str) -> dict[str, set[str]]:
    """Return the values behind which an output is only moved and decoded, and the nodes behind each."""
    found: dict[str, set[str]] = {}

    def walk(value: str, behind: set[str]) -> None:
        node = net.maker(value)
        if node is None:
            return
        reads = [one for one in node.input if one and net.array(one) is None]
        others = [user for user in net.users(net.real(value)) if user.name not in behind]
        tail = node.op_type in TAIL and not (others and behind)
        if not tail or any(net.real(one) not in net.makers for one in reads):
            found.setdefault(value, set()).update(behind)
            return
        for one in reads:
            walk(one, behind | {node.name})

    walk(name, set())
    return found


def candidates(net: Net, cycles: Mapping[str, int]) -> Iterator[Change]:
    """Yield one change that cuts all outputs, and one for each output."""
    total = dict[str, set[str]]()
    cuts: dict[str, list[str]] = {}
    for name in net.outputs:
        found = frontier(net, name)
        behind = set().union(*found.values()) if found else set()
        if behind and len(found) <= MOST:
            cuts[name] = list(found)
            total[name] = behind
    for name, values in cuts.items():
        if len(cuts) > 1:
            yield _change(net, f"output:{name}", [name], {name: values}, total[name], cycles)
    if cuts:
        every = set().union(*total.values())
        yield _change(net, "outputs", list(cuts), cuts, every, cycles)


def _change(
    net: Net,
    slug: str,
    names: list[str],
    cuts: Mapping[str, list[str]],
    behind: set[str],
    cycles: Mapping[str, int],
) -> Change:
    wanted = [value for name in net.outputs for value in cuts.get(name, [name])]
    kinds = sorted({net.node(node).op_type for node in behind})
    what = f"output '{names[0]}'" if len(names) == 1 else f"{len(names)} outputs"
    values = [value for name in names for value in cuts[name]]
    text = (
        f"end before {', '.join(kinds)} of {what}, which the program computes from "
        f"{', '.join(values[:3])}{' ...' if len(values) > 3 else ''}"
    )
    weight = float(sum(cycles.get(node, 0) for node in behind)) + 1
    return Change(
        "outputs", slug, text, "program", _cut(wanted), weight, "" if len(names) == 1 else "outputs"
    )


def _cut(values: list[str]) -> Callable[[Subject], Subject]:
    def apply(subject: Subject) -> Subject:
        net = Net(subject.model)
        wanted = [value for value in dict.fromkeys(values) if value in net.makers]
        if len(wanted) < len(dict.fromkeys(values)) or wanted == net.outputs:
            raise NotApplicable("the outputs have been changed already")
        return replace(subject, model=cut_outputs(net.proto, wanted).SerializeToString())

    return apply
