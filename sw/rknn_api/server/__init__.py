"""Server of the interface for programs in other processes, which call it through `librknnrt.so`."""

from rkcosim.rknn_api.server.server import RknnServer

__all__ = ["RknnServer"]
