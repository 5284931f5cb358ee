"""Designs as Verilog for other tools: `export_verilog`, and what `rkcosim verilog` writes."""

from cosim.export.export import export_verilog
from cosim.export.rtlil import ExportError

__all__ = ["ExportError", "export_verilog"]
