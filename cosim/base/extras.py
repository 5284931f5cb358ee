"""The extras of the package: the modules of each, its purpose, and the command that installs it.

The core of `pyproject.toml` is what running a model needs; everything else is in an extra.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Extra:
    """An extra of the package.

    Members
    -------
    packages : name of the package by the module that is imported.
    purpose : what needs it.
    """

    packages: Mapping[str, str]
    purpose: str


EXTRAS = {
    "onnx": Extra({"onnxruntime": "onnxruntime"}, "comparing with onnxruntime, quantising ONNX models"),
    "tflite": Extra({"tflite": "tflite", "flatbuffers": "flatbuffers"}, "reading .tflite models"),
    "litert": Extra({"ai_edge_litert": "ai-edge-litert"}, "comparing with LiteRT"),
    "quantizer": Extra({"ai_edge_quantizer": "ai-edge-quantizer"}, "quantising TFLite models"),
    "pictures": Extra({"PIL": "pillow"}, "pictures as model inputs"),
    "report": Extra({"jinja2": "Jinja2"}, "HTML reports"),
    "waves": Extra(
        {
            "pyarrow": "pyarrow",
            "perfetto": "perfetto",
            "vcdvcd": "vcdvcd",
            "pywellen": "pywellen",
            "_libfstapi": "pylibfst",
            "vcd": "pyvcd",
        },
        "reading waveforms, FST files, event logs, timelines",
    ),
    "notebooks": Extra(
        {"pandas": "pandas", "matplotlib": "matplotlib", "ipykernel": "ipykernel"},
        "reports as data frames and plots",
    ),
    "shards": Extra(
        {"distributed": "distributed", "dask": "distributed", "cryptography": "cryptography"},
        "--shards and sweeps",
    ),
    "cocotb": Extra(
        {
            "cocotb": "cocotb",
            "cocotb_tools": "cocotb",
            "cocotbext": "cocotbext-axi",
            "cocotb_coverage": "cocotb-coverage",
            "pytest": "pytest",
        },
        "tests with cocotb",
    ),
    "registers": Extra(
        {
            "peakrdl_html": "peakrdl-html",
            "peakrdl_uvm": "peakrdl-uvm",
            "peakrdl_pyuvm": "peakrdl-pyuvm",
            "pyuvm": "pyuvm",
        },
        "registers for UVM and pyuvm, pages of registers",
    ),
    "diopi": Extra({"torch": "torch", "einops": "einops"}, "DIOPI's conformance suite"),
    "completion": Extra({"shellingham": "shellingham"}, "finding the shell to install completion for"),
    "docs": Extra(
        {
            "mkdocs": "mkdocs",
            "material": "mkdocs-material",
            "nbconvert": "nbconvert",
            "wavedrom": "wavedrom",
        },
        "the documentation site",
    ),
    "dev": Extra(
        {"hypothesis": "hypothesis", "xdist": "pytest-xdist", "ruff": "ruff", "mypy": "mypy"},
        "tests and checks of the project",
    ),
}
"""The extras of `pyproject.toml`."""


class MissingPackage(ImportError):
    """A package of an extra is not installed; the message names both."""


def install(extra: str) -> str:
    """Return the command that installs an extra into an environment that has `rkcosim`.

    It needs no index that has `rkcosim`: pip reads the extra of what is installed, also of a checkout.
    """
    return f"pip install 'rkcosim[{extra}]'"


def too_old() -> dict[str, str]:
    """Return the installed packages that are older than this version of rkcosim allows, and what is needed.

    A later installation of another project can bring that about.
    """
    from importlib import metadata

    try:
        lines = metadata.requires("rkcosim") or []
    except metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return {}
    found: dict[str, str] = {}
    for line in lines:
        parts = re.match(r"([\w.-]+)[^;<>=~]*(?:>=|~=|==)\s*(\d+(?:\.\d+)*)", line)
        if parts is None:
            continue
        try:
            here = metadata.version(parts[1])
        except metadata.PackageNotFoundError:
            continue
        if numbers(here) < numbers(parts[2]):
            found[parts[1]] = f"{parts[1]} {here} is installed, {parts[2]} or newer is needed"
    return found


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers at the beginning of a version, without zeros at their end."""
    numbers = [int(word) for word in re.match(r"[\d.]*", version)[0].split(".") if word]  # type: ignore[index]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def extra_of(module: str) -> str | None:
    """Return the extra that brings a module (`PIL.Image`), None for a module of no extra."""
    top = module.partition(".")[0]
    return next((name for name, extra in EXTRAS.items() if top in extra.packages), None)


def missing(module: str, what: str = "") -> str:
    """Return the message for a module that is not installed: what needs it, and which extra brings it.

    Parameters
    ----------
    what : what needs it, as "a timeline".

    Raises
    ------
    ValueError
        for a module of no extra.
    """
    extra = extra_of(module)
    if extra is None:
        raise ValueError(f"no extra brings the module {module}")
    package = EXTRAS[extra].packages[module.partition(".")[0]]
    subject = f"{what} needs {package}, which" if what else package
    return f"{subject} is not installed: {install(extra)}"


@contextmanager
def needed(module: str, what: str, error: type[Exception] = MissingPackage) -> Iterator[None]:
    """Give the imports of a `with` block the message of `missing`.

    Raises
    ------
    error
        if an import fails; from the ImportError. A module that is there but cannot be imported is named with
        the reason.
    """
    try:
        yield
    except ImportError as problem:
        name = problem.name or module
        if problem.path or extra_of(name) is None:
            text = f"{what} needs {module}, which cannot be imported: {problem}"
        else:
            text = missing(name, what)
        raise error(text) from problem
