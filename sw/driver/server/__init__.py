"""The simulated kernel behind a Unix socket: programs of other processes reach it by the preload library."""

from sw.driver.server.descriptors import Descriptors
from sw.driver.server.server import Server, ServerError
from sw.driver.server.tree import Tree

__all__ = ["Descriptors", "Server", "ServerError", "Tree"]
