"""Performance counters of a core, in a window of the SoC outside every core's address map (docs/counters.md).

The counters are an addition of this project; silicon is not known to have any. spec/regs/counters.rdl
describes what is counted. The engines never run this RTL: cosim/engines/harness/counters.h counts the same
events in C++. Each block has a port `activity` with one bit for each of its states, and some blocks have a
port `levels` with the fill levels of queues.
"""

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.bus import AxiLite, AxiLiteSlave
from rkcosim.rtl.layouts import ReadClient, WriteClient
from rkcosim.rtl.regfile import pack_fields, register_layout
from rkcosim.spec.config import AXI_BYTES
from rkcosim.spec.regs import Register, counter_registers
from rkcosim.spec.regs.counters import LEVEL_BITS, WINDOW_BYTES, counts, levels, state_blocks, states
from rkcosim.spec.regs.events import EVENTS

COUNT_BITS = 48
"""Width of a counter: 2**48 cycles are 78 hours at 1 GHz."""

PENDING_WRITES = 32
"""Capacity in write bursts whose data is outstanding; a core has fewer (`rkcosim.rtl.npu.ddma`)."""

WATCHED: dict[str, int] = {
    "activity": len(states()),
    "levels": LEVEL_BITS * len(levels()),
    "macs": 12,
    "array_macs": 12,
    "events": 16,
    **{f"m_axi_{name}": 1 for name in ("arvalid", "arready", "rvalid", "rready", "awvalid", "awready")},
    **{f"m_axi_{name}": 1 for name in ("wvalid", "wready", "wlast")},
    "m_axi_rid": 5,
    "m_axi_awid": 4,
    "m_axi_wstrb": AXI_BYTES,
}
"""Outputs of a core that its counters observe, with their widths in bits."""


def activity_layout(block: str) -> data.StructLayout:
    """Layout with one bit for each state of a block, named as in spec/regs/counters.rdl."""
    return data.StructLayout({state.name: 1 for state in counter_registers()[block]})


def levels_layout(*names: str) -> data.StructLayout:
    """Layout of the named fill levels of spec/regs/counters.rdl."""
    known = counter_registers()["LEVELS"]
    return data.StructLayout({known[name].name: LEVEL_BITS for name in names})


def drive_activity(
    m: Module, platform: object, name: str, activity: data.View, idle: Value, **causes: Value
) -> None:
    """Drive the state bits of a block: `IDLE` from `idle`, the others from `causes`.

    If several causes hold, the counters count the first. No bit stands for "no cause": an assertion, with the
    `name` of the component, says that each cycle has a state. Each cause should be an expression that nothing
    else uses, so that a simulator evaluates it only while the counters are enabled.

    Raises
    ------
    ValueError
        If `causes` are not the states of the block in their order.
    """
    expected = [state for state in activity.shape().members if state != "IDLE"]
    if list(causes) != expected:
        raise ValueError(f"the states are {expected}, not {list(causes)}")
    m.d.comb += activity.IDLE.eq(idle)
    m.d.comb += [activity[state].eq(cause) for state, cause in causes.items()]
    assertions.always(m, platform, Value.cast(activity).any(), f"{name}.activity: a cycle has no state")


class CoreCounters(wiring.Component):
    """The counters of one core.

    All counts refer to cycles whose predecessor had `enable`, because the outputs of the core are registers.

    Members
    -------
    activity, levels, macs, array_macs, events, m_axi_... : In : outputs of that core (`WATCHED`).
    enable : In(1)   : count; connected to `counting` of the core.
    clear : In(1)    : pulse, sets all counts to 0.
    latch : In(1)    : pulse, copies the counts for reading.
    local : In(12)   : offset in the window.
    rdata : Out(32)  : latched word of the count at `local`, 0 where there is no register.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                **{name: In(width) for name, width in WATCHED.items()},
                "enable": In(1),
                "clear": In(1),
                "latch": In(1),
                "local": In(12),
                "rdata": Out(32),
            }
        )
        self.counts: dict[str, Signal] = {
            register.path: Signal(_bits(register), name=register.path.replace(".", "_"))
            for register in counts()
        }
        """The current counts by the path of their register."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        counting = Signal()
        m.d.sync += counting.eq(self.enable)

        count = self.counts
        cycles = count["CONTROL.CYCLES"]
        event = {name: self.events[bit] for bit, name in enumerate(EVENTS)}
        add: dict[str, Value] = {"CONTROL.CYCLES": Const(1)}
        add |= self._states()
        add |= self._traffic(m)
        add |= {"MACS.USEFUL": self.macs, "MACS.BUSY": self.array_macs}
        add |= {"MACS.SLOTS": event["mac_slot"], "MACS.PIXELS": event["mac_real"]}

        # A task is active from the cycle of its start to the cycle before its end.
        start, done = event["task_start"], event["task_done"]
        task_active, now_active = Signal(), Signal()
        took = Signal(COUNT_BITS)
        m.d.comb += [
            now_active.eq(start | (task_active & ~done)),
            took.eq(cycles - count["TASKS.LAST_START"]),
        ]
        m.d.sync += task_active.eq(counting & now_active)
        add |= {"TASKS.STARTED": start, "TASKS.DONE": done, "TASKS.CYCLES": now_active}

        with m.If(counting):
            m.d.sync += [count[path].eq(count[path] + amount) for path, amount in add.items()]
            for place, level in enumerate(levels()):
                mark, seen = count[level.path], self.levels.word_select(place, LEVEL_BITS)
                with m.If(seen > mark):
                    m.d.sync += mark.eq(seen)
            with m.If(start):
                m.d.sync += count["TASKS.LAST_START"].eq(cycles)
            with m.If(done):
                m.d.sync += count["TASKS.LAST_END"].eq(cycles)
                with m.If(task_active & (took > count["TASKS.LONGEST"])):
                    m.d.sync += count["TASKS.LONGEST"].eq(took)
        with m.If(self.clear):
            m.d.sync += [signal.eq(0) for signal in count.values()]
        self._read(m)
        return m

    def _states(self) -> dict[str, Value]:
        """State bits by path: `IDLE` as the block reports it, otherwise only the first state that holds."""
        found: dict[str, Value] = {}
        bit = 0
        for block in state_blocks():
            idle, *others = block
            found[idle.path] = self.activity[bit]
            for place, state in enumerate(others, bit + 1):
                found[state.path] = self.activity[place] & ~self.activity[bit + 1 : place].any()
            bit += len(block.registers)
        return found

    def _traffic(self, m: Module) -> dict[str, Value]:
        """Increments of the AXI counts in this cycle."""
        passes = {
            channel: getattr(self, f"m_axi_{channel}valid") & getattr(self, f"m_axi_{channel}ready")
            for channel in ("ar", "r", "aw", "w")
        }
        # Write data carry no id: they follow the order of the addresses.
        ids, waiting = Signal(PENDING_WRITES), Signal(range(PENDING_WRITES + 1))
        ids_left, waiting_left = Signal.like(ids), Signal.like(waiting)
        leaves = passes["w"] & self.m_axi_wlast & (waiting != 0)
        m.d.comb += [ids_left.eq(ids), waiting_left.eq(waiting)]
        with m.If(leaves):
            m.d.comb += [ids_left.eq(ids[1:]), waiting_left.eq(waiting - 1)]
        m.d.sync += [ids.eq(ids_left), waiting.eq(waiting_left)]
        with m.If(passes["aw"] & (waiting_left != PENDING_WRITES)):
            m.d.sync += [
                ids.bit_select(waiting_left[:5], 1).eq(self.m_axi_awid[0]),
                waiting.eq(waiting_left + 1),
            ]
        written = Signal(range(AXI_BYTES + 1))
        m.d.comb += written.eq(sum(self.m_axi_wstrb[byte] for byte in range(AXI_BYTES)))

        found: dict[str, Value] = {}
        for client in ReadClient:
            mine = passes["r"] & (self.m_axi_rid[:3] == client.value)
            found[f"BYTES.{client.name}"] = Mux(mine, AXI_BYTES, 0)
        writer = Mux(waiting != 0, ids[0], 0)
        for writes in WriteClient:
            mine = passes["w"] & (writer == writes.value)
            found[f"BYTES.{writes.name}_WRITE"] = Mux(mine, written, 0)
        return found | {"BYTES.READS": passes["ar"], "BYTES.WRITES": passes["aw"]}

    def _read(self, m: Module) -> None:
        """Drive `rdata` from the latched counts."""
        kept = {path: Signal.like(count, name=f"{count.name}_kept") for path, count in self.counts.items()}
        with m.If(self.latch):
            m.d.sync += [kept[path].eq(count) for path, count in self.counts.items()]
        with m.Switch(self.local[2:]):
            for register in counts():
                for word in range(register.width // 32):
                    with m.Case(register.offset // 4 + word):
                        m.d.comb += self.rdata.eq(kept[register.path][32 * word : 32 * word + 32])


class CounterWindow(wiring.Component):
    """The counter windows of all cores behind one AXI4-Lite slave.

    A read outside the registers returns 0; a write there has no effect.

    Members
    -------
    axil : In(AxiLite())     : address 0x1000 times the core plus the register's offset.
    core0, core1, ... : inputs as those of `CoreCounters`, and `counting` : Out(1) for each core.
    """

    def __init__(self, cores: int) -> None:
        self._counters = [CoreCounters() for _ in range(cores)]
        ports = {name: In(width) for name, width in WATCHED.items()} | {"counting": Out(1)}
        super().__init__(
            {
                "axil": In(AxiLite()),
                **{f"core{core}": Out(wiring.Signature(ports)) for core in range(cores)},
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.axil = slave = AxiLiteSlave()
        wiring.connect(m, wiring.flipped(self.axil), slave.axil)
        bus = slave.bus
        control = counter_registers()["CONTROL"]
        ident, switch = control["IDENT"], control["SWITCH"]
        layout = register_layout(switch)
        written = Signal(layout)
        local, window = bus.offset[:12], bus.offset[12:]
        m.d.comb += [bus.ready.eq(1), Value.cast(written).eq(pack_fields(switch, bus.wdata))]
        for core, counters in enumerate(self._counters):
            m.submodules[f"core{core}"] = counters
            port = getattr(self, f"core{core}")
            m.d.comb += [getattr(counters, name).eq(getattr(port, name)) for name in WATCHED]
            enable = Signal(name=f"enable{core}")
            here = window == core
            m.d.comb += [counters.enable.eq(enable), port.counting.eq(enable), counters.local.eq(local)]
            with m.If(bus.write & here & (local == switch.offset)):
                m.d.sync += enable.eq(written.ENABLE)
                m.d.comb += [counters.clear.eq(written.CLEAR), counters.latch.eq(written.LATCH)]
            with m.If(here):
                m.d.comb += bus.rdata.eq(counters.rdata)
                with m.If(local == ident.offset):
                    m.d.comb += bus.rdata.eq(ident.reset)
                with m.If(local == switch.offset):
                    m.d.comb += bus.rdata.eq(enable << switch.fields["ENABLE"].lsb)
        assertions.ports(m, platform, self)
        return m


def _bits(register: Register) -> int:
    (field,) = register.fields.values()
    return field.width


assert WINDOW_BYTES == 1 << 12, "`local` has 12 bits"
