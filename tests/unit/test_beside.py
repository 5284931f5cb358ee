"""Computations beside a run: results, errors and context of the thread; golden models beside a device."""

from __future__ import annotations

import contextvars
import threading
from pathlib import Path

import numpy as np
import pytest

from rkcosim.running.session import Session
from rkcosim.verify.crosscheck.beside import Beside
from rkcosim.verify.crosscheck.checks import checker_for, first_wrong
from rkcosim.verify.crosscheck.model_check import ModelChecker

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"
OPTION = contextvars.ContextVar("OPTION", default="none")


def test_a_thread_has_the_context_and_returns_results_and_errors() -> None:
    OPTION.set("set")
    assert Beside(OPTION.get).result() == "set"
    failing = Beside(lambda: [][0])
    failing.wait()
    with pytest.raises(IndexError):
        failing.result()


def test_what_follows_is_done_at_the_end() -> None:
    go, done = threading.Event(), threading.Event()
    work = Beside(lambda: go.wait(60))
    work.then(done.set)
    assert not done.is_set()
    go.set()
    assert done.wait(60)


def test_golden_models_compute_beside_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """They see the inputs of the run, and their errors come from the check; close does not wait for them."""
    threads, levels = [], ModelChecker._second_level
    monkeypatch.setattr(
        ModelChecker,
        "_second_level",
        lambda *given: threads.append(threading.current_thread()) or levels(*given),
    )
    values = [np.zeros((1, 1, 16, 16), np.float32), np.ones((1, 1, 16, 16), np.float32)]
    with Session(DIGITS, engine="golden", checker=checker_for) as session:
        for image in values:
            session.infer([image])
            assert first_wrong(session.checker, [image]) is None
        session.checker.check([values[0]])  # not the inputs of the run: computed by the check itself
        assert [thread is threading.main_thread() for thread in threads] == [False, False, True]
        monkeypatch.setattr(ModelChecker, "_second_level", lambda *_: [][0])
        session.infer([values[0]])
        with pytest.raises(IndexError):
            session.checker.check([values[0]])
        go, closed = threading.Event(), threading.Event()
        monkeypatch.setattr(ModelChecker, "_second_level", lambda *_: go.wait(60))
        monkeypatch.setattr(session.checker.golden, "close", closed.set)
        session.infer([values[0]])
    assert not closed.is_set()
    go.set()
    assert closed.wait(60)
