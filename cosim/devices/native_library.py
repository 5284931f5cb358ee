"""C libraries of the package: compiled by the system's C compiler into the engines' cache on first use."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rkcosim.base import PACKAGE
from rkcosim.engines import cache, toolchain
from rkcosim.engines.cache import Progress
from rkcosim.engines.protocol import BuildError

COMMON = PACKAGE / "base" / "native"
"""Sources that several libraries have in common: messages and connections."""

COMPILER_FIX = (
    "install a C compiler (Debian, Ubuntu: apt install gcc; Fedora: dnf install gcc; pip install ziglang) or "
    "set the variable CC to one"
)

CANDIDATES = ("cc", "gcc", "clang", "g++ -x c", "clang++ -x c", "zig cc")

FLAGS = ("-shared", "-fPIC", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-fvisibility=hidden")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g")


def c_compiler() -> tuple[str, ...]:
    """Return the command of the C compiler: the variable CC, or the first of `CANDIDATES` on the path.

    Raises
    ------
    BuildError
        if there is none; the message says what to install.
    """
    named = os.environ.get("CC")
    for candidate in [named] if named else CANDIDATES:
        command = shlex.split(candidate)
        if command and shutil.which(command[0]):
            return tuple(command)
    if not named and toolchain.package_folder("ziglang") is not None:
        return (*toolchain.PYTHON, "-m", "ziglang", "cc")
    missing = f"CC names {named!r}, which does not run" if named else "no C compiler found"
    raise BuildError(f"{missing}: {COMPILER_FIX}")


def sanitizer_runtime() -> str:
    """Return what LD_PRELOAD must contain before a library with sanitizers.

    Empty if the compiler has none.
    """
    import subprocess

    asked = subprocess.run(
        [*c_compiler(), "-print-file-name=libasan.so"], capture_output=True, text=True, check=False
    )
    path = asked.stdout.strip()
    return path if os.path.isabs(path) and os.path.exists(path) else ""


@dataclass(frozen=True)
class NativeLibrary:
    """A shared library of C sources.

    Members
    -------
    key : beginning of its name in the cache.
    name : file name.
    sources : C files and headers.
    generated : texts of generated C files and headers by name.
    flags : flags of the compiler besides `FLAGS`.
    linked : arguments behind the sources.
    checked : whether it must load in this process before it enters the cache; not with sanitizers.
    """

    key: str
    name: str
    sources: Sequence[Path]
    generated: Mapping[str, str] = field(default_factory=dict)
    flags: Sequence[str] = ()
    linked: Sequence[str] = ()
    checked: bool = True

    def compile(self, folder: Path, command: Sequence[str]) -> None:
        """Generate and compile the library in a folder.

        Parameters
        ----------
        folder : folder for the generated files and the library.
        command : command of the C compiler, with `FLAGS`.

        Raises
        ------
        BuildError
            if the compiler fails.
        """
        for name, text in self.generated.items():
            (folder / name).write_text(text)
        files = [*(folder / name for name in self.generated), *self.sources]
        folders = {str(file.parent): None for file in files}  # in their order
        arguments = [*command, *self.flags, *(f"-I{path}" for path in folders), "-o", self.name]
        arguments += [str(file) for file in files if file.suffix == ".c"]
        toolchain.run([*arguments, *self.linked], folder, "C compiler")

    def path(self, *, sanitize: bool = False, progress: Progress = cache.say) -> Path:
        """Return the library's path; compile it if it is not in the cache.

        Parameters
        ----------
        sanitize : use the address and undefined-behaviour sanitizers, for tests.
        progress : called with a line of text before each step that takes long.

        Raises
        ------
        BuildError
            if there is no compiler, it fails, a source is missing, or the cache cannot be written.
        """
        command = [*c_compiler(), *FLAGS, *(SANITIZERS if sanitize else ())]
        what = (command, self.name, tuple(self.flags), tuple(self.linked), os.uname().machine)
        digest = hashlib.sha256(repr(what).encode())
        texts = {**self.generated, **{file.name: file.read_text() for file in self.sources}}
        for name, text in texts.items():
            digest.update(f"{name}\0{text}\0".encode())
        return cache.built(
            f"{self.key}-{digest.hexdigest()[:24]}",
            self.name,
            self.name,
            lambda work: self.compile(work, command),
            progress,
            toolchain.check_loads if self.checked and not sanitize else None,
        )
