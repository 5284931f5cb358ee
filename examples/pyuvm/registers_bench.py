"""The standard register sequences of UVM on the core, in pyuvm with the generated register model.

Make the files, then run (docs/register_tools.md):

    rkcosim verilog -o build/verilog --block core --external-cell
    rkcosim registers --format pyuvm -o build/verilog/npu_registers.py
    rkcosim verilator --exec python registers_bench.py build/verilog verilator

`HwReset` and `BitBash` follow `uvm_reg_hw_reset_seq` and `uvm_reg_bit_bash_seq` of UVM 1.2, which pyuvm 5
does not have. They use nothing of `rkcosim`.
"""

import json
import logging
import os
import sys
from pathlib import Path

import cocotb
import pyuvm
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles
from cocotbext.axi import AxiLiteBus, AxiLiteMaster
from pyuvm import (
    ConfigDB,
    uvm_access_e,
    uvm_check_e,
    uvm_driver,
    uvm_env,
    uvm_reg_adapter,
    uvm_reg_sequence,
    uvm_sequence_item,
    uvm_sequencer,
    uvm_status_e,
    uvm_test,
)

TIED = ("core_index", "options", "step_answer", "counting")
"""Inputs beside the buses; all of them idle at 0."""


class Access(uvm_sequence_item):
    """One access of AXI4-Lite."""

    def __init__(self, name, write=False, address=0, data=0):
        super().__init__(name)
        self.write, self.address, self.data, self.okay = write, address, data, False


class Adapter(uvm_reg_adapter):
    """From the operations of the register model to accesses, and back."""

    def reg2bus(self, rw):
        return Access("access", rw.kind == uvm_access_e.UVM_WRITE, rw.addr, rw.data)

    def bus2reg(self, bus_item, rw):
        rw.data = bus_item.data
        rw.status = uvm_status_e.UVM_IS_OK if bus_item.okay else uvm_status_e.UVM_NOT_OK


class Driver(uvm_driver):
    """Drives accesses by cocotbext-axi's master."""

    async def run_phase(self):
        master = ConfigDB().get(self, "", "MASTER")
        while True:
            item = await self.seq_item_port.get_next_item()
            if item.write:
                answer = await master.write(item.address, item.data.to_bytes(4, "little"))
            else:
                answer = await master.read(item.address, 4)
                item.data = int.from_bytes(answer.data, "little")
            item.okay = int(answer.resp) == 0
            self.seq_item_port.item_done()


class HwReset(uvm_reg_sequence):
    """Reads each register and compares with its reset value."""

    async def body(self):
        self.model.reset()
        self.checked = 0
        for register in self.model.get_registers():
            if register.get_rights() == "WO":
                continue
            self.checked += _compared(register) != 0
            await _mirror(self, register)


class BitBash(uvm_reg_sequence):
    """Inverts each bit of each register twice and compares all of the register after each write."""

    async def body(self):
        self.model.reset()
        self.checked = 0
        for register in self.model.get_registers():
            if register.get_rights() == "RO":
                continue
            tested = _compared(register)
            for bit in range(register.get_n_bits()):
                if not tested >> bit & 1:
                    continue
                for _ in range(2):
                    status = await register.write(register.get() ^ 1 << bit, parent=self)
                    assert status == uvm_status_e.UVM_IS_OK, f"write of {register.get_full_name()}"
                    await _mirror(self, register)
                self.checked += 1


def _compared(register):
    """Bits that the sequences test: not those that hardware changes, and not those that are only written."""
    mask = 0
    for field in register.get_fields():
        checked = field.get_compare() == uvm_check_e.UVM_CHECK and not field.is_volatile()
        if checked and field.get_access() not in ("WO", "WOC", "WOS", "WO1", "NOACCESS"):
            mask |= (1 << field.get_n_bits()) - 1 << field.get_lsb_pos()
    return mask


async def _mirror(sequence, register):
    expected, mask = register.get_mirrored_value(), _compared(register)
    status, value = await register.read(parent=sequence)
    name = register.get_full_name()
    assert status == uvm_status_e.UVM_IS_OK, f"read of {name}"
    assert (value ^ expected) & mask == 0, f"{name} is 0x{value:08X}, the model has 0x{expected:08X}"


class Env(uvm_env):
    """Sequencer, driver and register model."""

    def build_phase(self):
        from npu_registers import npu_core

        self.sequencer = uvm_sequencer("sequencer", self)
        self.driver = Driver("driver", self)
        self.model = npu_core("npu")
        self.model.build()
        self.model.lock_model()
        bus = self.model.get_default_map()
        bus.set_sequencer(self.sequencer, Adapter("adapter"))
        bus.set_auto_predict(True)

    def connect_phase(self):
        self.driver.seq_item_port.connect(self.sequencer.seq_item_export)


class RegisterTest(uvm_test):
    """Resets the core and runs a sequence."""

    kind = HwReset

    def build_phase(self):
        self.dut = cocotb.top
        master = AxiLiteMaster(AxiLiteBus.from_prefix(self.dut, "s_axil"), self.dut.clk, self.dut.rst)
        logging.getLogger(f"cocotb.{self.dut._name}.s_axil").setLevel(logging.WARNING)
        ConfigDB().set(None, "*", "MASTER", master)
        self.env = Env("env", self)

    async def run_phase(self):
        self.raise_objection()
        for name in TIED:
            getattr(self.dut, name).value = 0
        cocotb.start_soon(Clock(self.dut.clk, 2, "ns").start())
        self.dut.rst.value = 1
        await ClockCycles(self.dut.clk, 4)
        self.dut.rst.value = 0
        await ClockCycles(self.dut.clk, 300)  # the register files take their reset values
        sequence = self.kind("sequence")
        sequence.model = self.env.model
        await sequence.start()
        assert not int(self.dut.busy_blocks.value), "the sequence has started a block"
        assert not int(self.dut.diag_valid.value)
        self.logger.info(f"{self.kind.__name__}: {sequence.checked} checked")
        assert sequence.checked >= self.least
        self.drop_objection()


@pyuvm.test(timeout_time=10, timeout_unit="ms")
class ResetTest(RegisterTest):
    """All registers have the reset values of the description."""

    kind, least = HwReset, 150


@pyuvm.test(timeout_time=10, timeout_unit="ms")
class BitBashTest(RegisterTest):
    """All bits that software can write can be written, and change nothing else."""

    kind, least = BitBash, 3500


def run(folder, simulator):
    """Build the core with cocotb's own runner from the lists of `rkcosim verilog`, and run both tests."""
    from cocotb_tools.check_results import get_results
    from cocotb_tools.runner import get_runner

    folder = Path(folder).resolve()
    listed = json.loads((folder / "npu_core.cocotb.json").read_text())[simulator]
    os.chdir(folder)
    runner = get_runner(simulator)
    runner.build(build_dir=f"build_{simulator}", **listed)
    here = str(Path(__file__).resolve().parent)
    sys.path[:0] = [here, str(folder)]
    results = runner.test(
        hdl_toplevel="npu_core",
        test_module=Path(__file__).stem,
        build_dir=f"build_{simulator}",
        test_dir=".",
    )
    tests, failed = get_results(results)
    sys.exit(failed > 0 or tests == 0)


if __name__ == "__main__":
    run(*sys.argv[1:3])
