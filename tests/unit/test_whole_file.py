"""Files that are written completely or not at all, and stored figures in them."""

from __future__ import annotations

import errno
import io
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rkcosim.cli.main import app
from rkcosim.cli.results import write_text
from rkcosim.measure.perf.page import read_stored, write_stored
from rkcosim.waves.whole_file import named, whole_file

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples/digits/digits_int8.onnx"
POOL = ROOT / "examples/streams/pool.json"


def test_a_file_gets_its_name_when_it_is_whole(tmp_path: Path):
    path = tmp_path / "new" / "file.txt"
    with whole_file(path) as part:
        part.write_text("half")
        assert not path.exists() and part.parent == path.parent
    assert path.read_text() == "half" and list(path.parent.iterdir()) == [path]


def test_a_failure_leaves_what_was_there(tmp_path: Path):
    path = tmp_path / "file.txt"
    path.write_text("before")
    with pytest.raises(KeyboardInterrupt), whole_file(path) as part:
        part.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]


def test_temporary_names_are_new(tmp_path: Path):
    """A file of the user's is not touched, a link is not followed, and permissions are those of any file."""
    path, mine, victim = tmp_path / "file.txt", tmp_path / "file.txt.part", tmp_path / "victim"
    mine.write_text("mine")
    victim.write_text("victim")
    with whole_file(path) as first, whole_file(path) as second:
        assert len({first, second, path, mine}) == 4
        second.write_text("second" * 1000)
        first.write_text("first")
    assert path.read_text() == "first"  # the one that ended last, whole
    mask = os.umask(0o027)
    with whole_file(tmp_path / "other") as part:
        part.write_text("other")
    os.umask(mask)
    assert (tmp_path / "other").stat().st_mode & 0o777 == 0o640
    assert mine.read_text() == "mine" and victim.read_text() == "victim"
    with whole_file(tmp_path / ("n" * 250)) as part:
        part.write_text("long")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file.txt", mine.name, "n" * 250, "other", "victim"]


def test_an_occupied_temporary_name_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Whoever guesses the name and puts a link there gains nothing."""
    monkeypatch.setattr(os, "urandom", lambda count: bytes(count))
    victim = tmp_path / "victim"
    victim.write_text("victim")
    (tmp_path / f"file.{bytes(6).hex()}.part").symlink_to(victim)
    with pytest.raises(FileExistsError) as raised, whole_file(tmp_path / "file"):
        pytest.fail("the link was followed")
    assert raised.value.filename == str(tmp_path / "file") and victim.read_text() == "victim"


def test_stored_figures_come_back(tmp_path: Path):
    path = tmp_path / "figures.json"
    write_stored(path, 3, {"rows": {"a": 1}})
    assert read_stored(path, 3) == {"schema_version": 3, "rows": {"a": 1}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "schema_version must be 3; ask Ann"),
        ('{"schema_version": 2}', "schema_version must be 3"),
    ],
)
def test_damaged_figures_are_refused(tmp_path: Path, text: str, said: str):
    path = tmp_path / "figures.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=said) as raised:
        read_stored(path, 3, "ask Ann")
    assert str(path) in str(raised.value)


LIMIT = 300
"""Size limit of files in the processes below, which simulates a full disk."""

COMMANDS = {
    "compile": ("compile", DIGITS, "-o"),
    "json": ("compile", DIGITS, "--json"),
    "run json": ("regcmd", "run", POOL, "--engine", "golden", "--json"),
    "run html": ("regcmd", "run", POOL, "--engine", "golden", "--html"),
    "roofline": ("estimate", DIGITS, "--roofline"),
}


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))


def run(*words: object, prepare: Callable[[], None] | None = None) -> tuple[int, str]:
    """Run a command in a separate process; return its exit code and its error stream.

    It writes no bytecode: below a limit, Python leaves files that are cut, which fail in later processes.
    """
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        preexec_fn=prepare,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_is_said_of_the_file_that_was_asked_for(name: str, tmp_path: Path):
    path = tmp_path / "result"
    code, said = run("-m", "rkcosim.cli.main", *COMMANDS[name], path, "--quiet", prepare=limited)
    assert code == 2 and said.endswith(f"rkcosim: {path}: File too large\n"), said
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_said_of_a_table(tmp_path: Path):
    """As above; a complete run needs files in memory, to which the limit would apply too."""
    path = tmp_path / "result"
    text = "from pathlib import Path; from rkcosim.cli.exits import reported\n"
    text += "from rkcosim.cli.results import write_csv\n"
    text += f"with reported(): write_csv(Path({str(path)!r}), [{{'layer': 'conv' * 100}}])"
    code, said = run("-c", text, prepare=limited)
    assert code == 2 and said.endswith(f"rkcosim: {path}: File too large\n"), said
    assert not list(tmp_path.iterdir())


LOGS = """
import sys
from pathlib import Path
from rkcosim.cli.exits import reported
from rkcosim.waves.events import Event, EventLog, save
from rkcosim.waves.timeline import write_timeline
events = [Event(cycle=n, end=n + 1, core=0, kind="task") for n in range(2000)]
log = EventLog.of(events, {"first": 0, "last": 9})
with reported():
    write_timeline(log, sys.argv[1]) if "pftrace" in sys.argv[1] else save(log, sys.argv[1])
"""


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "pftrace"])
def test_a_full_disk_under_an_event_log(suffix: str, tmp_path: Path):
    pytest.importorskip("pyarrow")
    path = tmp_path / f"log.{suffix}"
    code, said = run("-c", LOGS, path, prepare=limited)
    assert code == 2 and said.startswith(f"rkcosim: {path}: ") and "too large" in said.lower(), said
    assert ".part" not in said and not list(tmp_path.iterdir())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full")
@pytest.mark.parametrize("words", [("explain", "0x15"), ("compile", DIGITS, "--json", "-")])
def test_a_full_standard_output(words: tuple[object, ...]):
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "rkcosim.cli.main", *map(str, words)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            cwd=ROOT,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "rkcosim: standard output: No space left on device"
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The system's error names the temporary file; the raised one names the requested file."""
    real = open

    def refused(file: Any, mode: str = "r", *args: Any, **more: Any) -> Any:
        if set(mode) & set("wax") and str(file).startswith(str(tmp_path)):
            raise PermissionError(errno.EACCES, "Permission denied", str(file))
        return real(file, mode, *args, **more)

    monkeypatch.setattr(io, "open", refused)
    path = tmp_path / "file.json"
    with pytest.raises(PermissionError) as raised:
        write_text(path, "{}")
    assert raised.value.filename == str(path) and raised.value.strerror == "Permission denied"
    result = CliRunner().invoke(app, ["compile", str(DIGITS), "--json", str(path), "--quiet"])
    assert result.exit_code == 2 and result.output.endswith(f"rkcosim: {path}: Permission denied\n")


def test_a_folder_that_cannot_be_made(tmp_path: Path):
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "deeper" / "result.json"
    with pytest.raises(NotADirectoryError) as raised, whole_file(path):
        pass
    assert raised.value.filename == str(path) and f"{tmp_path}/file" in raised.value.strerror


def test_errors_of_other_files_keep_their_names(tmp_path: Path):
    with pytest.raises(FileNotFoundError) as raised, whole_file(tmp_path / "out") as part:
        part.write_bytes((tmp_path / "missing").read_bytes())
    assert raised.value.filename == str(tmp_path / "missing")
    with pytest.raises(OSError, match="out") as unnamed, named(tmp_path / "out"):
        raise OSError("it broke")
    assert (unnamed.value.errno, unnamed.value.strerror) == (errno.EIO, "it broke")


def test_a_link_stays_and_its_target_is_written(tmp_path: Path):
    target, link = tmp_path / "folder" / "target.txt", tmp_path / "link.txt"
    target.parent.mkdir()
    link.symlink_to(target)
    with whole_file(link) as part:
        part.write_text("new")
    assert link.is_symlink() and target.read_text() == "new"
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["folder", "link.txt", "target.txt"]


def test_a_device_stays_and_is_written(tmp_path: Path):
    reader, terminal = os.openpty()
    device = Path(os.ttyname(terminal))
    with whole_file(device) as part:
        part.write_text("new")
    assert device.is_char_device() and os.read(reader, 10) == b"new"
    os.close(reader)
    os.close(terminal)


def test_a_fifo_stays_and_its_reader_gets_the_contents(tmp_path: Path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with whole_file(path) as part:
        part.write_text("new")
    assert path.is_fifo() and os.read(reader, 10) == b"new"
    os.close(reader)
