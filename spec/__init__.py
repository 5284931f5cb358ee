"""Facts of the hardware: registers, geometry and byte layouts, each of which is defined only here."""

import time

IMPORTED_AT = time.time()
"""Time at which this process began to import the hardware description.

Source files that have changed since are not the ones that this process runs.
"""

if not __name__.startswith("rkcosim."):
    raise ImportError(f"{__name__} is a folder of the checkout; its modules are imported as rkcosim.spec")
