"""The optional package with a prebuilt engine: when it is used, what it says otherwise, and its wheel."""

from __future__ import annotations

import base64
import csv
import hashlib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from rkcosim.engines import build, cache, prebuilt, toolchain, verilog
from rkcosim.engines.build import Variant
from rkcosim.engines.protocol import BuildError
from rkcosim.spec.config import RK3588
from tools import engine_wheel

DEFAULT = Variant("verilator", "cpp")
FLAGS = "fpu sse4_2 avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"


def no_compiler() -> toolchain.Tool:
    raise BuildError("no C++ compiler found: install one")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an installed package without entries, where it can be used; there is no compiler."""
    folder = tmp_path / prebuilt.PACKAGE
    folder.mkdir()
    (tmp_path / "cpuinfo").write_text(f"processor : 0\nflags\t\t: {FLAGS}\n")
    monkeypatch.setattr(prebuilt, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(prebuilt.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(prebuilt.platform, "system", lambda: "Linux")
    monkeypatch.setattr(toolchain, "package_folder", {prebuilt.PACKAGE: folder}.get)
    monkeypatch.setattr(toolchain, "package_version", lambda name: "0.1.0")
    monkeypatch.setattr(toolchain, "compiler", no_compiler)
    monkeypatch.setenv("RKCOSIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("RKCOSIM_CXXFLAGS", raising=False)
    monkeypatch.delenv(prebuilt.VARIABLE, raising=False)
    return folder


def design(fingerprint: str) -> verilog.Design:
    """The RK3588's core by its name; its RTL is made only if the stamp of the fingerprint is not known."""

    def make(**_: Any) -> Any:
        raise AssertionError("the RTL was elaborated")

    return verilog.Design(
        make, fingerprint=lambda: fingerprint, has_cell=True, clock_groups={}, config=RK3588
    )


def packed(package: Path, tmp_path: Path) -> Path:
    """Put a library for the fingerprint "known" into the package; return it."""
    library = tmp_path / "built" / build.LIBRARY
    library.parent.mkdir()
    library.write_bytes(b"library GLIBC_2.34 GLIBC_2.4 GLIBC_2.2.5")
    (library.parent / "meta.json").write_text('{"variant": "v", "state": "s", "seconds": 1}')
    known = design("known")
    stamp = cache.cache_folder() / "stamps" / str(known.fingerprint(True))
    stamp.parent.mkdir()
    stamp.write_text("0" * 64)
    build.pack(known, DEFAULT, library, package)
    stamp.unlink()
    return library


def test_it_is_used_without_a_compiler(package: Path, tmp_path: Path) -> None:
    library = packed(package, tmp_path)
    said: list[str] = []
    found = build.build(design("known"), DEFAULT, said.append)
    assert found.is_relative_to(package) and found.read_bytes() == library.read_bytes() and said == []
    assert build.state_of(found) == "s"


def test_other_sources_are_named(package: Path, tmp_path: Path) -> None:
    packed(package, tmp_path)
    other = design("other")
    stamp = cache.cache_folder() / "stamps" / str(other.fingerprint(True))
    stamp.write_text("1" * 64)
    said: list[str] = []
    with pytest.raises(BuildError, match="no C\\+\\+ compiler found"):
        build.build(other, DEFAULT, said.append)
    assert said == ["rkcosim-engine-x86-64-v3 0.1.0 is not used: it has no such engine for these sources"]


def test_a_processor_that_lacks_something_is_named(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed(package, tmp_path)
    (tmp_path / "old").write_text(f"flags : {FLAGS.replace(' avx2', '').replace(' fma', '')}\n")
    monkeypatch.setattr(prebuilt, "_CPUINFO", tmp_path / "old")
    said: list[str] = []
    with pytest.raises(BuildError, match="no C\\+\\+ compiler found"):
        build.build(design("known"), DEFAULT, said.append)
    assert said == ["rkcosim-engine-x86-64-v3 0.1.0 is not used: this processor lacks avx2, fma"]
    monkeypatch.setattr(prebuilt.platform, "machine", lambda: "aarch64")
    package_now = prebuilt.installed()
    assert package_now is not None and "not for Linux on aarch64" in package_now.refusal


@pytest.mark.parametrize(("variable", "value"), [(prebuilt.VARIABLE, "0"), ("RKCOSIM_CXXFLAGS", "-O1")])
def test_it_can_be_switched_off(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    packed(package, tmp_path)
    assert prebuilt.installed() is not None
    monkeypatch.setenv(variable, value)
    assert prebuilt.installed() is None
    with pytest.raises(BuildError, match="no C\\+\\+ compiler found"):
        build.build(design("known"), DEFAULT, lambda text: None)


def test_other_engines_do_not_mention_it(package: Path, tmp_path: Path) -> None:
    packed(package, tmp_path)
    said: list[str] = []
    with pytest.raises(BuildError):
        build.build(design("known"), Variant("verilator", "rtl"), said.append)
    assert said == []


def test_a_damaged_library_is_not_used(package: Path, tmp_path: Path) -> None:
    packed(package, tmp_path)
    (library,) = package.glob(f"*/{build.LIBRARY}")
    library.write_bytes(b"half")
    said: list[str] = []
    with pytest.raises(BuildError, match="no C\\+\\+ compiler found"):
        build.build(design("known"), DEFAULT, said.append)
    assert "is damaged (model.so has changed), not using it" in said[0] and library.exists()


def test_the_wheel_is_complete(package: Path, tmp_path: Path) -> None:
    packed(package, tmp_path)
    wheel = engine_wheel.write_wheel(package, tmp_path / "dist", "0.1.0")
    assert wheel.name == "rkcosim_engine_x86_64_v3-0.1.0-py3-none-manylinux_2_34_x86_64.whl"
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    about = "rkcosim_engine_x86_64_v3-0.1.0.dist-info/"
    metadata = files[about + "METADATA"].decode()
    assert "Name: rkcosim-engine-x86-64-v3\n" in metadata and "Requires-Dist: rkcosim==0.1.0\n" in metadata
    assert "Tag: py3-none-manylinux_2_34_x86_64\n" in files[about + "WHEEL"].decode()
    rows = {row[0]: row[1:] for row in csv.reader(files[about + "RECORD"].decode().splitlines())}
    assert rows.pop(about + "RECORD") == ["", ""] and rows.keys() == files.keys() - {about + "RECORD"}
    for name, (digest, size) in rows.items():
        made = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
        assert digest == f"sha256={made}" and int(size) == len(files[name])
    assert f"{prebuilt.PACKAGE}/stamps/{design('known').fingerprint(True)}" in files
    assert [name for name in files if name.endswith(f"/{build.LIBRARY}")]
