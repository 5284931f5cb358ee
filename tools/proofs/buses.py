"""Proofs of the AXI-Lite slave, the register fabric, and the registers of the DMA and the PC."""

from __future__ import annotations

from amaranth.hdl import Cat, Signal, Value

from rkcosim.rtl.bus import AxiLiteSlave
from rkcosim.rtl.npu.dma_registers import DmaRegisters
from rkcosim.rtl.pc_registers import PcRegisters
from rkcosim.rtl.regbus import BLOCKS, PATIENCE, RegisterFabric
from rkcosim.spec.regs import registers
from tools.proofs.bench import Bench, in_order, offers, stable


def _slave(bench: Bench) -> AxiLiteSlave:
    slave = bench.drive("slave", AxiLiteSlave())
    axil = slave.axil
    offers(bench, axil.awvalid, axil.awready, axil.awaddr)
    offers(bench, axil.wvalid, axil.wready, Cat(axil.wdata, axil.wstrb))
    offers(bench, axil.arvalid, axil.arready, axil.araddr)
    return slave


def axi_lite_rules(bench: Bench) -> None:
    """Responses are stable, follow their requests and are as many; writes do not starve a read."""
    slave = _slave(bench)
    axil, bus = slave.axil, slave.bus
    stable(bench, "write response", axil.bvalid, axil.bready, axil.bresp)
    stable(bench, "read response", axil.rvalid, axil.rready, Cat(axil.rdata, axil.rresp))
    answered, read = axil.bvalid & axil.bready, axil.rvalid & axil.rready
    addresses = bench.count("addresses", 3, up=axil.awvalid & axil.awready, down=answered)
    words = bench.count("words", 3, up=axil.wvalid & axil.wready, down=answered)
    reads = bench.count("reads", 3, up=axil.arvalid & axil.arready, down=read)
    bench.claim("a write response follows address and data", ~axil.bvalid | ((addresses != 0) & (words != 0)))
    bench.claim("a read response follows its address", ~axil.rvalid | (reads != 0))
    bench.claim("at most two transfers of a channel are open", (addresses <= 2) & (words <= 2) & (reads <= 2))
    bench.claim("one access at a time", ~(bus.read & bus.write))
    # Fairness: counted while a read is held and its response can be taken.
    held = bench.count("held", 2, up=axil.arvalid & axil.arready, down=bus.read & bus.ready)
    passed = Signal(3, name="passed")
    with bench.m.If((held == 0) | (bus.read & bus.ready) | axil.rvalid):
        bench.m.d.sync += passed.eq(0)
    with bench.m.Elif(bus.write & bus.ready):
        bench.m.d.sync += passed.eq(passed + 1)
    bench.claim("at most two writes pass a waiting read", passed <= 2)
    bench.reach(axil.bvalid & axil.rvalid)
    bench.reach(bus.read & ~bus.ready)


def axi_lite_accesses(bench: Bench) -> None:
    """Each whole write becomes one access with its address and data, and each read one with its address."""
    slave = _slave(bench)
    axil, bus = slave.axil, slave.bus
    bench.assume(axil.wstrb.all())
    wrote, got = bus.write & bus.ready, bus.read & bus.ready
    in_order(bench, "write addresses", axil.awvalid & axil.awready, axil.awaddr, wrote, bus.offset, 1)
    in_order(bench, "write data", axil.wvalid & axil.wready, axil.wdata, wrote, bus.wdata, 1)
    in_order(bench, "read addresses", axil.arvalid & axil.arready, axil.araddr, got, bus.offset, 1)
    given = Cat(bus.rdata, bus.error)
    shown = Cat(axil.rdata, axil.rresp[1])
    in_order(bench, "read data", got, given, axil.rvalid & axil.rready, shown, 1)
    in_order(bench, "write errors", wrote, bus.error, axil.bvalid & axil.bready, axil.bresp[1], 1)
    bench.reach(wrote)
    bench.reach(axil.rvalid & axil.rready)


def axi_lite_strobes(bench: Bench) -> None:
    """A write of less than a word is not performed and is answered with SLVERR."""
    slave = _slave(bench)
    axil, bus = slave.axil, slave.bus
    bench.assume(~bus.error)
    part = ~axil.wstrb.all()
    answered = axil.bvalid & axil.bready
    in_order(bench, "answers", axil.wvalid & axil.wready, part, answered, axil.bresp[1], 2)
    whole = bench.count("whole", 3, up=axil.wvalid & axil.wready & ~part, down=bus.write & bus.ready)
    bench.claim("an access follows a whole word", ~bus.write | (whole != 0))
    bench.reach(answered & axil.bresp[1])


def register_fabric(bench: Bench) -> None:
    """One access at a time reaches the block of its window, with its offset and value; none is lost."""
    fabric = bench.drive("fabric", RegisterFabric())
    host, fetch = fabric.host, fabric.fetch
    for side in (host, fetch):
        bench.assume(~(side.write & side.read))
        offers(bench, side.write | side.read, side.ready, Cat(side.write, side.offset, side.wdata))
    ports = {name: getattr(fabric, name.lower()) for name in BLOCKS}
    at_work = [port.write | port.read for port in ports.values()]
    many = sum((Value.cast(one) for one in at_work), start=Value.cast(0))
    bench.claim("at most one block is accessed", many <= 1)
    bench.claim("at most one side is served", ~(host.ready & fetch.ready & (host.write | host.read)))
    for name, port in ports.items():
        window = registers()[name].base >> 12
        sources = []
        for side in (host, fetch):
            here = side.offset[12:] == window
            same = (port.offset == side.offset[:12]) & (port.wdata == side.wdata)
            sources.append(side.write & side.ready & here & same)
            done = port.write & port.ready
            bench.claim(
                f"a served write of {name} is one of the block", ~(side.write & side.ready & here) | done
            )
        bench.claim(
            f"a write of {name} comes from a side", ~(port.write & port.ready) | sources[0] | sources[1]
        )
    bench.reach(host.ready & host.write & fetch.write)
    bench.reach(fetch.ready & fetch.write & host.write)


def register_fabric_waits(bench: Bench) -> None:
    """A write that its block delays for ever does not keep the host from another block."""
    fabric = bench.drive("fabric", RegisterFabric(), skip=("pc",))
    host, fetch = fabric.host, fabric.fetch
    bench.m.d.comb += fabric.pc.ready.eq(1)
    bench.assume(host.offset[12:] == registers()["PC"].base >> 12)
    bench.assume(~fetch.read & ~(host.write & host.read))
    for side in (host, fetch):
        offers(bench, side.write | side.read, side.ready, Cat(side.write, side.offset, side.wdata))
    waited = Signal(4, name="waited")
    with bench.m.If((host.write | host.read) & ~host.ready):
        bench.m.d.sync += waited.eq(waited + 1)
    with bench.m.Else():
        bench.m.d.sync += waited.eq(0)
    bench.claim(f"the host waits at most {PATIENCE} cycles", waited <= PATIENCE)
    bench.reach(waited == PATIENCE)


def dma_registers(bench: Bench) -> None:
    """The limits change by writes of CFG_OUTSTANDING only; unknown writes are reported and change nothing."""
    regs = bench.drive("regs", DmaRegisters("DDMA"))
    port, block = regs.port, registers()["DDMA"]
    limits = block["CFG_OUTSTANDING"]
    mine = port.write & (port.offset == limits.local)
    for name, shown in (("RD_OS_CNT", regs.read_limit), ("WR_OS_CNT", regs.write_limit)):
        field = limits.fields[name]
        kept = bench.when(mine, port.wdata[field.lsb : field.msb + 1], name, init=field.reset)
        bench.claim(f"{name} is what was written last", shown == kept)
    known = Cat(*(port.offset == register.local for register in block)).any()
    bench.claim("unknown writes are reported, no others", regs.diag.valid == (port.write & ~known))
    bench.claim("unknown registers read 0", known | (port.rdata == 0))
    bench.reach(regs.diag.valid)
    bench.reach(regs.read_limit == 3)


def pc_registers(bench: Bench) -> None:
    """Base, amount and tasks are what host or link have written last; only OP_EN starts a kick."""
    regs = bench.drive("regs", PcRegisters())
    port, block = regs.port, registers()["PC"]

    def stored(register: str, field: str, link: Value | None) -> Signal:
        described, place = block[register], block[register].fields[field]
        mine = port.write & (port.offset == described.local)
        kept = Signal(place.width, init=place.reset, name=f"kept_{field}")
        with bench.m.If(mine):
            bench.m.d.sync += kept.eq(port.wdata[place.lsb : place.msb + 1])
        if link is not None:
            with bench.m.If(link):
                bench.m.d.sync += kept.eq(regs.link_value[place.lsb : place.msb + 1])
        return kept

    base = stored("BASE_ADDRESS", "PC_SOURCE_ADDR", regs.link_base)
    amount = stored("REGISTER_AMOUNTS", "PC_DATA_AMOUNT", regs.link_amount)
    tasks = stored("TASK_CON", "TASK_NUMBER", None)
    bench.claim("the base is what was written last", regs.base == base)
    bench.claim("the amount is what was written last", regs.amount == amount)
    bench.claim("the task number is what was written last", regs.tasks == tasks)
    enable = block["OPERATION_ENABLE"]
    kick = port.write & (port.offset == enable.local) & port.wdata[enable.fields["OP_EN"].lsb]
    bench.claim("only OP_EN starts a kick", regs.kick == kick)
    inner = Cat(*(port.offset == r.local for r in block if r.name.startswith("INTERRUPT_"))).any()
    bench.claim("only INTERRUPT_ registers are passed on", regs.interrupts.write == (port.write & inner))
    bench.claim(
        "an unknown write is reported",
        ~port.write | Cat(*(port.offset == r.local for r in block)).any() | regs.diag.valid,
    )
    at = port.offset == block["TASK_CON"].local
    place = block["TASK_CON"].fields["TASK_NUMBER"]
    bench.claim("the task number can be read", ~at | (port.rdata[place.lsb : place.msb + 1] == tasks))
    bench.reach(regs.kick & (regs.tasks == 5))
    bench.reach(regs.link_base & port.write)
