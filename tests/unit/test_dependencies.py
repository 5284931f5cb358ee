"""Lower bounds of the packages, the lock file for CI, and packages that are too old."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest

from rkcosim.base import extras
from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.loaders import tflite_file
from tools import dependencies

ROOT = Path(__file__).parents[2]


def _versions(lines: list[str]) -> dict[str, str]:
    found = {}
    for line in lines:
        if line and not line.startswith("#"):
            name, version = line.partition(";")[0].split("==")
            found[dependencies.normal(name)] = version.strip()
    return found


def test_each_package_has_a_lower_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    bounds = _versions(dependencies.lowest())
    assert len(bounds) > 30 and {"numpy", "tflite", "wheel", "setuptools"} <= set(bounds)
    (tmp_path / "pyproject.toml").write_text(
        (ROOT / "pyproject.toml").read_text("utf-8").replace('"amaranth~=0.5.8"', '"amaranth"')
    )
    lines = dependencies.requirements(tmp_path / "pyproject.toml")
    monkeypatch.setattr(dependencies, "requirements", lambda: lines)
    with pytest.raises(ValueError, match="'amaranth' has no lower bound"):
        dependencies.lowest()


def test_the_lock_file_has_all_packages_and_keeps_the_bounds():
    text = (ROOT / ".ci" / "constraints.txt").read_text("utf-8")
    assert "://" not in text and " @ " not in text, "no host and no path"
    locked, bounds = _versions(text.splitlines()), _versions(dependencies.lowest())
    lowest = {name: extras.numbers(version) for name, version in bounds.items()}
    old = {name for name, version in locked.items() if extras.numbers(version) < lowest.get(name, ())}
    assert not old, f"make lock: {old}"
    here = {dependencies.normal(item.metadata["Name"]) for item in dependencies.installed(("dev",))}
    assert here & set(bounds) <= set(locked), "make lock"
    assert {"markupsafe", "tornado", "mkdocs"} <= set(locked), "others that those need, and the site's"


def test_licences_are_named(capsys: pytest.CaptureFixture[str]):
    assert dependencies.main(["licences"]) == 0
    found = dict(re.findall(r"^(\S+) \S+: (.+)$", capsys.readouterr().out, re.MULTILINE))
    assert "BSD" in found["amaranth"] and "MIT" in found["pytest"] and len(found) > 60


def test_a_package_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch):
    """Version 2.10 of tflite has no `Buffer.Offset`: every file seemed to be damaged."""
    assert extras.too_old() == {}, "pip has installed what pyproject.toml asks for"
    real = metadata.version
    monkeypatch.setattr(metadata, "requires", lambda name: dependencies.requirements())
    monkeypatch.setattr(metadata, "version", lambda name: "2.10" if name == "tflite" else real(name))
    bound = _versions(dependencies.lowest())["tflite"]
    told = f"tflite 2.10 is installed, {bound} or newer is needed"
    assert extras.too_old() == {"tflite": told}
    pytest.importorskip("tflite")

    def lacks(*_: object) -> None:
        raise AttributeError("'Buffer' object has no attribute 'Offset'")

    monkeypatch.setattr(tflite_file, "_read", lacks)
    with pytest.raises(ModelError, match=f"^{told} to read TFLite models"):
        tflite_file.read_tflite(b"\x18\0\0\0TFL3" + bytes(64))
