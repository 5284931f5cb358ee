"""Memory that the instances of one thread share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rkcosim.apis.tnn.device import AbstractDevice, Context
from rkcosim.apis.tnn.enums import DeviceType
from rkcosim.apis.tnn.status import StatusCode, TnnError

Key = tuple[int, DeviceType, int, str]
"""Thread, device type, device number, engine."""

Listener = Callable[[Any], None]
"""Is told the new memory when it was replaced by a larger one."""


@dataclass
class _Shared:
    base: Any = None
    size: int = 0
    listeners: dict[int, Listener] = field(default_factory=dict)


class SharedMemoryManager:
    """Shared memory by thread and device: as large as its largest user needs."""

    def __init__(self) -> None:
        self._kept: dict[Key, _Shared] = {}

    def acquire(
        self, key: Key, user: int, size: int, listener: Listener, device: AbstractDevice, context: Context
    ) -> None:
        """Let a user have at least `size` bytes; all users are told if the memory is replaced.

        Parameters
        ----------
        key
            Whose memory it is.
        user
            Number of the user.
        size
            Bytes that it needs.
        listener
            Called with the memory, now and after each replacement.
        device, context
            Where memory is allocated.
        """
        shared = self._kept.setdefault(key, _Shared())
        shared.listeners[user] = listener
        if shared.base is None or size > shared.size:
            before, shared.base = shared.base, device.Allocate(size, context)
            shared.size = size
            for told in shared.listeners.values():
                told(shared.base)
            if before is not None:
                device.Free(before)
        else:
            listener(shared.base)

    def release(self, key: Key, user: int, device: AbstractDevice) -> None:
        """End the use by a user; the last one frees the memory."""
        shared = self._kept.get(key)
        if shared is None:
            return
        shared.listeners.pop(user, None)
        if not shared.listeners:
            del self._kept[key]
            device.Free(shared.base)

    def size(self, key: Key) -> int:
        """Return the bytes that are shared, 0 if there are none."""
        return self._kept[key].size if key in self._kept else 0


SHARED = SharedMemoryManager()
"""The memory of this process."""


def check_thread(key: Key) -> None:
    """Check that the memory of `key` belongs to the calling thread.

    Raises
    ------
    TnnError
        If it does not.
    """
    if key[0] != threading.get_ident():
        raise TnnError(
            StatusCode.TNNERR_SHARED_THREAD, "the memory of this instance is shared in another thread"
        )
