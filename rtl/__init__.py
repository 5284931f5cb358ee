"""The RTL of the NPU."""

from rkcosim.spec import IMPORTED_AT as IMPORTED_AT

if not __name__.startswith("rkcosim."):
    raise ImportError(f"{__name__} is a folder of the checkout; its modules are imported as rkcosim.rtl")
