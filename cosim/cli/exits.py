"""Exit codes of `rkcosim` and how errors become one line (DESIGN 11)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

OK = 0
MISMATCH = 1
BAD_INPUT = 2
DEVICE_ERROR = 3


@contextmanager
def reported() -> Iterator[None]:
    """Turn expected errors into one message on stderr and the right exit code."""
    from cosim.cli.inputs import InputError
    from cosim.engines.errors import EngineError
    from cosim.golden.task.errors import GoldenError
    from cosim.model_run import RunError
    from sw.compiler import ModelError
    from sw.driver.errors import DriverError
    from sw.regcmd import RegcmdError

    try:
        yield
    except RunError as error:
        device = isinstance(error.cause, (DriverError, EngineError, GoldenError))
        fail(str(error), DEVICE_ERROR if device else BAD_INPUT)
    except (InputError, ModelError, RegcmdError, ValueError) as error:
        fail(str(error), BAD_INPUT)
    except FileNotFoundError as error:
        fail(f"{error.filename}: no such file", BAD_INPUT)
    except OSError as error:
        fail(f"{error.filename or 'file'}: {error.strerror or error}", BAD_INPUT)
    except (DriverError, EngineError, GoldenError) as error:
        fail(str(error), DEVICE_ERROR)


def fail(message: str, code: int) -> None:
    """Say what went wrong and end with `code`."""
    print(f"rkcosim: {message}", file=sys.stderr)
    raise SystemExit(code)


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write JSON so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(data, indent=2) + "\n")
    part.replace(path)
