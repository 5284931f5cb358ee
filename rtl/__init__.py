"""The RTL of the NPU."""

import time

IMPORTED_AT = time.time()
"""When this process began to import the RTL; files changed since are not what it runs."""
