"""The blocks of an NPU core."""

if not __name__.startswith("rkcosim."):
    raise ImportError(f"{__name__} is a folder of the checkout; its modules are imported as rkcosim.rtl.npu")
