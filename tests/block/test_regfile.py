"""Register file against a naive model, with random accesses, op-enables and task lengths."""

from __future__ import annotations

import random

import pytest
from amaranth import ClockDomain, Module, Signal, Value
from amaranth.hdl import Elaboratable, signed
from amaranth.sim import Simulator

from rkcosim.rtl.layouts import DiagnosticCode
from rkcosim.rtl.regfile import RegisterFile, config_signature, register_layout, shadowed_registers
from rkcosim.spec.regs import registers
from tests import seeds

BLOCKS = ("CNA", "CORE", "DPU", "DPU_RDMA", "PPU", "PPU_RDMA")


class Twin:
    """[HW 1], one access at a time."""

    def __init__(self, block: str, core: int) -> None:
        self.block = registers()[block]
        self.core = core
        self.groups = [{r.name: r.reset for r in self.block if r.readable and r.writable} for _ in range(2)]
        self.pointer = self.executer = 0
        self.word = {"POINTER_PP_MODE": 0, "EXECUTER_PP_EN": 0, "POINTER_PP_EN": 0, "CORE_INDEX": 0}
        self.enable = [False, False]
        self.running = False
        self.access = {"LUT_ACCESS_TYPE": 0, "LUT_TABLE_ID": 0, "LUT_ADDR": 0}
        self.tables: dict[tuple[int, int], int] = {}

    @property
    def busy(self) -> bool:
        return self.running or any(self.enable)

    def held(self, local: int, value: int) -> bool:
        reg = self.register(local)
        if reg is not None and reg.name == "S_POINTER":
            fields = reg.decode(value)
            changes = any(fields[name] != self.word[name] for name in ("EXECUTER_PP_EN", "POINTER_PP_EN"))
            clears = fields["POINTER_PP_CLEAR"] or fields["EXECUTER_PP_CLEAR"]
            return self.busy and bool(clears or changes)
        if reg is not None and reg.name.startswith("LUT_ACCESS"):
            return self.busy
        return local >= 8 and self.enable[self.pointer]

    def register(self, local: int):
        return registers().at(self.block.base + local)

    def write(self, local: int, value: int) -> bool:
        """Return whether the offset is unknown, or the write of a table entry is refused."""
        reg = self.register(local)
        if reg is None:
            return True
        if reg.name == "LUT_ACCESS_CFG":
            self.access = reg.decode(value)
            return False
        if reg.name == "LUT_ACCESS_DATA":
            if not self.access["LUT_ACCESS_TYPE"]:
                return value & 0xFFFF != 0  # lists that clear every register write 0
            table, place = self.access["LUT_TABLE_ID"], self.access["LUT_ADDR"]
            if place <= 512:
                self.tables[table, place] = value & 0xFFFF
            self.access["LUT_ADDR"] = (place + 1) % 1024
            return place > 512
        if reg.name == "S_POINTER":
            fields = reg.decode(value)
            for name in self.word:
                self.word[name] = fields.get(name, 0)
            if not fields["POINTER_PP_EN"]:
                self.pointer = fields["POINTER"]
            if fields["POINTER_PP_CLEAR"]:
                self.pointer = 0
            if fields["EXECUTER_PP_CLEAR"]:
                self.executer = 0
        elif reg.name == "OPERATION_ENABLE":
            if value & 1:
                self.op_enable()
        elif reg.name in self.groups[0]:
            for group in (self.pointer,) if reg.shadowed else (0, 1):
                self.groups[group][reg.name] = value & reg.mask
        return False

    def read(self, local: int) -> int:
        reg = self.register(local)
        if reg is None or reg.name == "OPERATION_ENABLE":
            return 0
        if reg.name == "LUT_ACCESS_CFG":
            return reg.encode(**self.access)
        if reg.name == "LUT_ACCESS_DATA":
            if self.access["LUT_ACCESS_TYPE"]:
                return 0
            place = self.access["LUT_ADDR"]
            self.access["LUT_ADDR"] = (place + 1) % 1024
            return self.tables.get((self.access["LUT_TABLE_ID"], place), 0)
        if reg.name == "S_POINTER":
            names = {n: v for n, v in self.word.items() if n in reg.fields}
            return reg.encode(POINTER=self.pointer, EXECUTER=self.executer, **names)
        if reg.name == "S_STATUS":
            if not self.running:
                return 0
            state = 2 if self.enable[1 - self.executer] else 1
            return reg.encode(**{f"STATUS_{self.executer}": state})
        return self.groups[self.pointer].get(reg.name, 0)

    def op_enable(self) -> None:
        self.enable[self.pointer] = True
        if self.word["POINTER_PP_EN"]:
            self.pointer = 1 - (self.pointer if self.word["POINTER_PP_MODE"] else self.executer)

    def can_start(self) -> bool:
        has_core = "CORE_INDEX" in self.block["S_POINTER"].fields
        fits = not has_core or self.word["CORE_INDEX"] in (self.core, 3)
        return self.enable[self.executer] and not self.running and fits

    def done(self) -> None:
        self.running = False
        self.enable[self.executer] = False
        if self.word["EXECUTER_PP_EN"]:
            self.executer = 1 - self.executer


def simulate(dut: Elaboratable, *benches) -> None:
    sim = Simulator(dut)
    sim.add_clock(1e-9)
    for bench in benches[:-1]:
        sim.add_testbench(bench, background=True)
    sim.add_testbench(benches[-1])
    sim.run()


async def write(ctx, dut, local: int, value: int, bound: int = 8) -> bool:
    """Hold a write for up to `bound` cycles; return whether it was accepted."""
    ctx.set(dut.port.offset, local)
    ctx.set(dut.port.wdata, value & 0xFFFFFFFF)
    ctx.set(dut.port.write, 1)
    taken = False
    for _ in range(bound):
        taken = bool(ctx.get(dut.port.ready))
        await ctx.tick()
        if taken:
            break
    ctx.set(dut.port.write, 0)
    return taken


async def read(ctx, dut, local: int) -> int:
    ctx.set(dut.port.offset, local)
    ctx.set(dut.port.read, 1)
    for _ in range(4):
        if ctx.get(dut.port.ready):
            value = ctx.get(dut.port.rdata)
            await ctx.tick()
            ctx.set(dut.port.read, 0)
            return value
        await ctx.tick()
    raise AssertionError(f"read of 0x{local:03X} not answered")


async def start_of(ctx, dut, bound: int = 8) -> int | None:
    """Wait for the start of a task; return its group, or None."""
    for _ in range(bound):
        if ctx.get(dut.control.start):
            return ctx.get(dut.control.group)
        await ctx.tick()
    return None


async def finish(ctx, dut) -> None:
    ctx.set(dut.control.done, 1)
    await ctx.tick()
    ctx.set(dut.control.done, 0)


async def pulse_enable(ctx, dut) -> None:
    ctx.set(dut.op_enable, 1)
    await ctx.tick()
    ctx.set(dut.op_enable, 0)


def serve_tables(dut):
    """The memory of the `lut` port, as a testbench."""
    tables: dict[tuple[int, int], int] = {}
    lut = dut.lut
    sampled = (lut.write, lut.read, lut.table, lut.entry, lut.data)

    async def run(ctx) -> None:
        async for _, _, writes, reads, table, entry, value in ctx.tick().sample(*sampled):
            assert not writes or (entry <= 512 and not ctx.get(dut.busy))
            if writes:
                tables[table, entry] = value
            ctx.set(lut.answer, tables.get((table, entry), 0) if reads else 0xDEAD)

    return run


def config_of(ctx, dut) -> dict[str, dict[str, int]]:
    result = {}
    for reg in shadowed_registers(dut.block):
        view = getattr(dut.cfg, reg.name)
        result[reg.name] = {name: ctx.get(view[name]) for name in reg.fields}
    return result


@pytest.mark.parametrize("block", BLOCKS)
def test_random_against_twin(block: str) -> None:
    seed = seeds.seed(f"{__name__} {block}", 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    core = rng.randrange(3)
    dut = RegisterFile(block)
    twin = Twin(block, core)
    reg_s_pointer = dut.block["S_POINTER"]
    events: list[tuple[int, int, int]] = []
    starts: list[int] = []
    sampled = (dut.diag.valid, dut.diag.payload, dut.control.start, dut.control.group)

    async def watch(ctx) -> None:
        async for _, _, valid, payload, start, group in ctx.tick().sample(*sampled):
            if valid:
                events.append((int(payload.code), payload.register, payload.value))
            if start:
                starts.append(group)

    async def settle(ctx) -> None:
        """Let a start happen and compare the configuration with the model's running group."""
        await ctx.tick().repeat(4)
        expected = [twin.executer] if twin.can_start() else []
        twin.running |= bool(expected)
        assert starts == expected
        starts.clear()
        assert ctx.get(dut.busy) == twin.busy

    def check_config(ctx, expected) -> None:
        assert config_of(ctx, dut) == expected

    def check_mode(ctx) -> None:
        """NN_MODE of the group that the pointer selects, from the cycle after a write or op-enable on."""
        if block == "CNA":
            value = twin.groups[twin.pointer]["CONV_CON2"]
            assert ctx.get(dut.next_mode) == dut.block["CONV_CON2"].decode(value)["NN_MODE"]

    async def bench(ctx) -> None:
        ctx.set(dut.core, core)
        await ctx.tick()
        locals_ = [r.local for r in dut.block]
        if block == "DPU":  # one access in three to the tables
            locals_ += [dut.block[f"LUT_ACCESS_{name}"].local for name in ("CFG", "DATA", "DATA")] * 10
        if "CORE_INDEX" in reg_s_pointer.fields:  # a task for another core keeps its group until that changes
            locals_ += [reg_s_pointer.local] * 10
        if block == "CNA":
            locals_ += [dut.block["CONV_CON2"].local] * 10
        running_config = None
        for _ in range(350):
            kind = rng.random()
            if kind < 0.55:
                local = rng.choice(locals_) if rng.random() < 0.9 else rng.randrange(0x200, 0x1000, 4)
                value = rng.getrandbits(32)
                if block == "DPU" and local == dut.block["LUT_ACCESS_CFG"].local:
                    place = rng.choice([0, 1, 2, 511, 512, 513, 1023])
                    value = dut.block["LUT_ACCESS_CFG"].encode(
                        LUT_ACCESS_TYPE=rng.randrange(2), LUT_TABLE_ID=rng.randrange(2), LUT_ADDR=place
                    )
                elif local == reg_s_pointer.local:
                    value = rng.choice([0x0E, 0x0E, 0x3E, 0x30, 0x06, 0x01, 0x02])
                    if "CORE_INDEX" in reg_s_pointer.fields:
                        index = core if rng.random() < 0.8 else rng.randrange(4)
                        value |= reg_s_pointer.encode(CORE_INDEX=index)
                held = twin.held(local, value)
                before = len(events)
                assert await write(ctx, dut, local, value) == (not held), (hex(local), hex(value))
                if not held:
                    refused = twin.write(local, value)
                    check_mode(ctx)
                    await ctx.tick()
                    known = twin.register(local) is not None
                    code = DiagnosticCode.RESERVED_MODE if known else DiagnosticCode.UNKNOWN_WRITE
                    expected = (int(code), dut.block.base + local, value)
                    assert (expected in events[before:]) == refused
            elif kind < 0.8:
                local = rng.choice([*locals_, 0, 4])
                assert await read(ctx, dut, local) == twin.read(local), hex(local)
            elif kind < 0.9:
                if not twin.enable[twin.pointer]:
                    twin.op_enable()
                    await pulse_enable(ctx, dut)
                    check_mode(ctx)
            elif twin.running:
                check_config(ctx, running_config)
                twin.done()
                await finish(ctx, dut)
            was_running = twin.running
            await settle(ctx)
            if twin.running and not was_running:
                group = twin.groups[twin.executer]
                running_config = {r.name: r.decode(group[r.name]) for r in shadowed_registers(dut.block)}
                check_config(ctx, running_config)

    benches = [serve_tables(dut)] if block == "DPU" else []
    simulate(dut, *benches, watch, bench)


def test_lut_access_is_not_shadowed_and_waits() -> None:
    """A table is filled and read back under either pointer; writes wait for the end, reads do not."""
    dut = RegisterFile("DPU")
    config, access = dut.block["LUT_ACCESS_CFG"], dut.block["LUT_ACCESS_DATA"]

    async def bench(ctx) -> None:
        assert await write(ctx, dut, config.local, config.encode(LUT_ACCESS_TYPE=1, LUT_TABLE_ID=1))
        for entry in range(4):
            assert await write(ctx, dut, dut.block["S_POINTER"].local, ~entry & 1)
            assert await write(ctx, dut, access.local, 0xFF00 + entry)
        assert await write(ctx, dut, config.local, config.encode(LUT_TABLE_ID=1, LUT_ADDR=1))
        await pulse_enable(ctx, dut)
        assert not await write(ctx, dut, access.local, 9, bound=20)
        assert not await write(ctx, dut, config.local, 9, bound=20)
        assert [await read(ctx, dut, access.local) for _ in range(3)] == [0xFF01, 0xFF02, 0xFF03]
        assert await read(ctx, dut, config.local) == config.encode(LUT_TABLE_ID=1, LUT_ADDR=4)
        await finish(ctx, dut)
        await ctx.tick()
        assert await write(ctx, dut, config.local, 0)
        assert await read(ctx, dut, access.local) == 0
        assert await write(ctx, dut, config.local, config.encode(LUT_ACCESS_TYPE=1))
        for entry in range(8):
            assert await write(ctx, dut, access.local, 0x1000 + entry)
            await ctx.tick().repeat(1 + entry % 3)
        for table, first in ((0, 0x1000), (1, 0xFF00)):
            assert await write(ctx, dut, config.local, config.encode(LUT_TABLE_ID=table))
            assert [await read(ctx, dut, access.local) for _ in range(4)] == list(range(first, first + 4))

    simulate(dut, serve_tables(dut), bench)


def test_ping_pong_chain_keeps_groups_apart() -> None:
    """0x0E: tasks alternate groups, a third task's write waits for the first task's end."""
    dut = RegisterFile("PPU")
    width = dut.block["DATA_CUBE_IN_WIDTH"]

    async def bench(ctx) -> None:
        await write(ctx, dut, dut.block["S_POINTER"].local, 0x0E)
        for value in (10, 20):
            assert await write(ctx, dut, width.local, value)
            await pulse_enable(ctx, dut)
            await ctx.tick().repeat(3)
        assert await read(ctx, dut, 0) == dut.block["S_STATUS"].encode(STATUS_0="OTHER_WAITING")
        assert not await write(ctx, dut, width.local, 30, bound=20)
        assert ctx.get(dut.cfg.DATA_CUBE_IN_WIDTH.DATA_CUBE_IN_WIDTH) == 10
        await finish(ctx, dut)
        assert await write(ctx, dut, width.local, 30)
        await ctx.tick().repeat(3)
        assert ctx.get(dut.cfg.DATA_CUBE_IN_WIDTH.DATA_CUBE_IN_WIDTH) == 20
        await finish(ctx, dut)
        await ctx.tick().repeat(3)
        assert not ctx.get(dut.busy)

    simulate(dut, bench)


@pytest.mark.parametrize("value", [0x3E, 0x30])
def test_clearing_pointers_in_every_task_runs_every_task(value: int) -> None:
    """Pooling tasks write 0x3E or 0x30 each time [HW 1.7]: the next task waits until the block is idle."""
    dut = RegisterFile("PPU_RDMA")
    width = dut.block["CUBE_IN_WIDTH"]

    async def bench(ctx) -> None:
        for task in range(5):
            if task:
                assert not await write(ctx, dut, dut.block["S_POINTER"].local, value)
                await finish(ctx, dut)
            assert await write(ctx, dut, dut.block["S_POINTER"].local, value)
            assert await write(ctx, dut, width.local, task)
            await pulse_enable(ctx, dut)
            await ctx.tick().repeat(3)
            assert ctx.get(dut.control.group) == 0
            assert ctx.get(dut.cfg.CUBE_IN_WIDTH.CUBE_IN_WIDTH) == task

    simulate(dut, bench)


def test_settings_stay_visible_after_done_until_the_next_start() -> None:
    dut = RegisterFile("DPU")
    width = dut.block["DATA_CUBE_WIDTH"]

    async def bench(ctx) -> None:
        await write(ctx, dut, dut.block["S_POINTER"].local, 0x0E)
        for value in (7, 8, 9):
            assert await write(ctx, dut, width.local, value)
            previous = ctx.get(dut.cfg.DATA_CUBE_WIDTH.WIDTH)
            await pulse_enable(ctx, dut)
            while not ctx.get(dut.control.start):
                assert ctx.get(dut.cfg.DATA_CUBE_WIDTH.WIDTH) == previous
                await ctx.tick()
            assert ctx.get(dut.cfg.DATA_CUBE_WIDTH.WIDTH) == value
            await finish(ctx, dut)
            for _ in range(5):
                assert ctx.get(dut.cfg.DATA_CUBE_WIDTH.WIDTH) == value
                await ctx.tick()

    simulate(dut, bench)


def test_delta_task_inherits_from_two_tasks_before() -> None:
    dut = RegisterFile("DPU")
    seen = []

    async def bench(ctx) -> None:
        await write(ctx, dut, dut.block["S_POINTER"].local, 0x0E)
        for task in range(4):
            if task < 2:
                assert await write(ctx, dut, dut.block["DATA_CUBE_WIDTH"].local, 100 + task)
            assert await write(ctx, dut, dut.block["DATA_CUBE_CHANNEL"].local, task)
            await pulse_enable(ctx, dut)
            await ctx.tick().repeat(3)
            seen.append((ctx.get(dut.cfg.DATA_CUBE_WIDTH.WIDTH), ctx.get(dut.cfg.DATA_CUBE_CHANNEL.CHANNEL)))
            await finish(ctx, dut)

    simulate(dut, bench)
    assert seen == [(100, 0), (101, 1), (100, 2), (101, 3)]


def test_a_list_that_turns_ping_pong_on_waits_for_the_task_before_it() -> None:
    """Lists of the vendor write 0x30 and the next one 0x0E [HW 1.7]."""
    dut = RegisterFile("DPU")

    async def bench(ctx) -> None:
        pointer, width = dut.block["S_POINTER"].local, dut.block["DATA_CUBE_WIDTH"].local
        await write(ctx, dut, pointer, 0x30)
        await write(ctx, dut, width, 5)
        await pulse_enable(ctx, dut)
        assert await start_of(ctx, dut) == 0
        assert not await write(ctx, dut, pointer, 0x0E), "executer and pointer would differ"
        assert await write(ctx, dut, pointer, 0x00), "nothing changes"
        await finish(ctx, dut)
        assert await write(ctx, dut, pointer, 0x0E)
        await write(ctx, dut, width, 6)
        await pulse_enable(ctx, dut)
        assert await start_of(ctx, dut) == 0
        assert config_of(ctx, dut)["DATA_CUBE_WIDTH"]["WIDTH"] == 6
        await finish(ctx, dut)
        await write(ctx, dut, width, 7)
        await pulse_enable(ctx, dut)
        assert await start_of(ctx, dut) == 1

    simulate(dut, bench)


@pytest.mark.parametrize("core", [0, 1, 2])
def test_an_index_of_three_fits_every_core(core: int) -> None:
    dut = RegisterFile("CORE")

    async def bench(ctx) -> None:
        ctx.set(dut.core, core)
        pointer = dut.block["S_POINTER"]
        await write(ctx, dut, pointer.local, 0x0E | pointer.encode(CORE_INDEX="EVERY"))
        await pulse_enable(ctx, dut)
        assert await start_of(ctx, dut) == 0
        assert not ctx.get(dut.diag.valid)

    simulate(dut, bench)


@pytest.mark.parametrize("block", ["CNA", "CORE"])
def test_wrong_core_never_starts_and_says_so_once(block: str) -> None:
    dut = RegisterFile(block)
    events = []

    async def diagnostics(ctx) -> None:
        async for _, _, valid, payload in ctx.tick().sample(dut.diag.valid, dut.diag.payload):
            if valid:
                events.append((int(payload.code), payload.register, payload.value))

    async def bench(ctx) -> None:
        ctx.set(dut.core, 2)
        pointer = dut.block["S_POINTER"]
        await write(ctx, dut, pointer.local, 0x0E | pointer.encode(CORE_INDEX=1))
        await pulse_enable(ctx, dut)
        for _ in range(50):
            await ctx.tick()
            assert not ctx.get(dut.control.start)
        assert ctx.get(dut.busy)
        assert events == [(int(DiagnosticCode.WRONG_CORE), pointer.offset, 1)]
        await write(ctx, dut, pointer.local, 0x0E | pointer.encode(CORE_INDEX=2))
        await ctx.tick().repeat(3)
        assert await read(ctx, dut, 0) == dut.block["S_STATUS"].encode(STATUS_0="OPERATING")

    simulate(dut, diagnostics, bench)


def test_reset_brings_the_reset_values_back() -> None:
    """This includes a pointer write while the registers are being reset."""
    m = Module()
    m.domains.sync = domain = ClockDomain("sync")
    m.submodules.dut = dut = RegisterFile("CORE")
    reset = Signal()
    m.d.comb += domain.rst.eq(reset)
    gating, size = dut.block["MAC_GATING"], dut.block["DATAOUT_SIZE_0"]

    async def pulse_reset(ctx) -> None:
        ctx.set(reset, 1)
        for _ in range(3):
            await ctx.tick()
        ctx.set(reset, 0)

    async def bench(ctx) -> None:
        for pointer in (0, 1):
            assert await write(ctx, dut, 4, pointer)
            assert await write(ctx, dut, gating.local, 5)
            assert await write(ctx, dut, size.local, 6)
        await pulse_enable(ctx, dut)
        await pulse_reset(ctx)
        for _ in range(300):
            assert await write(ctx, dut, 4, 0)
        assert not ctx.get(dut.busy)
        for pointer in (0, 1):
            assert await write(ctx, dut, 4, pointer)
            assert await read(ctx, dut, gating.local) == gating.reset
            assert await read(ctx, dut, size.local) == 0
        await pulse_reset(ctx)
        await ctx.tick()
        assert await write(ctx, dut, size.local, 9, bound=300)
        assert await read(ctx, dut, size.local) == 9

    simulate(m, bench)


def test_undocumented_registers_are_ignored_silently() -> None:
    dut = RegisterFile("DPU")
    events = []

    async def diagnostics(ctx) -> None:
        async for _, _, valid in ctx.tick().sample(dut.diag.valid):
            if valid:
                events.append(valid)

    async def bench(ctx) -> None:
        assert await write(ctx, dut, dut.block["UNDOC_40C4"].local, 0xFFFFFFFF)
        assert await read(ctx, dut, dut.block["UNDOC_40C4"].local) == 0
        await ctx.tick().repeat(3)
        assert not events
        assert await write(ctx, dut, 0x0C8, 1)
        await ctx.tick().repeat(3)
        assert events

    simulate(dut, diagnostics, bench)


def test_configuration_has_the_fields_of_the_description() -> None:
    for block in BLOCKS:
        members = config_signature(block).members
        names = [r.name for r in shadowed_registers(registers()[block])]
        assert list(members) == names
        assert not {"S_STATUS", "S_POINTER", "OPERATION_ENABLE"} & set(names)
        for reg in shadowed_registers(registers()[block]):
            layout = register_layout(reg)
            assert layout.size == sum(f.width for f in reg.fields.values())
            assert Value.cast(layout.const({})).shape().width == layout.size
    with pytest.raises(KeyError, match="no 'NPU'"):
        config_signature("NPU")
    with pytest.raises(ValueError, match="no register groups"):
        config_signature("PC")


def test_arrays_and_stages_are_the_registers_of_the_description() -> None:
    """Groups are the values of the members, also with a Value as index; errors name what there is."""
    cfg = config_signature("DPU").flip().create()
    assert len(cfg.EW_OP_VALUE) == 8
    index, chosen, shift = Signal(3), Signal(signed(32)), Signal(6)
    m = Module()
    m.d.comb += [
        chosen.eq(cfg.EW_OP_VALUE[index].EW_OPERAND),
        shift.eq(cfg.stage("BS").DATA_FORMAT.MUL_SHIFT_VALUE_NEG),
    ]
    sim = Simulator(m)

    async def bench(ctx) -> None:
        for n in range(8):
            ctx.set(getattr(cfg, f"EW_OP_VALUE_{n}"), {f"EW_OPERAND_{n}": -n - 5})
        ctx.set(cfg.DATA_FORMAT, {"BS_MUL_SHIFT_VALUE_NEG": 19})
        for n in range(8):
            assert ctx.get(cfg.EW_OP_VALUE[n].EW_OPERAND) == -n - 5
            ctx.set(index, n)
            assert ctx.get(chosen) == -n - 5
        assert ctx.get(shift) == 19

    sim.add_testbench(bench)
    sim.run()
    with pytest.raises(AttributeError, match="DPU has no register or array 'EW_OP_VALUES'"):
        _ = cfg.EW_OP_VALUES
    with pytest.raises(AttributeError, match="EW_OP_VALUE has no 'EW_OPERAND_1'; it has EW_OPERAND"):
        _ = cfg.EW_OP_VALUE[1].EW_OPERAND_1
    with pytest.raises(KeyError, match="no registers of a stage 'BX'"):
        cfg.stage("BX")


def test_configurations_of_a_block_have_equal_signatures() -> None:
    assert config_signature("DPU") == config_signature("DPU") == config_signature("DPU").flip().flip()
    assert config_signature("DPU") != config_signature("PPU")
