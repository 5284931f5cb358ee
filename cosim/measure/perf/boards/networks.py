"""Networks of published shapes, made once by `examples/networks/make.py` and kept in the cache folder."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType

from rkcosim.base import PACKAGE, progress
from rkcosim.base.extras import missing
from rkcosim.compiler.host_runtimes import import_onnxruntime
from rkcosim.engines.cache import cache_folder, cache_folders

SCRIPT = PACKAGE / "examples" / "networks" / "make.py"


class NetworkError(ValueError):
    """The network cannot be made here; the message gives the reason."""


def network_file(name: str) -> Path:
    """Return the path of an int8 ONNX file of a network, by its name in `make.py`.

    Its weights are random with a fixed seed: the sizes are the published ones, the classes are meaningless.

    Raises
    ------
    NetworkError
        If the name is unknown, or the script or a package that it needs is missing.
    """
    if not SCRIPT.is_file():
        raise NetworkError(f"{name}: networks are made by examples/networks/make.py of the repository")
    version = hashlib.sha256(SCRIPT.read_bytes()).hexdigest()[:16]
    places = [folder / "networks" / f"{name}-{version}.onnx" for folder in cache_folders()]
    path = next(filter(os.path.exists, places), None)
    if path is None:
        path = cache_folder(programs=False) / "networks" / f"{name}-{version}.onnx"
        script = _script()
        if name not in script.NETWORKS | script.PUBLISHED:
            raise NetworkError(
                f"there is no network {name}; there are {', '.join(script.NETWORKS | script.PUBLISHED)}"
            )
        with progress.step(f"building {name}"):
            data = script.make(name)[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(prefix=f".{name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(part, path)
    return path


@cache
def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rkcosim_example_networks", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        import_onnxruntime()
        import onnxruntime.quantization  # noqa: F401  # the script imports it later
    except ImportError as error:
        raise NetworkError(missing("onnxruntime", "making networks")) from error
    return module
