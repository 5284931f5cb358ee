"""Engines, golden models, command line and tools; the rooms of this folder are those of `rkcosim`."""

raise ImportError(f"{__name__} is a folder of the checkout; its modules are imported as rkcosim.engines, ...")
