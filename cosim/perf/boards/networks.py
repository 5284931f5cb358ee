"""Networks of published shapes, built once by `examples/networks/make.py` and kept in the cache folder."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType

from cosim import progress
from cosim.engines.cache import cache_folder

SCRIPT = Path(__file__).parents[3] / "examples" / "networks" / "make.py"


class NetworkError(ValueError):
    """A network that cannot be built here; the message says why."""


def network_file(name: str) -> Path:
    """An int8 ONNX file of a network by its name in `make.py`.

    Its weights are random with a fixed seed: the sizes are the published ones, the classes nonsense.

    Raises
    ------
    NetworkError
        for an unknown name, or when the script or a package that it needs is not there.
    """
    if not SCRIPT.is_file():
        raise NetworkError(f"{name}: networks are built by examples/networks/make.py of the repository")
    version = hashlib.sha256(SCRIPT.read_bytes()).hexdigest()[:16]
    path = cache_folder() / "networks" / f"{name}-{version}.onnx"
    if not path.exists():
        script = _script()
        if name not in script.NETWORKS | script.PUBLISHED:
            raise NetworkError(
                f"no network {name}; there are {', '.join(script.NETWORKS | script.PUBLISHED)}"
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
        import onnxruntime.quantization  # noqa: F401  # what the script needs once it works
    except ImportError as error:
        raise NetworkError(f"building networks needs the extra onnx ({error})") from error
    return module
