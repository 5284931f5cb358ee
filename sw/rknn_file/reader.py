"""Reader of `.rknn` files: header, flatbuffer and trailing JSON; `version2` and `version6` read the graph.

Container version 1 (toolkit 1.2) is version 2 with the flatbuffer directly behind the header of 24 bytes:
Zhou-sx/yolov5_Deepsort_rknn 17f0417f, `model/osnet_x0_25_market.rknn`.
"""

from __future__ import annotations

import json
import re

from rkcosim.rknn_file import schema, version2, version6
from rkcosim.rknn_file.container import RknnFile, read_tensor
from rkcosim.rknn_file.inputs import read_batch, read_preprocessing
from rkcosim.rknn_file.schema import GraphSlot, Root
from rkcosim.rknn_file.tables import RknnFileError, root_table


def read_rknn(data: bytes) -> RknnFile:
    """Read a `.rknn` file.

    Raises
    ------
    RknnFileError
        if the file is damaged or encrypted, or has another version or target; the message names the place.
    """
    buffer, version, trailer = _parts(data)
    root = root_table(buffer, "root table")
    target = root.text(Root.TARGET)
    if target != schema.TARGET:
        shown = target[:40] or "none"
        raise RknnFileError(f".rknn file for the target platform '{shown}'; {schema.TARGET} is supported")
    _check_trailer(trailer)
    graphs = list(root.tables(Root.GRAPHS, "graph"))
    if len(graphs) != 1:
        raise RknnFileError(f".rknn file with {len(graphs)} graphs; one is supported")
    shapes = root.text(Root.SHAPES)
    if shapes not in ("", "static_shape"):
        raise RknnFileError(
            f".rknn file with shapes of the kind '{shapes[:40]}'; 'static_shape' is supported"
        )
    sections_slot = Root.SECTIONS if version == schema.Version.TOOLKIT_2 else Root.SECTIONS_V2
    sections = [table.bytes(0) for table in root.tables(sections_slot, "section")]
    tensors = [
        read_tensor(table, n, sections)
        for n, table in enumerate(graphs[0].tables(GraphSlot.TENSORS, "tensor"))
    ]
    read_graph = version6.read_graph if version == schema.Version.TOOLKIT_2 else version2.read_graph
    file = read_graph(root, graphs[0], tensors, len(data))
    file.version = version
    file.batch = read_batch(root)
    file.preprocessing, notes = read_preprocessing(root, tensors, file.inputs, file.ours)
    file.notes += notes
    return file


def _parts(data: bytes) -> tuple[bytes, int, bytes]:
    """Return flatbuffer, version and trailing JSON."""
    if data[:8] == schema.ENCRYPTED:
        raise RknnFileError("encrypted .rknn file (CYPTRKNN); only its maker can read it")
    if data[:8] != schema.MAGIC:
        raise RknnFileError(f"not a .rknn file: it begins with {data[:8].hex(' ') or 'nothing'}")
    if len(data) < schema.FLATBUFFER_AT:
        raise RknnFileError(f"damaged .rknn file: {len(data)} bytes are less than its header")
    _, version, length = schema.HEADER.unpack_from(data)
    known = [int(v) for v in schema.Version]
    if version not in known:
        chip = _chip(data, version)
        raise RknnFileError(
            f".rknn file{f' for {chip}' * bool(chip)} of container version {version}; versions "
            f"{', '.join(map(str, known[:-1]))} and {known[-1]} for {schema.TARGET} are read"
        )
    start = schema.FLATBUFFER_AT_V1 if version == schema.Version.FIRST else schema.FLATBUFFER_AT
    end = start + length
    if end > len(data):
        raise RknnFileError(
            f"damaged .rknn file: a flatbuffer of {length} bytes from {start} on, "
            f"but the file has {len(data)}"
        )
    buffer = data[start:end]
    if buffer[4:8] != schema.IDENTIFIER:
        if (chip := _chip(data, version)) and schema.TARGET not in chip:
            raise RknnFileError(
                f".rknn file for {chip}, of another toolkit: no flatbuffer follows its header; files for "
                f"{schema.TARGET} are read"
            )
        raise RknnFileError(f"damaged .rknn file: the flatbuffer's identifier is {buffer[4:8].hex(' ')}")
    if len(data) < end + 8:
        return buffer, version, b""
    size = int.from_bytes(data[end : end + 8], "little")
    if size > len(data) - end - 8:
        raise RknnFileError(f"damaged .rknn file: {size} bytes of JSON at {end + 8}, but it has {len(data)}")
    return buffer, version, data[end + 8 : end + 8 + size]


def _chip(data: bytes, version: int) -> str:
    """Return the target platforms of a file in an unknown container, "" if nothing names them."""
    start = max(0, len(data) - schema.TRAILER_MOST)
    if named := schema.PLATFORMS.search(data, start):
        return " or ".join(text.decode() for text in re.findall(rb'"([\w-]{1,20})"', named[1])[:4])
    if data.find(schema.OTHER_NPU, start) >= 0:
        return schema.OTHER_CHIPS
    return schema.CHIPS.get(version, "")


def _check_trailer(text: bytes) -> None:
    """Raise RknnFileError if the JSON names only other target platforms; a file without JSON passes."""
    if not text:
        return
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RknnFileError(f"damaged .rknn file: its JSON cannot be read: {error}") from error
    platforms = said.get("target_platform", [schema.TARGET]) if isinstance(said, dict) else None
    if not isinstance(platforms, list) or schema.TARGET not in platforms:
        raise RknnFileError(f".rknn file whose JSON names the target platforms {str(platforms)[:80]}")
