"""Rules about blocks that start together, register groups and the interrupt."""

from __future__ import annotations

from rkcosim.golden.task.rules import ERROR, WARNING
from rkcosim.regcmd.lint.rule import Check, rule
from rkcosim.regcmd.machine import BLOCKS, HOST
from rkcosim.spec.regs import registers

_NEEDED: dict[str, tuple[str, ...]] = {
    "CNA": (
        *("CONV_CON1", "CONV_CON3", "DATA_SIZE0", "DATA_SIZE1", "DATA_SIZE2", "DATA_SIZE3", "WEIGHT_SIZE0"),
        *("WEIGHT_SIZE2", "CBUF_CON0", "CBUF_CON1", "PAD_CON0"),
    ),
    "CORE": ("MISC_CFG",),
    "DPU": (
        *("FEATURE_MODE_CFG", "DATA_FORMAT", "DATA_CUBE_WIDTH", "DATA_CUBE_HEIGHT", "DATA_CUBE_CHANNEL"),
        *("BS_CFG", "BN_CFG", "EW_CFG", "BS_OW_CFG", "WDMA_SIZE_0", "WDMA_SIZE_1", "OUT_CVT_SCALE"),
    ),
    "DPU_RDMA": (
        *("FEATURE_MODE_CFG", "DATA_CUBE_WIDTH", "DATA_CUBE_HEIGHT", "DATA_CUBE_CHANNEL"),
        *("BRDMA_CFG", "NRDMA_CFG", "ERDMA_CFG"),
    ),
    "PPU": (
        *("DATA_CUBE_IN_WIDTH", "DATA_CUBE_IN_HEIGHT", "DATA_CUBE_IN_CHANNEL", "DATA_CUBE_OUT_WIDTH"),
        *("DATA_CUBE_OUT_HEIGHT", "OPERATION_MODE_CFG", "POOLING_KERNEL_CFG", "DATA_FORMAT"),
        *("DST_BASE_ADDR", "DST_SURF_STRIDE"),
    ),
    "PPU_RDMA": (
        *("CUBE_IN_WIDTH", "CUBE_IN_HEIGHT", "CUBE_IN_CHANNEL", "SRC_BASE_ADDR", "SRC_LINE_STRIDE"),
        *("SRC_SURF_STRIDE", "DATA_FORMAT"),
    ),
}
"""Registers that a task of the block must set; all real programs write them."""


@rule("group.never-set", ERROR, "[HW 1.6], [HW 1.7]", blocks=BLOCKS)
def _never_set(check: Check) -> None:
    """A register that neither this task nor an earlier one of its group has written keeps its old value;
    the value after a reset must not be relied on."""
    start = check.here
    for block in start.blocks:
        view = start.views[block]
        for name in (*_NEEDED[block], *_also(check, block)):
            if not view.written(name):
                message = f"never written to group {view.group} of {block}"
                check.say(message, block, name, word=start.word, value=view.raw(name))


def _also(check: Check, block: str) -> list[str]:
    """Registers that the modes of this start require."""
    names: list[str] = []
    conv, dpu, rdma, pool = check.conv, check.dpu, check.rdma, check.pool
    if block == "CNA" and conv is not None:
        con0 = conv.view
        if not con0("CBUF_CON0", "DATA_REUSE"):
            names += ["FEATURE_DATA_ADDR", "DMA_CON1"]
        if not con0("CBUF_CON0", "WEIGHT_REUSE"):
            names.append("DCOMP_ADDR0")
    elif block == "DPU" and dpu is not None:
        if dpu.output & 2:
            names += ["DST_BASE_ADDR", "DST_SURF_STRIDE"]
    elif block == "DPU_RDMA" and rdma is not None:
        names += ["SRC_BASE_ADDR"] if rdma.main else []
        names += ["EW_BASE_ADDR"] if rdma.element else []
        names += ["BS_BASE_ADDR"] if rdma.use["BRDMA"] else []
        names += ["BN_BASE_ADDR"] if rdma.use["NRDMA"] else []
    elif block == "PPU" and pool is not None and pool.view("OPERATION_MODE_CFG", "POOLING_METHOD") == 0:
        names += ["RECIP_KERNEL_WIDTH", "RECIP_KERNEL_HEIGHT"]
    return names


@rule("group.other", ERROR, "[HW 1.7]", blocks=BLOCKS)
def _other_group(check: Check) -> None:
    """The op-enable enables the group under the pointer, but the block starts the group under the
    executer; if they differ, it waits forever."""
    start = check.here
    for block in start.blocks:
        enabled, turn = start.enabled[block]
        if enabled == turn:
            continue
        value, origin = start.controls[block]
        pointer = registers()[block]["S_POINTER"].decode(value)
        names = ("POINTER_PP_EN", "POINTER_PP_MODE", "EXECUTER_PP_EN")
        modes = ", ".join(f"{name} {pointer[name]}" for name in names)
        message = f"group {enabled} of {block} is enabled, but group {turn} runs next ({modes})"
        wrong = "" if all(pointer[n] for n in names) else next(n for n in names if not pointer[n])
        word = start.word if origin is None or origin.task != start.task else origin.word
        check.say(message, block, "S_POINTER", wrong, word=word, value=value)


@rule("group.core", ERROR, "[HW 1.7]", blocks=("CNA", "CORE"))
def _core(check: Check) -> None:
    """CNA and CORE start only on the core whose index is in their S_POINTER."""
    start, wanted = check.start, check.program.core
    assert start is not None
    for block in ("CNA", "CORE") if wanted is not None else ():
        if block in start.blocks:
            value, origin = start.controls[block]
            pointer = registers()[block]["S_POINTER"]
            index = pointer.decode(value)["CORE_INDEX"]
            if index != wanted and pointer.fields["CORE_INDEX"].label(index) != "EVERY":
                message = f"selects core {index}, but the kick runs on core {wanted}"
                task = start.task if origin is None else origin.task
                word = None if origin is None or origin.word < 0 else origin.word
                check.say(message, block, "S_POINTER", "CORE_INDEX", task=task, word=word, value=index)


@rule("group.toggle", WARNING, "[HW 1.7]", blocks=BLOCKS)
def _toggle(check: Check) -> None:
    """In a chain, pointer and executer of a block must toggle together, otherwise a later task uses the
    wrong group."""
    start = check.here
    if check.program.slave or start.task == HOST:
        return
    for block in start.blocks:
        value, origin = start.controls[block]
        pointer = registers()[block]["S_POINTER"].decode(value)
        if origin is None:
            message = "never written: the block only uses group 0, no task can be set up while one runs"
            check.say(message, block, "S_POINTER", word=start.word, value=0)
        elif origin.task == start.task and pointer["POINTER_PP_EN"] != pointer["EXECUTER_PP_EN"]:
            name = "EXECUTER_PP_EN" if pointer["POINTER_PP_EN"] else "POINTER_PP_EN"
            check.say(
                "only one of pointer and executer toggles",
                block,
                "S_POINTER",
                name,
                word=origin.word,
                value=0,
            )


@rule("start.partners", ERROR, "[HW 1.5], [HW 5], [HW 6], [HW 7.14], [HW 8.6], [HW 9.7]", blocks=BLOCKS)
def _partners(check: Check) -> None:
    """A block waits forever if the op-enable mask does not include the blocks that it works with."""
    start = check.here
    if check.program.slave:
        return
    on = set(start.blocks)
    dpu, pool = check.dpu, check.pool
    missing: list[tuple[str, str, str, str]] = []  # block, block that it waits for, register, field
    if "CNA" in on and "CORE" not in on:
        missing.append(("CNA", "CORE", "", ""))
    if "CORE" in on and "CNA" not in on:
        missing.append(("CORE", "CNA", "", ""))
    if "CORE" in on and "DPU" not in on:
        missing.append(("CORE", "DPU", "", ""))
    if dpu is not None and not dpu.flying and "CORE" not in on:
        missing.append(("DPU", "CORE", "FEATURE_MODE_CFG", "FLYING_MODE"))
    if "DPU_RDMA" in on and dpu is None:
        missing.append(("DPU_RDMA", "DPU", "", ""))
    if dpu is not None and dpu.flying and "DPU_RDMA" not in on:
        missing.append(("DPU", "DPU_RDMA", "FEATURE_MODE_CFG", "FLYING_MODE"))
    if dpu is not None and dpu.feeds_ppu and pool is None:
        missing.append(("DPU", "PPU", "FEATURE_MODE_CFG", "OUTPUT_MODE"))
    if pool is not None and pool.fed and dpu is None:
        missing.append(("PPU", "DPU", "OPERATION_MODE_CFG", "FLYING_MODE"))
    if pool is not None and not pool.fed and "PPU_RDMA" not in on:
        missing.append(("PPU", "PPU_RDMA", "OPERATION_MODE_CFG", "FLYING_MODE"))
    if "PPU_RDMA" in on and pool is None:
        missing.append(("PPU_RDMA", "PPU", "", ""))
    for block, other, register, name in missing:
        message = f"{block} waits for {other}, which the task does not start"
        if register:
            check.say(message, block, register, name)
        else:
            check.say(message, block, word=start.word)


@rule("start.unused", ERROR, "[HW 7.14], [HW 8.6], [HW 9.7]", blocks=("DPU", "PPU"))
def _unused(check: Check) -> None:
    """The output of a started block must be used: if a block has two sources, one of them waits forever."""
    start = check.here
    if check.program.slave:
        return
    dpu, pool = check.dpu, check.pool
    if dpu is not None and dpu.flying and "CORE" in start.blocks:
        message = "the DPU reads its data from memory, so that nothing reads those of CORE"
        check.say(message, "DPU", "FEATURE_MODE_CFG", "FLYING_MODE")
    if pool is None:
        return
    fed = dpu is not None and dpu.feeds_ppu
    if pool.fed and dpu is not None and not dpu.feeds_ppu:
        check.say(
            "the PPU waits for the DPU, which sends it nothing", "DPU", "FEATURE_MODE_CFG", "OUTPUT_MODE"
        )
    if fed and not pool.fed:
        message = "the DPU sends data to the PPU, which reads from memory"
        check.say(message, "PPU", "OPERATION_MODE_CFG", "FLYING_MODE")
    if pool.fed and "PPU_RDMA" in start.blocks:
        message = "the PPU reads the DPU's data, so that nothing reads those of PPU_RDMA"
        check.say(message, "PPU", "OPERATION_MODE_CFG", "FLYING_MODE")


@rule("start.not-started", WARNING, "[HW 1.5]", whole=True)
def _not_started(check: Check) -> None:
    """Registers are written of a block that the op-enable word does not start."""
    from rkcosim.regcmd.machine import is_start
    from rkcosim.regcmd.word import blocks_of_mask

    for index, task in enumerate(check.program.tasks):
        started: set[str] = set()
        for command in task.commands:
            if is_start(command):
                started.update(blocks_of_mask(command.value))
        seen: set[str] = set()
        for command in task.commands:
            register = command.register
            if not started or register is None or not register.shadowed or register.name == "S_POINTER":
                continue
            if register.block in BLOCKS and register.block not in started | seen:
                seen.add(register.block)
                message = f"{register.block} is set up, but not started"
                check.say(message, register.block, register.name, task=index, word=command.index)


@rule("irq.never", ERROR, "[HW 10.2]", whole=True)
def _interrupt(check: Check) -> None:
    """The interrupt line only rises for an unmasked event of the last task, in the register group that
    ran."""
    program = check.program
    starts = check.cache.get("starts", [])
    if program.mask is None or not starts or program.stopped:
        return
    last = [start for start in starts if start.task == starts[-1].task]
    codes = registers()["PC"]["INTERRUPT_MASK"].fields["int_mask"].enum or {}
    events = {
        "CNA": ("CNA_FEATURE", "CNA_WEIGHT", "CNA_CSC"),
        "CORE": ("CORE",),
        "DPU": ("DPU",),
        "PPU": ("PPU",),
    }
    possible: dict[str, int] = {}
    for start in last:
        for block in start.blocks:
            for event in events.get(block, ()):
                possible[block] = possible.get(block, 0) | codes[f"{event}_{start.enabled[block][1]}"]
    place = ("PC", "INTERRUPT_MASK", "int_mask")
    if not any(program.mask & bits for bits in possible.values()):
        ran = ", ".join(possible) or "nothing"
        other = any(program.mask & (bits >> 1 | bits << 1) for bits in possible.values())
        more = ", in the other register group" if other else ""
        message = f"the last task runs {ran}: none of the unmasked events belongs to them{more}"
        check.say(message, *place, task=HOST, value=program.mask)
        return
    end = "PPU" if "PPU" in possible else "DPU" if "DPU" in possible else ""
    early = [block for block, bits in possible.items() if program.mask & bits and block != end]
    if end and early:
        message = f"rises at the end of {', '.join(early)}, before the {end} has written its results"
        check.say(message, *place, task=HOST, value=program.mask, severity=WARNING)


@rule("kick.base", ERROR, "[HW 1.10.1]", whole=True)
def _base(check: Check) -> None:
    """TASK_DMA_BASE must be a multiple of 32; its low bits are dropped."""
    base = check.program.dma_base
    if base % 32:
        place = ("PC", "TASK_DMA_BASE_ADDR", "DMA_BASE_ADDR")
        check.say(f"0x{base:X} is not a multiple of 32", *place, task=HOST, value=base)
