"""Exclusions of the mutation check, with the reason: no result of a run depends on them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_COUNTED = "is only used by the counters"
_FAR = "the address of an element past 4 GiB: needs memory at the very end of the address space"
_WIDE_SUM = "a sum of operands beyond 32 bits needs more of them than a drawn window has"
_BORDER = "only a size exactly at the limit of a diagnostic shows it, and these cases did not draw one"

FILES: dict[str, str] = {
    "rtl/core.py": "wiring of the blocks, and counters",
    "rtl/soc.py": "not part of an engine",
    "rtl/co_work.py": "joins several cores, and a case runs on one; tests/block/test_co_work.py and "
    "tests/system/test_co_work.py compare RTL, C++ and golden model",
    "rtl/counters.py": "counts events of other blocks; a test compares it with the C++ model",
    "rtl/layouts.py": "shapes",
    "rtl/npu/dma_registers.py": "a table of names",
    "rtl/npu/array.py": "engines replace the array cell by its C++ model; a test compares the two",
    "rtl/npu/array_integer.py": "engines replace the array cell by its C++ model; a test compares the two",
    "rtl/npu/array_float.py": "engines replace the array cell by its C++ model; a test compares the two",
    "cosim/golden/task/__init__.py": "imports",
    "cosim/golden/task/co_work.py": "joins several cores, and a case runs on one; "
    "tests/system/test_co_work.py compares it with the RTL",
    "cosim/golden/task/errors.py": "texts",
    "cosim/golden/task/rules.py": "passes the reports of the rules to people or to the golden model",
    "cosim/golden/task/npu.py": "the device protocol around the model, not the model",
}
"""Modules without arithmetic or control of a task."""

FUNCTIONS: dict[str, dict[str, str]] = {
    "rtl/regbus.py": {"_watch": "only for observers"},
    "cosim/golden/task/memory.py": {
        "atom_ranges": "ranges for messages of a lockstep run",
        "copy": "for tests",
        "write": "an access by the host",
        "unmap": "no task removes mappings",
        "regions": "for messages",
    },
    "cosim/golden/task/device.py": {
        "waits": "texts for people",
        "_wait": "texts for people",
        "run_task": "an entry for tests, outside of the device protocol",
        "run_kick": "an entry for tests, outside of the device protocol",
        "_host_pointers": "an entry for tests, outside of the device protocol",
        "_co_works": "the number of cores that share a convolution, and a case runs on one; "
        "tests/system/test_co_work.py compares it with the RTL",
    },
    "cosim/golden/task/cna.py": {"occupied": "gives internals to a lockstep run"},
    "cosim/golden/task/shapes.py": {
        "cut": "what is left of a size that does not fit its field, for messages",
        **dict.fromkeys(
            ("written_surfaces", "line"), "places for `regcmd lint` and for reports, which no task uses"
        ),
    },
    "cosim/golden/task/core.py": dict.fromkeys(
        ("delivered", "cbuf", "core", "observe"), "gives internals to a lockstep run"
    ),
    "cosim/golden/task/core_float.py": {
        "_width": "selects one of two exact ways; a larger value than needed is slower but also correct",
        "_span": "selects one of two exact ways; a larger value than needed is slower but also correct",
    },
}
"""Module -> functions that are excluded."""

NAMES: dict[str, dict[str, str]] = {
    "rtl/pc_dma.py": {
        **dict.fromkeys(
            ("FIRST_OPERATING", "LAST_OPERATING", "FIRST_FETCHING", "LAST_FETCHING"),
            "visible in a status register during a task; tests/block/test_pc_status.py reads it",
        ),
    },
    "rtl/pc_lists.py": {
        **dict.fromkeys(
            ("fetch_index", "fetched"),
            "visible in a status register during a task; tests/block/test_pc_status.py reads it",
        ),
        **dict.fromkeys(("closes", "stuck"), _COUNTED),
    },
    "rtl/regbus.py": {
        "taken": "which initiator is next if host and PC request the bus at once, which no case does; "
        "tests/block/test_bus.py does"
    },
    "rtl/npu/dpu_pipe.py": dict.fromkeys(("stall", "stall_bs"), _COUNTED),
    "rtl/npu/dpu_float.py": {"stall": _COUNTED},
    "rtl/npu/dpu_rdma_operands.py": {"beats": _COUNTED},
    "rtl/npu/atom_reader.py": {"beats": _COUNTED},
    "rtl/npu/csc.py": dict.fromkeys(("active", "preparing"), _COUNTED),
    "rtl/npu/ddma.py": dict.fromkeys(("passes", "READ_BURSTS", "WRITE_BURSTS", "WRITE_QUEUE"), _COUNTED),
    "rtl/npu/csc_pixels.py": {
        **{f"stall_{name}": "an event that is only counted" for name in ("feature", "weight", "acc")},
        **dict.fromkeys(("macs", "array_macs"), _COUNTED),
    },
    "rtl/npu/dpu.py": dict.fromkeys(("busy_octet", "stall"), "an event that is only counted"),
    "rtl/npu/ppu_windows.py": {"starved": _COUNTED},
    "rtl/npu/ppu.py": {
        **dict.fromkeys(("busy_atom", "stall"), "an event that is only counted"),
        **dict.fromkeys(("refused", "blocked"), _COUNTED),
    },
    "rtl/npu/ppu_sequence.py": dict.fromkeys(
        ("idle", "waits", "prepares", "hangs", "completes", "drains"), _COUNTED
    ),
    "rtl/npu/cna_weight.py": {
        "some": "position where the first fetch is divided; affects only the speed",
        "first_atoms": "position where the first fetch is divided; affects only the speed",
        **dict.fromkeys(("held", "beats"), _COUNTED),
    },
    "rtl/npu/cna_fetch.py": {
        "joins": "whether two runs share a burst of the bus; affects only the speed",
        "short": "whether two runs share a burst of the bus; affects only the speed",
        "beats": _COUNTED,
    },
    "cosim/golden/task/rdma.py": {
        **{
            name: "sizes of readers that do not run"
            for name in ("width", "height", "channels", "group", "bits")
        }
    },
    "cosim/golden/task/core.py": {
        "real": "selects one of two exact ways; a wrong choice in the other direction is slower",
        "kind": "selects one of two exact ways; only sums above 2^53, which no task reaches, differ",
        "_PRODUCT": "operands at a time; affects only the speed",
        "block": "pixels at a time; a slice ends with its array",
        "step": "pixels at a time; affects only the speed",
        "at_once": "taps at a time; affects only the speed",
        "_BLOCK": "products at a time; affects only the speed",
        "macs": "a statistic, which only estimates time",
    },
    "cosim/golden/task/cna.py": {
        f"_held['{kind}']": "used only by a lockstep run" for kind in ("feature", "weight")
    },
    **{f"cosim/golden/task/rules_{name}.py": {"message": "texts for people"} for name in ("conv", "dpu")},
    "cosim/golden/task/dpu.py": {
        "client": "texts for people",
    },
    "cosim/golden/task/shapes.py": {"group": "33 channels have as many whole atoms as 32"},
    "cosim/golden/task/dpu_float.py": {"half": "a longer table contains the same entries again"},
    "cosim/golden/task/context.py": {"macs": "a statistic, which only estimates time"},
    "cosim/golden/task/device.py": {"_task": "the number of the task, for messages"},
    "cosim/golden/task/ppu.py": {
        "_FAR": "a position beyond all values; any such value gives the same result",
        "nan": "a position beyond all others; any such value gives the same result",
    },
    "cosim/golden/task/core_float.py": {
        "(xh, wh)": "where numbers are divided in two; any near position is correct",
        "gone": "any shift that leaves no bit is correct",
        "limit": "selects one of two exact ways; a lower limit is slower but also correct",
        "direct": "selects one of two exact ways; a wrong choice in the other direction is slower",
        "large": "selects one of two ways to round; numbers that both support give the same result",
        "_PAIRS": "pairs at a time; affects only the speed",
    },
}
"""Module -> names whose assignments are excluded."""


EXPRESSIONS: dict[str, dict[str, str]] = {
    "rtl/npu/dpu_rdma_stripes.py": {"rest > 15": "at 15 both alternatives give 16 pixels"},
    "rtl/npu/cna_argb.py": {
        "step & sums_valid": "whether a pixel is converted that is not used",
        "value < low": "at the bound both alternatives give the bound",
    },
    "rtl/npu/dpu_float.py": {
        f"~{stage}['{first}'] & ({stage}['relu'] | {stage}['relux'])": "which of two steps contains the "
        "rectifier; affects only the time"
        for stage, first in (("bs", "add"), ("bn", "mul"))
    },
    "rtl/npu/ppu_stripes.py": {
        "Mux(bank, full[1], full[0])": "with the banks exchanged, one is used at a time: only the time"
    },
    "rtl/npu/core_block.py": {"advance | ~loaded": "when the next octet is read; affects only the time"},
    "rtl/npu/ddma.py": {
        "((under_way < regs.write_limit) | (under_way == 0)) & todo.w_rdy": "the queue holds one burst more "
        "than the limit of outstanding bursts; without the limit only the time changes"
    },
    "rtl/pc_task.py": {
        "self.active & ~self.ends": "blocks of a task that has ended are idle, so waiting for them has no "
        "effect"
    },
    "rtl/regbus.py": {
        "~use_fetch": "which initiator is next if host and PC request the bus at once, which no case does; "
        "tests/block/test_bus.py does"
    },
    "rtl/npu/atom_writer.py": {
        "opened | flush | asking": "the DMA accepts no beat before its request, so one of the other bits is "
        "set too"
    },
    "rtl/npu/dpu_cvt.py": {
        f"valid[9] & on.{kind}": "whether a conversion whose result is unused is evaluated"
        for kind in ("make", "half", "brain", "wide")
    },
    "rtl/npu/atom_reader.py": {"room >= 16": "when the next burst is requested; affects only the time"},
    "rtl/npu/checks.py": {"pause != 0": "when the next check follows; affects only the time"},
    "rtl/list_fetch.py": {"room >= chunk": "when the next burst is requested; affects only the time"},
    "rtl/npu/float32.py": {
        "Cat(rest != 0, Const(0, below), quotient)": "the bit that marks a remainder may be at any "
        "position below the quotient",
        "value[23:31] < 118": "at 118 the value is below 2^-8 and both alternatives give 0",
        "apart > 32": "at 33 a normal number still leaves a bit, and a subnormal one is below all rounding",
    },
    "cosim/golden/task/ppu.py": {
        "out.shape[:3]": "sizes after the third are not used",
    },
    "cosim/golden/task/arith.py": {"value >= 0": "0 is 0 with either shift"},
    "cosim/golden/task/core.py": {
        "lane < 32": "only odd lanes count, and 32 is even",
        "(reached + bounds[end]).max() <= EXACT_FLOAT32": "at the bound both ways are exact",
    },
    "cosim/golden/task/dpu_float.py": {
        "half & 32767 > 31744": "an infinity made as a NaN without payload is an infinity"
    },
    "cosim/golden/task/memory.py": {
        "at >= 0": "a shortcut; the general code after it finds the same range",
        "high + ATOM <= self._bases[at] + self._data[at].size": "a shortcut before the general code",
        "np.maximum(region, 0)": "addresses before all ranges are refused, whatever is found for them",
    },
    "cosim/golden/task/shapes.py": {
        "1 << 27": "addresses count modulo 2^32: a distance of 2^28 atoms more or less is the same",
        "(atoms + half) % (2 * half) - half": "the same",
        "ceil(self.channels * self.bits, 8 * ATOM)": "surfaces of the PPU for `regcmd lint`",
    },
    "cosim/golden/task/cna.py": {
        "-total * step % ATOM": "zeros in CBUF after the last pixel, where zeros are anyway"
    },
    "cosim/golden/task/dpu.py": {
        "sign_extend(acc, 32)": "the floating-point pipeline uses the low 32 bits",
        "said > want": "if they are equal, the function returned before",
        "dpu('DATA_CUBE_CHANNEL', 'ORIG_CHANNEL') + 1": "used with the option r2_pend_never_inside_atoms; "
        "tests/unit/test_golden_dpu_settings.py holds it",
    },
    "cosim/golden/task/dpu_writer.py": {"per_atom < full": "a whole atom has no rest, which is empty then"},
    "cosim/golden/task/dpu_stages.py": {
        "value >= 0": "0 is 0 multiplied or not",
    },
    "cosim/golden/task/core_float.py": {
        "(1 << 24) - 1": "the bit above is the last one of the sum already",
        "wide >> 31 == 1": "if the signs of both operands change, that of the product does not",
        "-(1 << 20)": "an exponent below all others; any such value gives the same result",
        "where[0].size": "a shortcut: without pairs the loop after it does nothing",
    },
}
"""Module -> expressions that may be changed without a difference."""


LOOKED_AT: dict[str, dict[str, str]] = {
    "cosim/golden/task/context.py": {
        "addresses = addresses.ravel() % (1 << 32)": _FAR,
        "addresses.ravel()": _FAR,
    },
    "cosim/golden/task/core.py": {
        "in ACC_BITS = 48": _WIDE_SUM,
    },
    "cosim/golden/task/core_float.py": {
        "in value = np.where(finite, bits, 0)": "sums with an infinity or a NaN are inserted afterwards"
    },
    "cosim/golden/task/shapes.py": {
        "in return 4 * self.type.bits // 8": "visible only if pixels just fit their CBUF banks",
        "129 in told = ceil(": "129 bits hold as many whole elements as 128",
        "output & 2": "a group is only counted by the writer, which is off then",
    },
    "cosim/golden/task/device.py": {
        "in self.last_task = 0": "the value before the first kick, which sets it"
    },
    "cosim/golden/task/dpu.py": {
        "in return PpuFeed(": _BORDER,
        "min(first, pixels) -> max(first, pixels)": "memory is not compared after a hang; "
        "tests/unit/test_golden_writer.py does so",
    },
    "cosim/golden/task/ppu.py": {"ATOM // width": _BORDER},
    "cosim/golden/task/rules_dpu.py": {
        "'OUT_CVT_SHIFT') % 64": "the diagnostic also named the register for MINUS_EXP; "
        "the draw has been changed since"
    },
    "cosim/golden/task/dpu_float.py": {
        "2139095040 -> 2139095041": "visible only with a NaN whose payload is 1",
        "half >> 15 << 31 -> half >> 15 >> 31": "visible only with a negative NaN among the operands",
    },
    "cosim/golden/task/dpu_lut.py": {
        "self._table = self._place = self._writing = 0": "no data are written before LUT_ACCESS_CFG"
    },
    "cosim/golden/task/rules_conv.py": {
        "conv.surfaces > BLOCK_ATOMS -> conv.surfaces >= BLOCK_ATOMS": _BORDER
    },
    "rtl/npu/float32.py": {
        "is_zero(a) | (b[:31] == INFINITY)": "a large number over infinity is not drawn; the general code "
        "also gives zero for a small one"
    },
    "rtl/bus.py": {"axil.bvalid & axil.bready": "the host of the engines takes every answer at once"},
    "rtl/npu/dpu_writer_surfaces.py": {"said > want -> said >= want": "read only where the two differ"},
    "rtl/npu/cna_settings.py": {
        "single_row": "the order in which surfaces of one column are fetched; the data are the same"
    },
    "rtl/npu/dpu_rdma_operands.py": {
        "~full & (left == 0)": "the reader's end is visible only if the next task begins while it unpacks"
    },
}
"""Module -> parts of the texts of survivors that were analysed, and the reason why no case finds them."""


@dataclass(frozen=True)
class Rules:
    """Functions, assigned names and expressions of a module that are not changed."""

    functions: frozenset[str]
    names: frozenset[str]
    expressions: frozenset[str]


def rules_of(path: str) -> Rules:
    """Return the exclusions of a module."""
    return Rules(*(frozenset(rules.get(path, ())) for rules in (FUNCTIONS, NAMES, EXPRESSIONS)))


def modules(root: Path, folders: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return (path, source) of the modules of some folders that may be changed."""
    found = []
    for folder in folders:
        for path in sorted((root / folder).glob("*.py")):
            name = str(path.relative_to(root))
            if name not in FILES:
                found.append((name, path.read_text()))
    return found
