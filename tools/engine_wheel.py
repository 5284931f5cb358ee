"""The optional wheel with prebuilt engines: `make wheel-prebuilt`, or

    python -m tools.engine_wheel dist

It builds the default engine, with and without waveforms, for processors with x86-64-v3 (unless the cache has
them), and packs them into a wheel. Installed beside `rkcosim` of the same sources, it makes a C++ compiler
unnecessary for these engines (rkcosim.engines.prebuilt).
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import re
import sys
import tempfile
import zipfile
from pathlib import Path

from rkcosim.engines import build, cache, prebuilt, toolchain, verilog
from rkcosim.engines.build import Variant
from rkcosim.spec.config import RK3588

_METADATA = """Metadata-Version: 2.1
Name: {name}
Version: {version}
Summary: The default engine of rkcosim, built for Linux on x86-64-v3
License: Apache-2.0
Requires-Python: >=3.11
Requires-Dist: rkcosim=={version}
"""

_WHEEL = """Wheel-Version: 1.0
Generator: rkcosim
Root-Is-Purelib: false
Tag: py3-none-{platform}
"""


def platform_tag(libraries: list[Path]) -> str:
    """Return the tag of a wheel for the newest version of the C library that one of the files needs."""
    needed = {int(n) for path in libraries for n in re.findall(rb"GLIBC_2\.(\d+)", path.read_bytes())}
    return f"manylinux_2_{max(needed)}_x86_64"


def write_wheel(package: Path, folder: Path, version: str) -> Path:
    """Pack the entries in `package` into a wheel in `folder`; return its path."""
    tag = platform_tag(sorted(package.glob(f"*/{build.LIBRARY}")))
    stem = f"{prebuilt.PACKAGE}-{version}"
    files = {f"{prebuilt.PACKAGE}/__init__.py": b'"""Prebuilt engines of rkcosim."""\n'}
    for path in sorted(package.rglob("*")):
        if path.is_file():
            files[f"{prebuilt.PACKAGE}/{path.relative_to(package)}"] = path.read_bytes()
    files[f"{stem}.dist-info/METADATA"] = _METADATA.format(name=prebuilt.PROJECT, version=version).encode()
    files[f"{stem}.dist-info/WHEEL"] = _WHEEL.format(platform=tag).encode()
    record = f"{stem}.dist-info/RECORD"
    lines = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}\n")
    files[record] = "".join([*lines, f"{record},,\n"]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{stem}-py3-none-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return wheel


def collect(package: Path, variants: list[Variant]) -> None:
    """Build engines of the RK3588's core and put them into `package`, in the form of a cache folder."""
    os.environ["RKCOSIM_CXXFLAGS"] = prebuilt.FLAGS
    design = verilog.as_design(verilog.npu_design(RK3588))
    for variant in variants:
        library = build.build(design, variant)
        build.pack(design, variant, library, package)


def main(arguments: list[str] | None = None) -> int:
    """Build the wheel."""
    parser = argparse.ArgumentParser(description="Build the wheel with prebuilt engines.")
    parser.add_argument("folder", type=Path, help="folder of the wheel")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        package = Path(name)
        collect(package, [Variant("verilator", "cpp"), Variant("verilator", "cpp", traced=True)])
        wheel = write_wheel(package, given.folder, toolchain.package_version("rkcosim"))
    cache.say(f"{wheel} ({wheel.stat().st_size / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
