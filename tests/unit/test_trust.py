"""What belongs to another user, or can be changed by one, is not trusted: folders, libraries, sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rkcosim.base import trust
from rkcosim.devices.program import check_server, default_socket, environment
from rkcosim.devices.rknn_library import lay_out
from rkcosim.driver.kernel import Kernel
from rkcosim.driver.server import Server
from rkcosim.driver.server.server import ServerError
from rkcosim.engines import cache
from rkcosim.engines.protocol import BuildError
from rkcosim.engines.toolchain import PYTHON
from rkcosim.golden.task import GoldenNpu
from tests import seeds
from tests.programs import needs_program

ROOT = Path(__file__).resolve().parents[2]
STRANGER = 54321
"""Id of another user."""


@pytest.fixture(autouse=True)
def narrow_mask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a path belong to another user: really if this is the superuser, otherwise as seen by `trust`."""
    if os.geteuid() == 0:
        os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
        return
    owner, real, real_l = path.lstat(), Path.stat, Path.lstat

    def stranger(found: os.stat_result) -> os.stat_result:
        values = list(found[:10])
        values[4] = STRANGER if (found.st_ino, found.st_dev) == (owner.st_ino, owner.st_dev) else found.st_uid
        return os.stat_result(values)

    monkeypatch.setattr(Path, "stat", lambda self, **more: stranger(real(self, **more)))
    monkeypatch.setattr(Path, "lstat", lambda self: stranger(real_l(self)))


def test_modes_of_files_and_folders(tmp_path: Path) -> None:
    folder, file = tmp_path / "folder", tmp_path / "folder" / "file"
    folder.mkdir()
    file.write_text("")
    assert trust.why_not(file) is trust.why_not(folder) is None
    file.chmod(0o646)
    assert trust.why_not(file) == f"every user can write to {file}"
    file.chmod(0o600)
    folder.chmod(0o777)
    assert trust.why_not(file) == f"every user can write to {folder}"  # and put another file there
    folder.chmod(0o1777)
    assert trust.why_not(file) is None and trust.why_not(folder, inside=False) is None
    assert trust.why_not(folder) == f"every user can write to {folder}"  # and put other names there
    with pytest.raises(OSError, match="nothing"):
        trust.why_not(tmp_path / "nothing")


def test_groups_with_others_are_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each user has a group, files are often writable by it."""
    tmp_path.chmod(0o770)
    monkeypatch.setattr(trust, "_is_private", lambda gid, uid: True)
    assert trust.why_not(tmp_path) is None
    monkeypatch.setattr(trust, "_is_private", lambda gid, uid: False)
    reason = trust.why_not(tmp_path)
    assert reason is not None and reason.startswith("the group ") and reason.endswith(f"write to {tmp_path}")


@pytest.mark.parametrize("what", ["file", "folder", "link"])
def test_owners(tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    (folder / "file").write_text("")
    link.symlink_to(folder)
    assert trust.why_not(link / "file") is None
    given = {"file": folder / "file", "folder": folder, "link": link}[what]
    give_away(given, monkeypatch)
    reason = trust.why_not(link / "file")
    assert reason is not None and reason.startswith(str(given)) and f"user {STRANGER}" in reason


@pytest.mark.parametrize("way", ["folder", "entry", "library", "owner"])
def test_libraries_of_others_are_not_loaded(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hash beside a library says nothing: whoever changes the one changes the other."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("RKCOSIM_CACHE", str(folder))
    built = []

    def build(work: Path) -> None:
        built.append(work)
        (work / "model.so").write_bytes(b"library")

    lines: list[str] = []
    path = cache.built("key", "model.so", "a library", build, lines.append)
    assert cache.built("key", "model.so", "a library", build, lines.append) == path and len(built) == 1
    {
        "folder": lambda: folder.chmod(0o1777),
        "entry": lambda: path.parent.chmod(0o777),
        "library": lambda: path.chmod(0o666),
        "owner": lambda: give_away(path, monkeypatch),
    }[way]()
    assert cache.find("key", "model.so", lines.append) is None or way == "folder"
    if way != "folder":
        assert len(lines) == 1 and "is not used" in lines[0]
        return
    with pytest.raises(BuildError, match=r"every user can write to .* RKCOSIM_CACHE"):
        cache.cache_folder()


def test_entries_are_written_for_this_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RKCOSIM_CACHE", str(tmp_path / "made" / "cache"))
    os.umask(0)

    def build(work: Path) -> None:
        (work / "model.so").write_bytes(b"library")

    (tmp_path / "made").mkdir(0o755)
    cache.built("key", "model.so", "a library", build, print)
    assert cache.find("key", "model.so", print) is not None


def test_the_default_socket_is_in_a_folder_of_this_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, folder = tmp_path / "run", tmp_path / "cache"
    run.mkdir(0o700)
    monkeypatch.setenv("RKCOSIM_CACHE", str(folder))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(run))
    assert default_socket() == run / "rkcosim.sock"
    run.chmod(0o777)
    assert default_socket() == folder / "rkcosim.sock"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "nothing"))
    assert default_socket() == folder / "rkcosim.sock"


def test_no_server_in_a_folder_of_others(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with Kernel(GoldenNpu()) as kernel:
        with pytest.raises(ServerError, match=f"every user can write to {tmp_path}"):
            Server(kernel, tmp_path / "device")
        tmp_path.chmod(0o1777)
        with Server(kernel, tmp_path / "device"):
            check_server(tmp_path / "device")


FAKE = """
import os, socket, sys
uid = int(sys.argv[2])
if os.geteuid() == 0:
    os.setgid(uid), os.setuid(uid)
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o666)
s.listen(8)
print("listens", flush=True)
while True:
    c, _ = s.accept()
    first = c.recv(1 << 16)
    print("received", len(first), flush=True)
"""


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A server of another user (if this is the superuser) that waits at a socket."""
    place = tmp_path / "shared"
    place.mkdir()
    place.chmod(0o1777)
    for folder in (tmp_path, *tmp_path.parents):
        if os.geteuid() == 0 and folder.stat().st_uid == 0:
            folder.chmod(folder.stat().st_mode | 0o011)
    command = [sys.executable, "-c", FAKE, str(place / "npu.sock"), str(STRANGER)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None and server.stdout.readline() == "listens\n"
        yield place / "npu.sock", server
        server.kill()


def test_a_server_of_another_user_is_refused(
    fake: tuple[Path, subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = fake
    if os.geteuid():
        check_server(path)  # of this user
        monkeypatch.setattr(trust, "peer", lambda sock: (1, STRANGER, STRANGER))
    with pytest.raises(ValueError, match=f"a process of user {STRANGER}: it could read and change"):
        check_server(path)


OPENS = "import os\ntry:\n os.open('/dev/dri/card1', os.O_RDWR)\nexcept OSError as e:\n print(e.strerror)"


@needs_program("cc")
def test_the_preload_library_gives_no_memory_to_another_user(
    fake: tuple[Path, subprocess.Popen[str]],
) -> None:
    """The server reads and writes addresses of the program, so nothing may be sent to it."""
    path, server = fake
    tree = Path(f"{path}.d")
    (tree / "dev" / "dri").mkdir(parents=True)
    os.mkfifo(tree / "dev" / "dri" / "card1")
    (tree / "manifest").write_text("h /dev/dri\nn 226 1 666 /dev/dri/card1\nd /dev/dri\n")
    done = subprocess.run(
        [sys.executable, "-c", OPENS],
        env=environment(path),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if os.geteuid() == 0:
        assert done.stdout == "No such device\n", done.stderr
        assert done.stderr == (
            f"rkcosim: the server at {path} belongs to another user ({STRANGER}) and is not used\n"
        )
    server.kill()
    assert server.stdout is not None
    received = [int(line.split()[1]) for line in server.stdout.read().splitlines()]
    assert any(received) is (os.geteuid() != 0)


def test_child_pythons_ignore_modules_in_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "rkcosim.py").write_text("raise SystemExit(99)")
    (tmp_path / "pyosys.py").write_text("raise SystemExit(99)")
    ask = [*PYTHON, "-c", "import sys, rkcosim.base; assert '' not in sys.path"]
    assert subprocess.run(ask, cwd=tmp_path, check=False).returncode == 0
    starts = re.compile(r'(sys\.executable|\bpython), "(-[cm])"')
    for room in ("apis", "cosim", "sw", "waves", "spec", "rtl"):
        for file in (ROOT / room).rglob("*.py"):
            assert not starts.search(file.read_text()), f"{file}: a child Python without -P"


WORDS: list[object] = [
    ["--json", "victim.txt"],
    ["--json=victim.txt"],
    ["--method", "--json"],
    ["--method"],
    ["-o", "victim.txt"],
    ["--mean=1,2/--json"],
    "--bgr",
    [["--bgr"]],
]
OURS = ["--method", "minmax", "--per-channel", "--mean=1.5,2,-3/4e-05", "--std=1,1,1/2", "--bgr"]

STEP_2 = """
from pathlib import Path
from rknn.api import RKNN
import sys
Path("m.quantization.cfg").write_text("custom_quantize_layers:\\n")
for name in sys.argv[1:]:
    print(RKNN().hybrid_quantization_step2("m.model", name, "m.quantization.cfg"))
"""


def test_words_of_a_data_file_are_no_options(tmp_path: Path) -> None:
    """They are given to a command that can write files."""
    lay_out(tmp_path / "rknn", tmp_path / "librknnrt.so")
    names = []
    for number, words in enumerate([*WORDS, OURS]):
        data = {"dataset": "ds.txt", "quantising": words, "layers": {"y": "cv"}}
        names.append(f"{number}.data")
        (tmp_path / names[-1]).write_text(json.dumps(data))
    done = subprocess.run(
        [sys.executable, "-c", STEP_2, *names],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "rknn" / "python")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["-1"] * len(names), done.stderr
    *refused, last = [line for line in done.stderr.splitlines() if "hybrid_quantization_step2" in line]
    assert len(refused) == len(WORDS)
    assert all("that hybrid_quantization_step1 never writes" in line for line in refused)
    assert "m.model" in last  # these words are known, the model is missing


def test_a_cluster_of_this_machine_needs_its_key() -> None:
    pytest.importorskip("distributed", reason="needs the extra shards")
    pytest.importorskip("cryptography", reason="needs the extra shards")
    import distributed

    from rkcosim.measure.shards.cluster import open_cluster

    with open_cluster(workers=1) as cluster:
        address = cluster.client.scheduler.address
        worker = next(iter(cluster.client.nthreads()))
        assert address.startswith("tls://127.0.0.1:") and worker.startswith("tls://")
        plain = address.replace("tls:", "tcp:")
        other = distributed.security.Security.temporary()
        for target, key in ((plain, None), (address, other), (worker, other)):
            begun = time.monotonic()
            with pytest.raises(OSError):
                distributed.Client(target, timeout=2, security=key, set_as_default=False)
            assert time.monotonic() - begun < 20
        assert cluster.client.submit(os.getpid).result(timeout=20) != os.getpid()


class Recorder:
    """Passes connections on to an address; `sent` is what each client has sent."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._server, self._address = socket.create_server(("127.0.0.1", 0)), address
        self.port, self.sent = self._server.getsockname()[1], list[bytearray]()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with self._server, contextlib.suppress(OSError):
            while True:
                theirs, _ = self._server.accept()
                other = socket.create_connection(self._address)
                self.sent.append(bytearray())
                for ends in ((other, theirs, bytearray()), (theirs, other, self.sent[-1])):
                    threading.Thread(target=self._pass, args=ends, daemon=True).start()

    def close(self) -> None:
        """Accept no more."""
        self._server.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def _pass(source: socket.socket, target: socket.socket, kept: bytearray) -> None:
        with contextlib.suppress(OSError):
            with source, target:
                while data := source.recv(1 << 16):
                    kept += data
                    target.sendall(data)
                target.shutdown(socket.SHUT_RDWR)


def test_a_cluster_of_this_machine_outlives_hostile_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages without the key, cut and too large ones, a session that is sent again, and connections that
    wait: the work goes on, and all descriptors are given back."""
    pytest.importorskip("distributed", reason="needs the extra shards")
    pytest.importorskip("cryptography", reason="needs the extra shards")
    import distributed
    from distributed.comm.utils import to_frames

    from rkcosim.measure.shards import peers
    from rkcosim.measure.shards.cluster import open_cluster

    monkeypatch.setattr(peers, "HANDSHAKE_SECONDS", 1)
    with open_cluster(workers=1) as cluster:
        client = cluster.client
        places = [client.scheduler.address, *client.nthreads()]
        ports = [int(address.rpartition(":")[2]) for address in places]
        recorder = Recorder(("127.0.0.1", ports[0]))
        security = client.security
        with distributed.Client(
            f"tls://127.0.0.1:{recorder.port}", timeout=10, security=security, set_as_default=False
        ) as second:
            assert second.submit(abs, -3).result(timeout=20) == 3
        frames = asyncio.run(to_frames({"op": "terminate", "reply": False}))
        plain = struct.pack("<Q", len(frames)) + b"".join(bytes(frame) for frame in frames)
        rng = np.random.default_rng(seeds.seed(f"{__name__} cluster"))
        recorder.close()
        whole = max((bytes(sent) for sent in recorder.sent), key=len)
        hello = whole[:400]
        contents = [
            *(b"", plain, struct.pack("<Q", 1 << 62), b"\x16\x03\x01\xff\xff" + bytes(1 << 16)),
            *(whole, hello, hello[:5], hello[:100]),
            *(rng.bytes(int(rng.integers(1, 5000))) for _ in range(20)),
            *(hello[:n] + rng.bytes(50) for n in range(0, len(hello), 40)),
        ]
        before, held = len(os.listdir("/proc/self/fd")), []
        for number, content in enumerate(contents):
            for port in ports:
                held.append(socket.create_connection(("127.0.0.1", port), timeout=10))
                with contextlib.suppress(OSError):
                    held[-1].sendall(content)
            assert client.submit(pow, number, 2, pure=False).result(timeout=20) == number**2
        assert len(client.scheduler_info()["workers"]) == 1
        end = time.monotonic() + 20
        while (more := len(os.listdir("/proc/self/fd")) - before - len(held)) > 2 and time.monotonic() < end:
            time.sleep(0.1)
        assert more <= 2, "connections that show no key are closed"
        assert client.submit(os.getpid).result(timeout=20) != os.getpid()
        cluster.client.log_event(cluster._topic, {"key": 1})
        cluster.client.log_event(cluster._topic, "no report")
        for one in held:
            one.close()


def as_stranger(port: int, count: int) -> int:
    """Make connections to a port as another user in a process, and return how many of them were closed."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setuid(STRANGER)
            held = []
            for _ in range(count):
                held.append(socket.socket())
                held[-1].connect(("127.0.0.1", port))
                held[-1].settimeout(20)
            closed = 0
            for one in held:
                with contextlib.suppress(ConnectionError):
                    closed += one.recv(1) != b""
                closed += 1
            os.write(writing, bytes([closed]))
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with open(reading, "rb") as answer:
        found = answer.read()
    assert os.waitpid(pid, 0)[1] == 0
    return found[0]


def test_connections_of_another_user_to_a_cluster_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, without a word from them: they cannot use up the descriptors of this process."""
    pytest.importorskip("distributed", reason="needs the extra shards")
    pytest.importorskip("cryptography", reason="needs the extra shards")
    from rkcosim.measure.shards.cluster import open_cluster

    with open_cluster(workers=1) as cluster:
        port = int(cluster.client.scheduler.address.rpartition(":")[2])
        workers = [int(worker.rpartition(":")[2]) for worker in cluster.client.nthreads()]
        if os.geteuid() == 0:
            for one in (port, *workers):
                assert as_stranger(one, 100) == 100
        else:  # the connections of this process are as those of another user
            monkeypatch.setattr(trust, "tcp_peer", lambda _: STRANGER)
            with socket.create_connection(("127.0.0.1", port), timeout=20) as one:
                assert one.recv(1) == b""
            monkeypatch.undo()
        assert cluster.client.submit(pow, 3, 2).result(timeout=20) == 9


def test_the_user_at_the_other_end_of_a_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()):
            ours, _ = server.accept()
            assert trust.tcp_peer(ours) == os.geteuid()
        ours.close()
        assert trust.tcp_peer(ours) is None
        with socket.socket() as lone:
            assert trust.tcp_peer(lone) is None


def test_the_other_end_of_a_socket() -> None:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with left, right:
        assert trust.peer(left) == (os.getpid(), os.getuid(), os.getgid())
    assert trust.is_own(0) and trust.is_own(os.geteuid()) and not trust.is_own(STRANGER)
