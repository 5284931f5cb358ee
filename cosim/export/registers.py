"""The register description in the forms of other tools: the implementation of `rkcosim registers`.

The exporters are PeakRDL's; SystemRDL, the C header, JSON and SVD need no further package. SVD is written
here: `peakrdl-svd` reads it only, and the writer of `cmsis-svd` 0.6 repeats the description of each field,
which the schema forbids.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import rkcosim.spec.regs
from rkcosim.base import extras, versioned
from rkcosim.export.export import version
from rkcosim.export.ports import ExportError
from rkcosim.spec.config import RK3588
from rkcosim.spec.regs.cheader import header
from rkcosim.spec.regs.compile import elaborated
from rkcosim.spec.regs.counters import BASE_ADDRESS, WINDOW_BYTES
from rkcosim.spec.regs.table import (
    BLOCK_BYTES,
    CORE_ADDRESS,
    CORE_BYTES,
    TOP,
    Field,
    Register,
    counter_registers,
    one_file,
    registers,
)
from rkcosim.waves.whole_file import make_folder, named, whole_file

FORMATS: dict[str, str] = {
    "rdl": "SystemRDL in one file, of core, counters and command word",
    "uvm": "register model for UVM in SystemVerilog (peakrdl-uvm)",
    "pyuvm": "register model for pyuvm (peakrdl-pyuvm)",
    "c": "C header of the core's registers and of command words",
    "html": "a folder of pages (peakrdl-html)",
    "json": "all blocks, registers and fields",
    "svd": "CMSIS-SVD for debuggers, of all cores and their counters",
}
"""What each form is."""

MAPS: dict[str, str] = {"core": "npu_core", "counters": "npu_counters"}
"""Address maps of the description by the name that commands use."""

_BY_MAP = ("uvm", "pyuvm", "html")
"""Forms that hold one address map, which `window` chooses."""

_MODULES = {
    "uvm": "peakrdl_uvm",
    "pyuvm": "peakrdl_pyuvm",
    "html": "peakrdl_html",
}
"""Module of the package that writes a form."""


def export_registers(form: str, path: Path, *, window: str = "core") -> None:
    """Write the registers in one form; the output is whole or does not appear.

    Parameters
    ----------
    form : a key of `FORMATS`.
    path : the file; for `html` a folder, which must be absent or empty.
    window : a key of `MAPS`; for forms that hold one address map ("uvm", "pyuvm", "html").

    Raises
    ------
    ExportError
        for an unknown form or window, a window that the form does not take, or a folder with other files.
    MissingPackage
        if the package that writes the form is not installed; it names the extra that brings it.
    """
    if form not in FORMATS:
        raise ExportError(f"no form of the registers is named {form!r}; there are {', '.join(FORMATS)}")
    if window not in MAPS:
        raise ExportError(f"no window of registers is named {window!r}; there are {', '.join(MAPS)}")
    if window != "core" and form not in _BY_MAP:
        raise ExportError(f"the form {form} has no choice of a window; {', '.join(_BY_MAP)} have one")
    texts: dict[str, Callable[[], str]] = {"rdl": one_file, "c": header, "json": _as_json, "svd": _as_svd}
    if form in texts:
        text = texts[form]()
        with whole_file(path) as part:
            part.write_text(text, "utf-8")
        return
    with tempfile.TemporaryDirectory(prefix="rkcosim-registers-") as folder:
        made = Path(folder, path.name or "registers")  # exporters name packages as the file
        _by_peakrdl(form, made, window)
        if form == "html":
            _place_folder(made, path)
            return
        with whole_file(path) as part:
            shutil.copyfile(made, part)


def _by_peakrdl(form: str, path: Path, window: str) -> None:
    with extras.needed(_MODULES[form], f"the form {form}"):
        top = elaborated(Path(str(resources.files(rkcosim.spec.regs) / TOP)), MAPS[window])
        if form == "uvm":
            from peakrdl_uvm import UVMExporter

            UVMExporter().export(top, str(path))
        elif form == "pyuvm":
            from peakrdl_pyuvm.exporter import PyUVMExporter

            PyUVMExporter().export(top, str(path))
        else:
            from peakrdl_html import HTMLExporter

            HTMLExporter(generate_source_links=False).export(
                top, str(path), title=str(top.get_property("name"))
            )


def _place_folder(made: Path, path: Path) -> None:
    """Move a folder of pages to its place, which must be absent or empty."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ExportError(f"{path} exists; pages are written to a folder that is absent or empty")
    with named(path):
        make_folder(path)
        part = Path(tempfile.mkdtemp(prefix=f"{path.name}.", suffix=".part", dir=path.parent))
        try:
            shutil.copytree(made, part, dirs_exist_ok=True)
            part.chmod(0o755)
            part.rename(path)  # takes the place of an empty folder, too
        finally:
            shutil.rmtree(part, ignore_errors=True)


def _as_json() -> str:
    described = {"core": registers(), "counters": counter_registers()}
    document = {
        "windows": {
            name: [
                {
                    "name": block.name,
                    "base": block.base,
                    "target": block.target or None,
                    "description": block.desc,
                    "registers": [_register(register) for register in block],
                }
                for block in window
            ]
            for name, window in described.items()
        },
        "word": _register(registers().word),
    }
    return json.dumps(versioned(document), indent=1) + "\n"


def _register(register: Register) -> dict[str, Any]:
    return {
        "name": register.name,
        "offset": register.offset,
        "width": register.width,
        "reset": register.reset,
        "groups": 2 if register.shadowed else 1,
        "description": register.desc,
        "fields": [_field(field) for field in register.fields.values()],
    }


def _field(field: Field) -> dict[str, Any]:
    known = asdict(field)
    known["description"], known["access"] = known.pop("desc"), known.pop("sw")
    return known


_Item = tuple[str, "str | list[_Item]"]
"""An element of XML: its name, and its text or the elements in it."""


def _element(name: str, content: str | list[_Item]) -> ElementTree.Element:
    made = ElementTree.Element(name)
    if isinstance(content, str):
        made.text = content
    else:
        made.extend(_element(*item) for item in content)
    return made


def _as_svd() -> str:
    """Return CMSIS-SVD 1.3; elements have the order that its schema requires."""
    blocks = {
        block.name: _svd_peripheral(
            block.desc, BLOCK_BYTES, [_svd_register(item, item.local, item.name) for item in block]
        )
        for block in registers()
    }
    # The blocks of a window of counters follow each other closely: one peripheral has them all.
    counters = [
        _svd_register(register, register.offset, f"{block.name}_{register.name}")
        for block in counter_registers()
        for register in block
    ]
    about = "Performance counters of a core, which silicon does not have"
    peripherals = []
    for core in range(RK3588.cores):
        places = {
            block.name: (CORE_ADDRESS + core * CORE_BYTES + block.base, blocks[block.name])
            for block in registers()
        }
        places["COUNTERS"] = (
            BASE_ADDRESS + core * WINDOW_BYTES,
            _svd_peripheral(about, WINDOW_BYTES, counters),
        )
        for name, (address, content) in places.items():
            described, *rest = content if core == 0 else (None,)
            first: list[_Item] = [("name", f"NPU{core}_{name}")]
            first += [described, ("groupName", "NPU")] if described is not None else []
            element = _element("peripheral", [*first, ("baseAddress", f"0x{address:08X}"), *rest])
            if core:
                element.set("derivedFrom", f"NPU0_{name}")
            peripherals.append(element)
    device = _element(
        "device",
        [
            ("vendor", "rkcosim"),
            ("name", "RK3588_NPU"),
            ("version", version()),
            ("description", "The NPU of the RK3588: its cores, and the performance counters of rkcosim"),
            ("addressUnitBits", "8"),
            ("width", "32"),
            ("size", "32"),
            ("access", "read-write"),
        ],
    )
    device.set("schemaVersion", "1.3")
    device.set("xmlns:xs", "http://www.w3.org/2001/XMLSchema-instance")
    device.set("xs:noNamespaceSchemaLocation", "CMSIS-SVD.xsd")
    inside = ElementTree.SubElement(device, "peripherals")
    inside.extend(peripherals)
    ElementTree.indent(device)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{ElementTree.tostring(device, encoding='unicode')}\n"


def _svd_peripheral(about: str, size: int, described: list[_Item]) -> list[_Item]:
    place: list[_Item] = [("offset", "0x0"), ("size", f"0x{size:X}"), ("usage", "registers")]
    return [("description", about), ("addressBlock", place), ("registers", described)]


def _svd_access(read: bool, write: bool) -> _Item:
    return (
        "access",
        {(True, True): "read-write", (True, False): "read-only"}.get((read, write), "write-only"),
    )


def _svd_register(register: Register, offset: int, name: str) -> _Item:
    content: list[_Item] = [
        ("name", name),
        ("description", register.desc or name),
        ("addressOffset", f"0x{offset:X}"),
        ("size", str(register.width)),
        _svd_access(register.readable, register.writable),
        ("resetValue", f"0x{register.reset:X}"),
        ("resetMask", f"0x{register.mask:X}"),
        ("fields", [_svd_field(field) for field in sorted(register.fields.values(), key=lambda f: f.lsb)]),
    ]
    return ("register", content)


def _svd_field(field: Field) -> _Item:
    clears = field.sw == "w1c"
    content: list[_Item] = [
        ("name", field.name),
        ("description", field.desc or field.name),
        ("bitOffset", str(field.lsb)),
        ("bitWidth", str(field.width)),
        _svd_access("r" in field.sw or clears, "w" in field.sw),
    ]
    if clears:
        content.append(("modifiedWriteValues", "oneToClear"))
    if field.enum:
        codes: list[_Item] = [
            ("enumeratedValue", [("name", label), ("value", f"0x{code:X}")])
            for label, code in field.enum.items()
        ]
        content.append(("enumeratedValues", codes))
    return ("field", content)
