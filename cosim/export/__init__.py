"""Designs as Verilog for other tools: `export_verilog`, and the implementation of `rkcosim verilog`."""

from rkcosim.export.export import export_verilog
from rkcosim.export.ports import ExportError

__all__ = ["ExportError", "export_verilog"]
