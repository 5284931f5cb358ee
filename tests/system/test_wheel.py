"""A wheel built from the tree is complete: it runs the demo model in another folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.environments import hidden_modules, hide
from tests.programs import require_program

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's files, unpacked outside the tree."""
    pytest.importorskip("build", reason="the package `build` is not installed (extra dev)")
    pytest.importorskip("setuptools", reason="setuptools is not installed (extra dev)")
    work = tmp_path_factory.mktemp("wheel")
    source = work / "source"
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if names.returncode:
        pytest.skip("not a git checkout: the list of files to build from is unknown")
    for name in filter(None, names.stdout.decode().split("\0")):
        if (ROOT / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name, follow_symlinks=False)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(work / "dist"), "."]
    built = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=300, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = (work / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(work / "site")
    return work / "site"


def site_packages() -> str:
    """Return the folder of the packages of this environment."""
    return sysconfig.get_path("purelib")


def _run(site: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=site.parent,
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def test_the_wheel_is_one_package_with_all_its_files(installed: Path):
    kinds = {
        ".rdl",
        ".h",
        ".c",
        ".cpp",
        ".sv",
        ".v",
        ".j2",
        ".css",
        ".js",
        ".csv",
        ".gz",
        ".md",
        ".svg",
        ".onnx",
        ".ipynb",
        ".typed",
    }
    places = [
        Path(folder, name).relative_to(ROOT)
        for folder, _, names in os.walk(ROOT / "rkcosim", followlinks=True)
        for name in names
        if Path(name).suffix in kinds
    ]
    assert len(places) > 90
    for place in places:
        assert (installed / place).is_file(), place
    assert {path.name for path in installed.iterdir() if path.suffix != ".dist-info"} == {"rkcosim"}


@pytest.mark.parametrize("engine", ["golden", "verilator"])
def test_demo_model_runs_from_the_wheel(installed: Path, engine: str):
    if engine == "verilator":
        require_program("g++")
    where = _run(
        installed, "-c", "import rkcosim, rkcosim.rtl; print(rkcosim.__file__, rkcosim.rtl.__file__)"
    )
    assert all(path.startswith(str(installed)) for path in where.stdout.split()), where.stdout + where.stderr
    result = _run(
        installed, "-m", "rkcosim.cli.main", "run", DIGITS / "digits_int8.onnx",
        "--input", DIGITS / "held_back.npz", "--limit", 1, "--engine", engine, "--check",
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    assert "MATCH" in result.stdout


@pytest.mark.heavy  # `make check` checks the same program against the sources
def test_type_checkers_use_the_annotations_of_the_wheel(installed: Path, tmp_path: Path):
    """mypy finds the package by its `py.typed`, as in any other project."""
    pytest.importorskip("mypy", reason="mypy is not installed (extra dev)")
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=300)
    (site,) = environment.glob("lib/python*/site-packages")
    for file in installed.iterdir():
        (site / file.name).symlink_to(file)
    (site / "others.pth").write_text(f"{site_packages()}\n")
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    shutil.copy(ROOT / "tests" / "typing" / "strict_program.py", right)
    wrong.write_text("import rkcosim\nrkcosim.load(3)\nrkcosim.load('a').profile().cycle\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull]
    command += ["--python-executable", str(environment / "bin" / "python"), str(right), str(wrong)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [line.split(":")[:2] for line in errors] == [["wrong.py", "2"], ["wrong.py", "3"]], done.stdout
    assert "[arg-type]" in errors[0] and '"Profile" has no attribute "cycle"' in errors[1]


@pytest.mark.heavy
def test_a_prebuilt_engine_needs_no_compiler(installed: Path, tmp_path: Path):
    require_program("g++")
    built = subprocess.run(
        [sys.executable, "-m", "tools.engine_wheel", str(tmp_path / "dist")],
        cwd=ROOT, capture_output=True, text=True, timeout=1100, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = (tmp_path / "dist").glob("rkcosim_engine_x86_64_v3-*-manylinux_2_*_x86_64.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    (tmp_path / "bin").mkdir()
    environment = {
        "PATH": str(tmp_path / "bin"),
        "PYTHONPATH": os.pathsep.join([str(installed), str(tmp_path / "site")]),
        "RKCOSIM_CACHE": str(tmp_path / "cache"),
    }

    def run(**more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                sys.executable, "-m", "rkcosim", "run", str(DIGITS / "digits_int8.onnx"), "--input",
                str(DIGITS / "held_back.npz"), "--limit", "1", "--check", "--trace", str(tmp_path / "w.vcd"),
            ],
            cwd=tmp_path, env=environment | more, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip

    done = run()
    assert done.returncode == 0 and "MATCH" in done.stdout, done.stdout + done.stderr
    assert "building" not in done.stderr and (tmp_path / "w.vcd").stat().st_size > 100_000
    without = run(RKCOSIM_PREBUILT="0")
    assert without.returncode != 0 and "install a C++17 compiler" in without.stderr


def test_programs_reach_the_device_of_the_wheel(installed: Path):
    require_program("cc")
    result = _run(
        installed,
        "-m",
        "rkcosim.cli.main",
        "device",
        "--engine",
        "golden",
        "--",
        "ls",
        "/dev/dri",
        "/dev/accel",
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert {"card1", "renderD129", "accel0"} <= set(result.stdout.split())


NOTEBOOKS = {
    "first_model": (),
    "float_to_int8": ("onnx", "notebooks"),
    "hanging_stream": (),
    "what_if": ("notebooks",),
}
"""The extras that each notebook needs."""


@pytest.mark.heavy
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_run_from_the_wheel_in_an_empty_environment(installed: Path, name: str, tmp_path: Path):
    """With nbconvert, unchanged, and with no package but those of the extras that they name."""
    require_program("g++")
    pytest.importorskip("nbconvert", reason="needs the extra dev")
    pytest.importorskip("ipykernel", reason="needs the extra notebooks")
    from tools.notebooks import VARIES, cleaned, differences, notebooks, read, said

    assert set(NOTEBOOKS) == set(notebooks())
    (tmp_path / "hidden").mkdir()
    (tmp_path / "work").mkdir()
    hide(hidden_modules(NOTEBOOKS[name], ("ipykernel", "nbconvert", "tinycss2")), tmp_path / "hidden")
    there = installed / "rkcosim" / "docs" / "notebooks" / f"{name}.ipynb"
    shutil.copy(there, tmp_path / "work")
    done = subprocess.run(
        [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--inplace", f"{name}.ipynb"],
        cwd=tmp_path / "work",
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path / "hidden"), str(installed)])},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found, stored = cleaned(read(tmp_path / "work" / f"{name}.ipynb")), read(there)
    if name == "first_model":  # what it says of onnxruntime, which is not there
        for cell in (cell for one in (stored, found) for cell in one.cells):
            if VARIES in cell.metadata.get("tags", ()):
                assert ("pip install 'rkcosim[onnx]'" in said(cell)[-1]) == (cell in found.cells)
                cell.outputs = []
    assert differences(stored, found) == []
