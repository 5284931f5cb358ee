"""`rkcosim info`: what a model file of any kind contains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rkcosim.base import progress
from rkcosim.cli.app import command
from rkcosim.cli.options import ModelOptions


@dataclass(frozen=True, kw_only=True)
class InfoOptions(ModelOptions):
    """Options of `rkcosim info`."""


@command(
    "rkcosim info examples/digits/digits_int8.onnx",
    "rkcosim info model.tnnproto",
    "rkcosim info model.rknn --json - | jq .inputs",
)
def info_command(asked: InfoOptions) -> None:
    """Show the contents of a model file of any kind.

    That is its kind, operators, inputs and outputs, and what it needs on the NPU and on the host; of a .rknn
    file also toolkit, target, batch, mean, std, rgb2bgr and layout. `rkcosim rknn info` shows more of a .rknn
    file, and `rkcosim compile --explain` the plan.
    """
    from rkcosim.base.files import identify, read_model
    from rkcosim.cli.compile import print_summary, summarise
    from rkcosim.compiler.interpreters import find
    from rkcosim.compiler.model import naming_model
    from rkcosim.measure.models.hosted import host_work
    from rkcosim.model.signature import signature
    from rkcosim.rknn_file import is_rknn, read_rknn
    from rkcosim.rknn_file.info import origin_json, origin_lines
    from rkcosim.rknn_file.opening import open_model

    origin: Mapping[str, Any] = {}
    with progress.step(f"compiling {asked.model.name}"), asked.reading():
        data = read_model(asked.model)
        kind = identify(data)
        print(f"{asked.model.name}: {kind}, {len(data):,} bytes")
        with naming_model(asked.model):
            if is_rknn(data):  # also of a file whose lists cannot run
                file = read_rknn(data)
                origin = {"rknn": origin_json(file)}
                for line in origin_lines(file):
                    print("".join(c if c.isprintable() else "?" for c in line))
            compiled = open_model(data)
            declared: tuple[Sequence[Any], Sequence[Any]] = compiled.inputs, compiled.outputs
            if kind in ("ONNX model", "TFLite model"):
                declared = signature(data, compiled)
            found = find(data)
            types = dict(found.structure(data)) if found is not None and found.structure is not None else {}
    ports = {}
    for what, infos, types_in_file in zip(
        ("inputs", "outputs"), (compiled.inputs, compiled.outputs), declared, strict=True
    ):
        ports[what] = [_port(info, item.dtype) for info, item in zip(infos, types_in_file, strict=True)]
    if types:
        print(f"operators: {', '.join(f'{count} {name}' for name, count in types.items())}")
    for what, items in ports.items():
        for item in items:
            print(f"{what[:-1]} {item['name']}: {item['shape']} {item['type']}")
    summary = summarise(compiled)
    print_summary(asked.model.name, summary, host_work(compiled))
    said = {"model": asked.model.name, "kind": kind, "operators": types, **origin, **ports, **summary}
    asked.write(said, say=True)


def _port(info: Any, declared: Any) -> Mapping[str, Any]:
    """Return an input or output; floats have the type of the file, which the NPU may compute in fp16."""
    dtype = declared if info.dtype.kind == "f" else info.dtype
    quantised = f", scale {info.scale:.6g}, zero point {info.zero_point}" if info.quantised else ""
    return {"name": info.name, "shape": list(info.shape), "type": f"{dtype}{quantised}"}
