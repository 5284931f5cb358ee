"""The kernel's side of the NPU as a model: device nodes, ioctls, buffers and jobs of `rknpu` and `rocket`.

`Kernel(device)` is the simulated machine; `docs/kernel.md` says what it models.
"""

from sw.driver.kernel.errors import KernelError
from sw.driver.kernel.fences import DmaBuf, Fence, SyncFile
from sw.driver.kernel.files import File
from sw.driver.kernel.interface import Credentials, FdTable, KernelFile, UserMemory
from sw.driver.kernel.log import Line, Log
from sw.driver.kernel.machine import Kernel, Node
from sw.driver.kernel.sysfs import TextFile

__all__ = [
    "Credentials",
    "DmaBuf",
    "FdTable",
    "Fence",
    "File",
    "Kernel",
    "KernelError",
    "KernelFile",
    "Line",
    "Log",
    "Node",
    "SyncFile",
    "TextFile",
    "UserMemory",
]
