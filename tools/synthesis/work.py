"""All runs: the modules of the core from its sources, and the results that are known already."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rkcosim.engines.plain_names import plain_rtlil
from rkcosim.engines.toolchain import yosys
from rkcosim.engines.verilog import drop_zero_memories, rtl_hash, rtlil_of, text_fingerprint
from rkcosim.spec.config import RK3588, NpuConfig
from rkcosim.waves.whole_file import whole_file
from tools.synthesis import flows
from tools.synthesis.flows import FLOWS, PREPARE, Bounds
from tools.synthesis.modules import Hierarchy, Unit, divided

TOP = "npu_core"

DIVIDED_FROM = 200
"""A module with at least as many multiplications has its operators as modules."""

TEXT_VERSION = 1  # to be incremented when `core` gives other texts

BATCH_BYTES = 120_000
"""Modules are synthesised together until their texts are longer."""


class SynthesisError(Exception):
    """A step that every result needs failed."""


def core(folder: Path, config: NpuConfig = RK3588) -> Hierarchy:
    """Return the modules of the core, from the folder if its RTL has not changed since."""
    described = "" if config == RK3588 else f" {config!r}"
    key = hashlib.sha256(f"{TEXT_VERSION} {rtl_hash()} {DIVIDED_FROM} {PREPARE}{described}".encode())
    key.update(text_fingerprint())
    kept, text = folder / f"{TOP}.key", folder / f"{TOP}.il"
    known = rtl_hash() is not None and kept.is_file() and kept.read_text() == key.hexdigest()
    if not known:
        from rkcosim.rtl.core import NpuCore  # elaborated only if the text is not known

        made = plain_rtlil(drop_zero_memories(rtlil_of(NpuCore(config), TOP, sources=True)), TOP)
        whole = Hierarchy(made, TOP)
        folder.mkdir(parents=True, exist_ok=True)
        with whole_file(text) as part:
            part.write_text("".join(divide_large(whole.units.values())))
        kept.write_text(key.hexdigest())
    return Hierarchy(text.read_text(), TOP)


def divide_large(units: Iterable[Unit]) -> Iterable[str]:
    """Return the texts of modules, in which the operators of those with many are modules.

    Raises
    ------
    SynthesisError
        If Yosys fails.
    """
    made: dict[str, str] = {}
    texts = []
    for unit in units:
        text = unit.text
        if unit.cells["$mul"] >= DIVIDED_FROM:
            with tempfile.TemporaryDirectory(prefix="synthesis-") as name:
                place = Path(name)
                (place / "top.il").write_text(text)
                lines = ["read_rtlil top.il", *PREPARE, f"select -module {unit.name}"]
                done = flows.script([*lines, "write_rtlil -selected out.il"], place, Bounds())
                if isinstance(done, str):
                    raise SynthesisError(f"{unit.name}: {done}")
                written = (place / "out.il").read_text()
            text, operators = divided(written[written.index("attribute") :], "npu_op")
            made |= operators
        texts.append(text)
    return [*texts, *made.values()]


def script_of(flow: str, source: str) -> str:
    """The script of a flow for a module: the fast one if its text is long."""
    return f"{flow} fast" if len(source) > flows.FAST_BYTES else flow


def key_of(flow: str, source: str) -> str:
    """What a result depends on, as a hash."""
    flow = script_of(flow, source)
    digest = hashlib.sha256(yosys().version.encode())
    files = (flows.CONSTRAINTS, flows.MACROS, flows.PINS) if flow.startswith("cells") else ()
    digest.update("\n".join((*FLOWS[flow], *files, source)).encode())
    return digest.hexdigest()


def known(path: Path, key: str, bounds: Bounds) -> dict[str, Any] | None:
    """A kept result, unless its key is another one or it failed with smaller bounds."""
    if not path.is_file():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if found["key"] != key:
        return None
    if "error" in found and (found["bounds"][0] < bounds.seconds or found["bounds"][1] < bounds.memory):
        return None
    return found


def batches(hierarchy: Hierarchy, names: Iterable[str]) -> list[list[str]]:
    """Modules that are synthesised together: small ones, since a process needs seconds to start."""
    out: list[list[str]] = []
    size = BATCH_BYTES
    for name in sorted(names, key=lambda name: (len(hierarchy.units[name].text), name)):
        size += len(hierarchy.units[name].text)
        if size > BATCH_BYTES:
            out.append([])
            size = len(hierarchy.units[name].text)
        out[-1].append(name)
    return out


def measure(
    hierarchy: Hierarchy,
    flow: str,
    names: Iterable[str],
    folder: Path,
    *,
    jobs: int,
    bounds: Bounds,
    told: Callable[[str, dict[str, Any]], None] = lambda name, found: None,
) -> dict[str, dict[str, Any]]:
    """Return the result of a flow for modules; those that are not in the folder are made and kept there.

    Modules of a batch that fails are tried one by one. Without `jobs` nothing is made.
    """
    place = folder / flow
    place.mkdir(parents=True, exist_ok=True)
    wanted = {hierarchy.representative(name) for name in names}
    keys = {name: key_of(flow, hierarchy.source(name)) for name in wanted}
    results = {name: known(place / f"{name}.json", keys[name], bounds) for name in wanted}

    def several(tops: list[str]) -> None:
        # Another run in the same folder may have made some of them in the meantime.
        for top in tops:
            results[top] = known(place / f"{top}.json", keys[top], bounds)
        tops = [top for top in tops if results[top] is None]
        if not tops:
            return
        source = hierarchy.source(*tops)
        found = flows.run(script_of(flow, source), tops, source, folder / "netlists", bounds)
        if len(tops) > 1 and any("error" in result for result in found.values()):
            for top in tops:
                several([top])
            return
        for top, result in found.items():
            results[top] = result | {"key": keys[top], "bounds": [bounds.seconds, bounds.memory]}
            with whole_file(place / f"{top}.json") as part:
                part.write_text(json.dumps(results[top], indent=1) + "\n")
            told(top, result)

    missing = [name for name, found in results.items() if found is None] if jobs else []
    with ThreadPoolExecutor(max(jobs, 1)) as pool:
        list(pool.map(several, batches(hierarchy, missing)))
    return {name: found for name, found in results.items() if found is not None}
