"""Registers of one NPU core: the one home of every offset, field, reset value and code."""

from rtl.regs.table import Block, Field, Register, RegisterMap, Window, counter_registers, registers

__all__ = ["Block", "Field", "Register", "RegisterMap", "Window", "counter_registers", "registers"]
