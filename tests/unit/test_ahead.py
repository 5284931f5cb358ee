"""Engines built in the background, and the messages while another process builds them."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rkcosim.base import progress
from rkcosim.cli import main as command
from rkcosim.engines import ahead, build, cache
from rkcosim.engines.build import Variant


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Arguments of the builds that were started."""
    found: list[list[str]] = []
    monkeypatch.setenv(ahead.VARIABLE, "")
    monkeypatch.setattr(build, "built_here", [])  # earlier tests of this process may have built engines
    monkeypatch.setattr(subprocess, "Popen", lambda words, **options: found.append(words[4:]))
    return found


@pytest.mark.parametrize(
    ("built", "wanted"),
    [
        ([Variant("verilator", "cpp")], [["--traced"]]),
        ([Variant("verilator", "rtl")], [["--exact", "--traced"]]),
        ([Variant("verilator", "cpp", traced=True)], [[]]),
        ([Variant("verilator", "cpp"), Variant("verilator", "cpp", traced=True)], []),
        ([Variant("verilator", "cpp", probed=True)], []),
        ([Variant("cxxrtl", "cpp")], []),
        ([], []),
    ],
)
def test_the_other_of_two_engines_is_built(
    started: list[list[str]],
    capsys: pytest.CaptureFixture[str],
    built: list[Variant],
    wanted: list[list[str]],
) -> None:
    for variant in built:
        build.built_here.append(variant)
    ahead.start()
    assert started == wanted
    assert ("in the background" in capsys.readouterr().err) == bool(wanted)
    ahead.start()
    assert started == wanted, "once"


def test_nothing_is_built_ahead_where_nobody_wants_it(
    started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ahead.VARIABLE, "0")
    build.built_here.append(Variant("verilator", "cpp"))
    ahead.start()
    assert started == []


def test_a_command_starts_it_when_it_ends(started: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    def app(**options: Any) -> None:
        build.built_here.append(Variant("verilator", "cpp"))
        raise SystemExit(1)

    monkeypatch.setattr(command, "app", app)
    monkeypatch.setattr(command, "hear_signals", lambda: None)
    with pytest.raises(SystemExit):
        command.main()
    assert started == [["--traced"]]


def test_the_process_knows_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    from rkcosim.engines import build

    wanted: list[Variant] = []
    monkeypatch.setattr(os, "nice", lambda more: 0)
    monkeypatch.setattr(build, "build", lambda design, variant: wanted.append(variant))
    assert ahead.main(["--exact", "--traced"]) == ahead.main([]) == 0
    assert wanted == [Variant("verilator", "rtl", traced=True), Variant("verilator", "cpp")]


@dataclass
class _Listener:
    lines: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.lines.append(text)

    def tick(self, engine: Any) -> None:
        pass


def test_who_waits_sees_how_far_the_other_is(tmp_path: Path) -> None:
    listener, seen = _Listener(), []
    inside = threading.Event()

    def other() -> None:
        with cache.locked(tmp_path, "key", lambda text: None) as tell:
            inside.set()
            tell("compiling 7/28 files")
            time.sleep(0.6)
            tell("compiling 8/28 files")

    with progress.listen(listener):
        thread = threading.Thread(target=other)
        thread.start()
        inside.wait()

        def look() -> None:
            while thread.is_alive():
                seen.extend(step.detail for step in progress.steps if step.what == "another process")
                time.sleep(0.05)

        watcher = threading.Thread(target=look)
        watcher.start()
        with cache.locked(tmp_path, "key", listener.say) as tell:
            tell("")
        thread.join()
        watcher.join()
    assert listener.lines == ["another process is building the same model, waiting for it"]
    assert "compiling 7/28 files" in seen
    assert not progress.steps
