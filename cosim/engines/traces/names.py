"""Names of the core's signals in a waveform: blocks have the names of the TRM.

Amaranth and Yosys name signals by module and submodule (`core.cna_registers.cfg__CONV_CON1.CONV_MODE`), with
numbers after duplicates and with additional helper signals. A waveform shows blocks and registers
(`CNA.registers.CONV_CON1.CONV_MODE`), each value once per scope, and no names with a `$`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rkcosim.spec.regs import registers

SCOPES = {
    "axil": "AXIL",
    "fabric": "FABRIC",
    "pc": "PC",
    "interrupts": "PC.interrupts",
    "cna": "CNA",
    "cna.csc": "CNA.CSC",
    "cna.cbuf": "CBUF",
    "core_block": "CORE",
    "dpu": "DPU",
    "dpu_rdma": "DPU_RDMA",
    "ppu": "PPU",
    "ppu_rdma": "PPU_RDMA",
    "ddma": "DDMA",
    "ddma.sdma": "SDMA.registers",
    "write_buffer_dpu": "DPU.write_buffer",
    "write_buffer_ppu": "PPU.write_buffer",
    "cna_registers": "CNA.registers",
    "core_registers": "CORE.registers",
    "dpu_registers": "DPU.registers",
    "dpu_rdma_registers": "DPU_RDMA.registers",
    "ppu_registers": "PPU.registers",
    "ppu_rdma_registers": "PPU_RDMA.registers",
}
"""Scope of each module of `rkcosim.rtl.core.NpuCore` (path of submodules).

Others stay below their parents.
"""

OTHER_SCOPES = (
    "diagnostics",
    *(f"diagnostics_{name}" for name in ("fabric", "pc", "ddma")),
    *(f"diagnostics_{block.name.lower()}" for block in registers() if block.has_groups),
)
"""Modules of `rkcosim.rtl.core.NpuCore` whose scopes keep the module's name."""

REGISTER_SIGNALS = {
    "PC.registers.kick": "PC.registers.OPERATION_ENABLE.OP_EN",
    "PC.interrupts.mask": "PC.registers.INTERRUPT_MASK.int_mask",
    "PC.interrupts.clear": "PC.registers.INTERRUPT_CLEAR.int_clr",
    "PC.interrupts.status": "PC.registers.INTERRUPT_STATUS.int_st",
    "PC.interrupts.raw": "PC.registers.INTERRUPT_RAW_STATUS.int_raw_st",
    **{
        f"{block.name}.registers.op_enable": f"{block.name}.registers.OPERATION_ENABLE.OP_EN"
        for block in registers()
        if block.has_groups
    },
}
"""Signals that repeat a register field under another name."""

OP_ENABLE = "FABRIC.op_enable"
"""The blocks that an op-enable word starts, as in GLOBAL.OPERATION_ENABLE."""


@dataclass(frozen=True)
class Declaration:
    """A name of a value: `path` with dots, `code` (equal for names of one value), width in `bits`."""

    path: str
    code: int
    bits: int


_HELPER = re.compile(
    r"^\$|^_\d+_$|^_trigger_|^port\$\d+\$|^(?:result|wire)(?:\$\d+)?$|^(?:port|read|write)__(?:addr|data|en)\$\d+"
)
"""Names made by Yosys, of Amaranth's anonymous signals, of memory ports, and of the float functions."""

_PIN = re.compile(
    r"(?:[sm]_axil?|diag|watch)_|"
    r"(?:rst|counting|core_index|options|irq|idle|events|task_index|busy_blocks|awake|step_report|step_answer)$"
)
"""Ports of the core that a waveform shows as the harness drives and reads them (writing.py).

The others (`activity`, `levels`, `macs`, `array_macs`), which the harness reads only while the performance
counters count, are shown as signals of the model. No port is shown in both ways.
"""

_CONFIG = re.compile(r"(?:^|_)cfg__")


def is_pin(port: str) -> bool:
    """Return whether the harness shows a port of `rkcosim.rtl.core.NpuCore`, and not the model."""
    return _PIN.match(port) is not None


def is_helper(name: str) -> bool:
    """Return whether a signal's own name (without scope) is hidden from waveforms."""
    return _HELPER.match(name) is not None


def placed(declarations: Iterable[Declaration]) -> list[Declaration]:
    """Return the declarations that a waveform shows, with their names there (below the core's scope).

    Parameters
    ----------
    declarations : those of one core: modules before slashes, without the core itself, then the name, as
        "cna/csc/stripe__payload.kernels".
    """
    modules: list[tuple[str, str, Declaration]] = []
    clean: set[int] = set()
    inner: set[int] = set()
    for item in declarations:
        module, name = _split(item.path)
        if is_helper(name) or name in ("clk", "clk_gates", "rst") or (not module and is_pin(name)):
            continue
        in_registers = module.endswith("_registers")
        if _CONFIG.search(name) and not in_registers:
            continue
        modules.append((module, name, item))
        if "$" not in name:
            clean.add(item.code)
        if module:
            inner.add(item.code)
    found: dict[str, Declaration] = {}
    for module, name, item in modules:
        if "$" in name and item.code in clean:
            continue
        if not module and item.code in inner:
            continue  # a connection between blocks, which both blocks show
        path = _path(module, name)
        found.setdefault(path, Declaration(path, item.code, item.bits))
    parents = {path[:place] for path in found for place in _dots(path)}
    return [item for path, item in sorted(found.items()) if path not in parents]


def _dots(path: str) -> Sequence[int]:
    return [place for place, letter in enumerate(path) if letter == "."]


def _split(path: str) -> tuple[str, str]:
    """Return module path and signal name."""
    module, _, name = path.rpartition("/")
    return module.replace("/", "."), name


def _scope(module: str) -> str:
    module = re.sub(r"\$\d+", "", module)
    above, last = module, ""
    while above:
        if above in SCOPES:
            return f"{SCOPES[above]}{last}"
        above, _, name = above.rpartition(".")
        last = f".{name}{last}"
    return last.removeprefix(".")


def _path(module: str, name: str) -> str:
    name = re.sub(r"\[(\d+)\]", r"_\1", name)
    if module.endswith("_registers"):
        name = re.sub(r"^cfg__", "", name)
    if module == "pc" and name.startswith("status."):
        return f"PC.registers.TASK_STATUS.{name.removeprefix('status.')}"
    name = re.sub(r"__(?=\d+(?:__|$))", "_", name).replace("__", ".").replace("$", "_")
    name = re.sub(r"\.(?=\.|$)", "", name).lstrip(".")
    scope = _scope(module)
    path = f"{scope}.{name}" if scope else name
    return REGISTER_SIGNALS.get(path, path)
