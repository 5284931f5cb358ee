"""Report of the contents of a `.rknn` file, as text and as JSON: nodes, tensors, tasks, memory, addresses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rkcosim.regcmd.word import WORD_BYTES, blocks_of_mask
from rkcosim.rknn_file.container import FileNode, FileTensor, RknnFile
from rkcosim.rknn_file.schema import TARGET, Kind, Layout
from rkcosim.spec.regs import registers

SCHEMA_VERSION = 1
"""Version of the JSON form of `info_json`."""

NAME = 32
"""Maximum number of characters of a name in a line."""


def info_json(file: RknnFile) -> dict[str, Any]:
    """Return the contents of the file for `json.dump`.

    Returns
    -------
    dict with `version`, `compiler`, `framework`, `ours`, `bytes` and the members of `origin_json`; `inputs`
    and `outputs`, indices of `tensors`; `nodes`, each with its `tasks` by number of cores and core; `memory`
    in bytes; `plans`, the number of tasks of each core by number of cores; `tasks`, the records; `addresses`,
    one for each relocated word.
    """
    counts = _counts(file)
    return {
        "schema_version": SCHEMA_VERSION,
        "version": file.version,
        "compiler": file.compiler,
        "framework": file.framework,
        "ours": file.ours,
        **origin_json(file),
        "bytes": file.size,
        "inputs": list(file.inputs),
        "outputs": list(file.outputs),
        "memory": memory_json(file),
        "plans": {str(cores): [len(part) for part in parts] for cores, parts in file.plans.items()},
        "nodes": [_node_json(node, counts) for node in file.nodes],
        "tensors": [_tensor_json(tensor) for tensor in file.tensors],
        "tasks": list(tasks_json(file)),
        "addresses": list(addresses(file)),
        "notes": list(file.notes),
    }


def origin_json(file: RknnFile) -> dict[str, Any]:
    """Return what a user asks of a file first.

    Returns
    -------
    dict with `toolkit` (version) and `target`; `batch`, the number of samples that a program gives at once;
    `preprocessing`, for each input by its name `mean`, `std`, `rgb2bgr` and the `layout` of a program's
    numbers; `host_operators`, the number of nodes on the host by type.
    """
    before = {}
    for number in file.inputs:
        tensor, own = file.tensors[number], file.preprocessing.get(number)
        if own is not None:
            before[tensor.name] = {
                "mean": list(own.mean),
                "std": list(own.std),
                "rgb2bgr": own.reverse,
                "layout": "NHWC" if len(tensor.shape) == 4 else "as the shape",
            }
    hosted = Counter(node.type for node in file.nodes if not node.on_npu and not node.is_border)
    return {
        "toolkit": file.compiler.partition("(")[0].strip(),
        "target": TARGET,
        "batch": file.batch,
        "preprocessing": before,
        "host_operators": dict(hosted),
    }


def origin_lines(file: RknnFile) -> Iterator[str]:
    """Yield lines about toolkit, target, batch, preprocessing of the inputs, and operators on the host."""
    said = origin_json(file)
    yield (
        f"toolkit: {said['toolkit'] or 'not named'}, for {said['target']}, from "
        f"{file.framework or 'an unknown format'}, container version {file.version}"
    )
    yield f"batch: {file.batch} sample{'s' * (file.batch > 1)} at once"
    for name, own in said["preprocessing"].items():
        mean, std = (", ".join(f"{value:.6g}" for value in own[part]) for part in ("mean", "std"))
        yield (
            f"input {name}: mean {mean}, std {std}, rgb2bgr {str(own['rgb2bgr']).lower()}, layout "
            f"{own['layout']}"
        )
    hosted = ", ".join(f"{count} {kind}" for kind, count in said["host_operators"].items())
    yield f"host operators: {hosted or 'none'}"


def memory_json(file: RknnFile) -> dict[str, int]:
    """Return the sizes in bytes of weights, commands, internal buffer, and activations without sharing."""
    separate = sum(max(t.size, 64) for t in file.tensors if t.activation)
    return {
        "weights": file.weight_bytes,
        "commands": file.regcmd_bytes,
        "internal": file.internal_bytes,
        "activations_separate": separate,
    }


def _counts(file: RknnFile) -> dict[int, list[Counter[int]]]:
    """Count the tasks of each node, by number of cores and core."""
    return {
        cores: [Counter(file.records[n].node for n in part) for part in parts]
        for cores, parts in file.plans.items()
    }


def _node_json(node: FileNode, counts: Mapping[int, list[Counter[int]]]) -> dict[str, Any]:
    attributes = {k: list(v) if isinstance(v, tuple) else v for k, v in node.attributes.items()}
    return {
        "index": node.index,
        "type": node.type,
        "name": node.name,
        "on": "npu" if node.on_npu else "host",
        "inputs": list(node.inputs),
        "outputs": list(node.outputs),
        "attributes": attributes,
        "tasks": {str(cores): [part[node.index] for part in parts] for cores, parts in counts.items()},
    }


def _tensor_json(tensor: FileTensor) -> dict[str, Any]:
    return {
        "index": tensor.index,
        "name": tensor.name,
        "kind": _name(Kind, tensor.kind),
        "layout": _name(Layout, tensor.layout),
        "dtype": str(tensor.dtype) if tensor.dtype is not None else None,
        "shape": list(tensor.shape),
        "native": list(tensor.native),
        "scale": tensor.scale,
        "zero_point": tensor.zero_point,
        "bytes": tensor.size,
        "offset": tensor.offset if tensor.activation else None,
        "data_bytes": len(tensor.data),
        "compressed_segments": len(tensor.segments),
    }


def _name(kinds: Any, code: int) -> str:
    """Return the name of a code in lower case, or the number of an unknown code."""
    return kinds(code).name.lower() if code in list(kinds) else str(code)


def tasks_json(file: RknnFile) -> Iterator[dict[str, Any]]:
    """Yield the task records in the order of the file, with their plan and core."""
    where = {
        number: (cores, core)
        for cores, parts in file.plans.items()
        for core, part in enumerate(parts)
        for number in part
    }
    for number, record in enumerate(file.records):
        cores, core = where.get(number, (0, 0))
        yield {
            "index": number,
            "cores": cores,
            "core": core,
            "node": record.node,
            "blocks": blocks_of_mask(record.enable_mask),
            "int_mask": record.int_mask,
            "offset": record.first * WORD_BYTES,
            "words": record.amount,
        }


def addresses(file: RknnFile) -> Iterator[dict[str, Any]]:
    """Yield index, register, tensor and offset within the tensor of each relocated word."""
    decode = registers().word.decode
    for word, target in sorted(file.relocations.items()):
        offset = decode(int(file.words[word]))["OFFSET"]
        register = registers().at(offset)
        yield {
            "word": word,
            "register": register.path if register is not None else f"0x{offset:04X}",
            "tensor": target.tensor,
            "name": file.tensors[target.tensor].name,
            "offset": target.offset,
        }


def info_lines(file: RknnFile, words: bool = False) -> Iterator[str]:
    """Yield the lines of the report; with `words` also each relocated word, by task."""
    made_by = "rkcosim" if file.ours else "the vendor's compiler"
    yield (
        f".rknn file, container version {file.version}, {file.size:,} bytes, by {made_by}: "
        f"{file.compiler or 'no compiler named'}, from {file.framework or 'an unknown format'}"
    )
    yield from origin_lines(file)
    memory = memory_json(file)
    yield (
        f"memory: weights {memory['weights']:,}, commands {memory['commands']:,}, internal "
        f"{memory['internal']:,} bytes (each tensor in separate memory "
        f"{memory['activations_separate']:,})"
    )
    plans = [
        f"{cores} core{'s' * (cores > 1)} {' + '.join(str(len(p)) for p in parts)}"
        for cores, parts in file.plans.items()
    ]
    yield f"tasks: {', '.join(plans)}; {len(file.relocations):,} words hold addresses"
    for what, numbers in (("input", file.inputs), ("output", file.outputs)):
        for number in numbers:
            yield f"{what:6} {_tensor_text(file.tensors[number])}"
    yield ""
    counts = _counts(file)
    yield f"{'node':>4} {'type':<16} {'name':<{NAME}} {'on':<5} {'tasks for 1, 2, 3 cores':<24} tensors"
    for node in file.nodes:
        if node.is_border:
            continue
        own = [[part[node.index] for part in parts] for parts in counts.values()]
        shown = ", ".join("+".join(map(str, c)) if sum(c) else "0" for c in own)
        reads = [file.tensors[n] for n in node.inputs if file.tensors[n].activation]
        reads = [t for t in reads if not t.name.endswith("_exSecondary")]
        writes = [file.tensors[n] for n in node.outputs]
        on = "npu" if node.on_npu else "host"
        text = f"{_shapes(reads)} -> {_shapes(writes)}"
        yield f"{node.index:4} {node.type:<16} {_short(node.name):<{NAME}} {on:<5} {shown:<24} {text}"
    if words:
        yield ""
        yield from _word_lines(file)
    for note in file.notes:
        yield f"note: {note}"


def _word_lines(file: RknnFile) -> Iterator[str]:
    at = {item["word"]: item for item in addresses(file)}
    for item in tasks_json(file):
        cores = f"{item['cores']} core{'s' * (item['cores'] > 1)}, core {item['core']}"
        blocks = " ".join(item["blocks"])
        node = file.nodes[item["node"]].name
        size = f"{item['words']} words from {item['offset']}"
        yield f"task {item['index']} ({cores}) of {node}: {size}, {blocks}"
        first = item["offset"] // WORD_BYTES
        for word in range(first, first + item["words"]):
            if word in at:
                found = at[word]
                yield f"  word {word:6} {found['register']:<28} {found['name']} + {found['offset']}"


def _tensor_text(tensor: FileTensor) -> str:
    quantised = ""
    if tensor.dtype is not None and tensor.dtype.kind in "iu":
        quantised = f", scale {tensor.scale:.6g}, zero point {tensor.zero_point}"
    return (
        f"{tensor.name} {list(tensor.shape)} {tensor.dtype}{quantised}, "
        f"{tensor.size:,} bytes at {tensor.offset:,} as {list(tensor.native)}"
    )


def _shapes(tensors: Sequence[FileTensor]) -> str:
    """Return shapes and types, with scale and zero point for quantised tensors."""
    return " + ".join(_shape(tensor) for tensor in tensors) or "nothing"


def _shape(tensor: FileTensor) -> str:
    text = f"{'x'.join(map(str, tensor.shape))} {tensor.dtype}"
    quantised = tensor.dtype is not None and tensor.dtype.kind in "iu"
    return f"{text} ({tensor.scale:.4g}, {tensor.zero_point})" if quantised else text


def _short(name: str) -> str:
    return name if len(name) <= NAME else name[: NAME - 3] + "..."
