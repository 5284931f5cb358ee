"""Model of the NPU's kernel drivers: device nodes, ioctls, buffers and jobs of `rknpu` and `rocket`.

`Kernel(device)` is the simulated machine; `docs/kernel.md` describes what it models.
"""

from rkcosim.driver.kernel.fences import DmaBuf, Fence, SyncFile
from rkcosim.driver.kernel.files import File
from rkcosim.driver.kernel.interface import Credentials, FdTable, KernelError, KernelFile, UserMemory
from rkcosim.driver.kernel.log import Line, Log
from rkcosim.driver.kernel.machine import BoardView, DeviceNode, Kernel
from rkcosim.driver.kernel.sysfs import TextFile

__all__ = [
    "BoardView",
    "Credentials",
    "DeviceNode",
    "DmaBuf",
    "FdTable",
    "Fence",
    "File",
    "Kernel",
    "KernelError",
    "KernelFile",
    "Line",
    "Log",
    "SyncFile",
    "TextFile",
    "UserMemory",
]
