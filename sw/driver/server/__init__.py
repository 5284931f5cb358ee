"""The simulated kernel behind a Unix socket, for programs of other processes (with the preload library)."""

from rkcosim.driver.server.descriptors import Descriptors
from rkcosim.driver.server.server import Server, ServerError
from rkcosim.driver.server.tree import Tree

__all__ = ["Descriptors", "Server", "ServerError", "Tree"]
