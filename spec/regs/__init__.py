"""Registers of one NPU core: the only definition of offsets, fields, reset values and codes."""

from rkcosim.spec.regs.table import Block, Field, Register, RegisterMap, Window, counter_registers, registers

__all__ = ["Block", "Field", "Register", "RegisterMap", "Window", "counter_registers", "registers"]
