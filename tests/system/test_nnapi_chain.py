"""Two NNAPI models on the RTL, with a tensor between them that stays in device memory."""

from __future__ import annotations

import numpy as np

from rkcosim.apis.nnapi.device import IDevice
from rkcosim.apis.nnapi.hal_types import BufferDesc, BufferRole, Request
from rkcosim.apis.nnapi.memory import ashmem
from tests.unit.test_nnapi_memory import BYTES, data, layer, place, received, shared, wanted


def test_a_chain_on_the_rtl_equals_copies_through_shared_memory() -> None:
    with IDevice(checked=True) as device:
        first, second = (device.prepare_model(layer(seed)) for seed in (1, 2))
        between = device.allocate(BufferDesc(), [first, second], [BufferRole(1, 0)], [BufferRole(0, 0)])
        source, target = shared(data()), ashmem(BYTES)
        begin = Request((place(0, 0, BYTES),), (place(1),), (source, between.token))
        one = first.execute_synchronously(begin, measure=True)
        end = Request((place(0),), (place(1, 0, BYTES),), (between.token, target))
        two = second.execute_synchronously(end, measure=True)
        assert one.timing.time_on_device_ns > 0 and two.timing.time_on_device_ns > 0, "cycles at 1 GHz"
        assert second.account.bytes_unconverted >= BYTES and device.traffic.kept == BYTES
        assert np.array_equal(received(target), wanted(second, wanted(first, data())))
