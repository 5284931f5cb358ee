"""Listeners of a local cluster that close connections of other users before anything is read from them.

The key of the run already keeps others out, but whoever may hold connections open without a key could use up
the descriptors of these processes.  Importing this module changes how this process listens on `tls://`
addresses; the workers of a local cluster import it before they listen.
"""

from __future__ import annotations

import asyncio
from typing import Any

from distributed.comm import registry
from distributed.comm.tcp import TLSBackend, TLSListener

from rkcosim.base import trust

HANDSHAKE_SECONDS = 30
"""Seconds within which a process of this user must have shown the key."""


class OwnListener(TLSListener):
    """A listener for the processes of this user and of the superuser."""

    def _handle_stream(self, stream: Any, address: Any) -> Any:
        """Close the connection of another user at once; many are accepted before a coroutine would run."""
        uid = trust.tcp_peer(stream.socket)
        if uid is not None and not trust.is_own(uid):
            stream.close()
            return None
        return super()._handle_stream(stream, address)

    async def _prepare_stream(self, stream: Any, address: Any) -> Any:
        try:
            return await asyncio.wait_for(super()._prepare_stream(stream, address), HANDSHAKE_SECONDS)
        except TimeoutError:
            stream.close()
            return None


class OwnBackend(TLSBackend):
    """TLS with `OwnListener`."""

    _listener_class = OwnListener


registry.backends["tls"] = OwnBackend()
