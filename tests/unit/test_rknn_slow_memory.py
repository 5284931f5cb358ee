"""rknn_api: memory of a file system that stops to answer, as FUSE and NFS can, and memory that is destroyed
while it is in use. The other programs of a server are threads here."""

from __future__ import annotations

import contextlib
import ctypes as ct
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import rkcosim.rknn_api as rk
from rkcosim.compiler.runtime import LoadedModel
from rkcosim.driver import Driver
from rkcosim.golden.task import GoldenNpu
from rkcosim.rknn_api.memory import memory_of
from rkcosim.rknn_api.server import RknnServer
from rkcosim.rknn_api.server import server as server_module
from rkcosim.rknn_api.server.protocol import Gone
from rkcosim.rknn_api.state import runtime
from tests.makers.rknn_models import Qdq, image_model, open_model, query_attr, run_float, set_float
from tests.system.test_librknnrt_hostile import Client, opened

SECONDS = 20
X = (np.arange(180).reshape(1, 3, 6, 10) % 50 / 2).astype(np.float32)


@pytest.fixture(autouse=True)
def device() -> Iterator[Driver]:
    driver = Driver(GoldenNpu(1), shared=True)
    rk.use_device(driver)
    yield driver
    for handle, state in list(runtime.contexts.items()):
        (rk.rknn_destroy if hasattr(state, "model") else rk.rknn_matmul_destroy)(handle)
    rk.use_device(None)


class SlowFile:
    """A file whose reads and writes wait while `stopped` is set, until `go_on` is.

    Members
    -------
    begun : set when somebody waits.
    """

    def __init__(self, size: int) -> None:
        self.fd = os.memfd_create("slow")
        os.ftruncate(self.fd, size)
        self.inode = os.fstat(self.fd).st_ino
        self.stopped, self.begun, self.go_on = (threading.Event() for _ in range(3))

    def slowed(self, real: Callable[..., int]) -> Callable[..., int]:
        """Return a system call that waits for this file."""

        def called(fd: int, *arguments: Any) -> int:
            if self.stopped.is_set() and os.fstat(fd).st_ino == self.inode:
                self.begun.set()
                assert self.go_on.wait(SECONDS)
            return real(fd, *arguments)

        return called


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowFile]:
    made = SlowFile(1 << 14)
    for name in ("preadv", "pwritev"):
        monkeypatch.setattr(os, name, made.slowed(getattr(os, name)))
    yield made
    made.go_on.set()
    os.close(made.fd)


class Doing(threading.Thread):
    """A call in a thread; `result` is what it returned."""

    def __init__(self, call: Callable[[], int]) -> None:
        super().__init__(daemon=True)
        self._call, self.result = call, None
        self.start()

    def run(self) -> None:
        """Do the call."""
        self.result = self._call()

    def ended(self, seconds: float = SECONDS) -> Any:
        """Return the result; fails if there is none in time."""
        self.join(seconds)
        assert not self.is_alive()
        return self.result


def bound(slow: SlowFile, query: int) -> tuple[int, Any]:
    """A context one of whose tensors is in the slow file, and its memory."""
    context = open_model(image_model())
    attr = query_attr(context, query)
    memory = rk.rknn_create_mem_from_fd(context, slow.fd, None, attr.size_with_stride, 0)
    assert memory, rk.last_error(context)
    assert rk.rknn_set_io_mem(context, memory, ct.byref(attr)) == rk.RKNN_SUCC
    if query != rk.RKNN_QUERY_INPUT_ATTR:
        set_float(context, X)
    return context, memory


def others_run() -> None:
    """Another program opens a model, runs it, and frees it and memory of its own."""

    def all_of_it() -> int:
        context = open_model(image_model())
        memory = rk.rknn_create_mem(context, 4096)
        assert run_float(context, X).any()
        assert rk.rknn_destroy_mem(context, memory) == rk.RKNN_SUCC
        return rk.rknn_destroy(context)

    assert Doing(all_of_it).ended() == rk.RKNN_SUCC


@pytest.mark.parametrize("query", [rk.RKNN_QUERY_INPUT_ATTR, rk.RKNN_QUERY_OUTPUT_ATTR])
def test_a_run_with_a_slow_file_holds_nobody_up(slow: SlowFile, query: int) -> None:
    context, _ = bound(slow, query)
    slow.stopped.set()
    running = Doing(lambda: rk.rknn_run(context))
    assert slow.begun.wait(SECONDS)
    others_run()
    assert running.is_alive()
    slow.go_on.set()
    assert running.ended() == rk.RKNN_SUCC


def test_a_slow_output_gets_the_results_of_its_run(slow: SlowFile) -> None:
    context, _ = bound(slow, rk.RKNN_QUERY_OUTPUT_ATTR)
    slow.stopped.set()
    running = Doing(lambda: rk.rknn_run(context))
    assert slow.begun.wait(SECONDS)
    others_run()
    slow.go_on.set()
    assert running.ended() == rk.RKNN_SUCC
    out = query_attr(context, rk.RKNN_QUERY_OUTPUT_ATTR)
    codes = np.frombuffer(os.pread(slow.fd, out.size, 0), np.int8).reshape(1, 20, 6, 10)
    fast = open_model(image_model())
    assert np.array_equal((codes.astype(np.float32) - out.zp) * out.scale, run_float(fast, X))


def test_a_frame_in_the_background_holds_up_its_own_program_only(slow: SlowFile) -> None:
    """rknn_destroy_mem waits for the runs that use the memory, not for those of others."""
    context, memory = bound(slow, rk.RKNN_QUERY_INPUT_ATTR)
    slow.stopped.set()
    assert rk.rknn_run(context, rk.rknn_run_extend(non_block=1)) == rk.RKNN_SUCC
    assert slow.begun.wait(SECONDS)
    others_run()
    destroying = Doing(lambda: rk.rknn_destroy_mem(context, memory))
    time.sleep(0.1)
    assert destroying.is_alive()
    slow.go_on.set()
    assert destroying.ended() == rk.RKNN_SUCC and rk.rknn_wait(context) == rk.RKNN_SUCC


@pytest.mark.parametrize("mode", [rk.RKNN_MEMORY_SYNC_TO_DEVICE, rk.RKNN_MEMORY_SYNC_FROM_DEVICE])
def test_a_slow_synchronisation_holds_nobody_up(slow: SlowFile, mode: int) -> None:
    """Not even if the program destroys the memory meanwhile; its descriptor is then used to the end."""
    context, memory = bound(slow, rk.RKNN_QUERY_INPUT_ATTR)
    slow.stopped.set()
    syncing = Doing(lambda: rk.rknn_mem_sync(0, memory, mode))
    assert slow.begun.wait(SECONDS)
    destroying = Doing(lambda: rk.rknn_destroy(context))
    others_run()
    assert syncing.is_alive() and destroying.is_alive()
    slow.go_on.set()
    assert syncing.ended() == destroying.ended() == rk.RKNN_SUCC


def test_a_product_of_a_slow_file_holds_nobody_up(slow: SlowFile) -> None:
    info, ctx, io = (
        rk.rknn_matmul_info(M=4, K=64, N=32, type=2),
        rk.rknn_matmul_ctx(),
        rk.rknn_matmul_io_attr(),
    )
    assert rk.rknn_matmul_create(ctx, info, io) == rk.RKNN_SUCC
    for name in "ABC":
        attr = getattr(io, name)
        if name == "A":
            memory = rk.rknn_create_mem_from_fd(ctx, slow.fd, None, attr.size, 0)
        else:
            memory = rk.rknn_create_mem(ctx, attr.size)
        assert rk.rknn_matmul_set_io_mem(ctx, memory, ct.byref(attr)) == rk.RKNN_SUCC
    slow.stopped.set()
    running = Doing(lambda: rk.rknn_matmul_run(ctx))
    assert slow.begun.wait(SECONDS)
    others_run()
    destroying = Doing(lambda: rk.rknn_matmul_destroy(ctx))
    others_run()
    assert running.is_alive() and destroying.is_alive()
    slow.go_on.set()
    assert running.ended() == destroying.ended() == rk.RKNN_SUCC


def test_memory_is_freed_when_no_run_of_another_thread_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The activations of a model are in memory that the program destroys while the host computes a part: the
    address must not become that of another program's memory, which the NPU would then write."""
    begun, go_on, compute = threading.Event(), threading.Event(), LoadedModel.compute

    def waiting(self: LoadedModel, number: int) -> None:
        begun.set()
        assert go_on.wait(SECONDS)
        compute(self, number)

    monkeypatch.setattr(LoadedModel, "compute", waiting)
    net = Qdq()
    x = net.conv(net.input("x", (1, 16, 3, 4)), 16, 16)
    net.output(net.conv(net.coded(net.node("Sin", x), 1 / 64, 0), 16, 16), "y", (1, 16, 3, 4))
    context = open_model(net.bytes(), rk.RKNN_FLAG_INTERNAL_ALLOC_OUTSIDE)
    size = rk.rknn_mem_size()
    assert rk.rknn_query(context, rk.RKNN_QUERY_MEM_SIZE, ct.byref(size), ct.sizeof(size)) == rk.RKNN_SUCC
    memory = rk.rknn_create_mem(context, size.total_internal_size)
    assert rk.rknn_set_internal_mem(context, memory) == rk.RKNN_SUCC
    set_float(context, np.zeros((1, 16, 3, 4), np.float32))
    running = Doing(lambda: rk.rknn_run(context))
    assert begun.wait(SECONDS)
    destroying = Doing(lambda: rk.rknn_destroy_mem(context, memory))
    time.sleep(0.1)
    assert destroying.is_alive()
    go_on.set()
    assert running.ended() == destroying.ended() == rk.RKNN_SUCC


@pytest.mark.parametrize("region", ["weights", "activations"])
def test_no_run_uses_regions_that_were_destroyed(region: str) -> None:
    """Neither does a copy of the context; another program may have the address by then."""
    flag = rk.RKNN_FLAG_MEM_ALLOC_OUTSIDE
    context = open_model(image_model(), flag)
    size = rk.rknn_mem_size()
    assert rk.rknn_query(context, rk.RKNN_QUERY_MEM_SIZE, ct.byref(size), ct.sizeof(size)) == rk.RKNN_SUCC
    weights = rk.rknn_create_mem(context, size.total_weight_size)
    internal = rk.rknn_create_mem(context, size.total_internal_size)
    assert rk.rknn_set_weight_mem(context, weights) == rk.rknn_set_internal_mem(context, internal) == 0
    copy = rk.rknn_context()
    assert rk.rknn_dup_context(ct.byref(context), ct.byref(copy)) == rk.RKNN_SUCC
    more = rk.rknn_create_mem(copy, size.total_internal_size)
    assert rk.rknn_set_internal_mem(copy, more) == rk.RKNN_SUCC
    for one in (context, copy):
        assert run_float(one, X).any()
    gone = weights if region == "weights" else internal
    address, other = gone.contents.phys_addr, open_model(image_model())
    assert rk.rknn_destroy_mem(context, gone) == rk.RKNN_SUCC
    taken = rk.rknn_create_mem(other, gone.contents.size)
    assert taken.contents.phys_addr == address  # what makes it dangerous
    for one in (context, copy) if region == "weights" else (context,):
        assert rk.rknn_run(one) == rk.RKNN_ERR_FAIL
        assert f"the memory of the {region} was destroyed" in str(rk.last_error(one))
    assert not np.ctypeslib.as_array(
        (ct.c_uint8 * taken.contents.size).from_address(taken.contents.virt_addr)
    ).any()
    if region == "activations":
        assert run_float(copy, X).any()


def test_the_server_ends_without_a_program_whose_file_never_answers(
    slow: SlowFile, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_module, "END_SECONDS", 0.5)
    with RknnServer(tmp_path / "socket") as server:
        client = Client(server.path)
        context = opened(client)
        create, place = "rknn_create_mem_from_fd", 1024
        assert client.call(create, context, 0, 0, 8192, 0, place, used=2048, fd=slow.fd) == 1
        slow.stopped.set()

        def sync() -> int:
            with contextlib.suppress(Gone):
                return client.call("rknn_mem_sync", context, place, 1, used=2048)
            return -1

        syncing = Doing(sync)
        assert slow.begun.wait(SECONDS)
        begun = time.monotonic()
    assert time.monotonic() - begun < SECONDS / 2
    assert caplog.text.count("has not ended within 0.5 s") == 1
    slow.go_on.set()
    assert syncing.ended() == -1
    client.close()


class _Changed:
    """A binding during whose inspection another thread sets one more."""

    def __init__(self, io: dict[Any, Any], memory: Any) -> None:
        self._io, self._memory = io, memory

    @property
    def memory(self) -> Any:
        """Memory of the binding."""
        self._io[len(self._io)] = self
        return self._memory


def test_contexts_that_change_meanwhile_do_not_disturb() -> None:
    """Who frees memory looks at the contexts of other programs, which may be setting theirs."""
    context, other = open_model(image_model()), open_model(image_model())
    kept, gone = rk.rknn_create_mem(context, 64), rk.rknn_create_mem(other, 64)
    state = runtime.contexts[context.value]
    state.io |= {number: _Changed(state.io, memory_of(kept)) for number in range(3)}
    assert rk.rknn_destroy_mem(other, gone) == rk.RKNN_SUCC, rk.last_error(other)
    assert len(state.io) > 3
    state.io.clear()
