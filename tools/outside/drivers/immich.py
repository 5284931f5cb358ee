"""Immich's RKNN session: OUTCOMES, the folder immich_ml, and a folder with model.rknn and reference.npz.

The files of `sessions/rknn` are Immich's, so are `models/constants.py` and, if its packages are installed,
`schemas.py`. A stand-in has the two settings of `config.py` that they read, and its logger.
"""

from __future__ import annotations

import importlib
import logging
import threading
import types
from pathlib import Path
from typing import Any

import numpy as np

from tools.outside.drivers import Absent, agree, arguments, expect, judge, package, stand_in

SETTINGS = types.SimpleNamespace(rknn=True, rknn_threads=1)


def loaded(folder: Path) -> Any:
    """Import `immich_ml.sessions.rknn` from a folder, and return it."""
    package("immich_ml", folder)
    for name in ("sessions", "models"):
        package(f"immich_ml.{name}", folder / name)
    stand_in(
        "immich_ml.config",
        log=logging.getLogger("immich"),
        settings=SETTINGS,
        clean_name=lambda name: name.split("/")[-1].replace(":", "_"),
    )
    try:
        importlib.import_module("immich_ml.schemas")
    except ImportError:  # fastapi and others, of which the session uses nothing
        names = ("SessionNode", "ModelTensor", "ModelInput", "ModelSource")
        stand_in(
            "immich_ml.schemas", **dict.fromkeys(names, Any), Shape=lambda *sizes, **names: (sizes, names)
        )
    return importlib.import_module("immich_ml.sessions.rknn")


def main() -> None:
    """Run the tests."""
    outcomes, (folder, data) = arguments()
    session: Any = loaded(Path(folder))
    pool: Any = importlib.import_module("immich_ml.sessions.rknn.rknnpool")
    model = Path(data) / "model.rknn"
    with np.load(Path(data) / "reference.npz") as file:
        inputs, expected = file["inputs"], file["expected"]

    def board() -> None:
        expect(bool(session.is_available), "RKNN is not available")
        expect(session.soc_name == "rk3588", f"the SoC is {session.soc_name}")

    def one_thread() -> None:
        SETTINGS.rknn_threads = 1
        opened = session.RknnSession(model)
        for x, y in zip(inputs, expected, strict=True):
            agree(opened.run(None, {"input": x}), [y])

    def threads() -> None:
        SETTINGS.rknn_threads = 3
        opened = session.RknnSession(model)
        found: dict[int, Any] = {}

        def ask(number: int) -> None:
            found[number] = opened.run(None, {"input": inputs[number]})

        # Not more than there are contexts: the session gives a fourth question to the first context without
        # waiting for its answer to the first one.
        asking = [threading.Thread(target=ask, args=(number,)) for number in range(3)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        for number in range(3):
            agree(found[number], [expected[number]])

    def one_after_another() -> None:
        SETTINGS.rknn_threads = 2
        opened = session.RknnSession(model)
        for x, y in zip(inputs, expected, strict=True):
            agree(opened.run(None, {"input": x}), [y])

    def nodes() -> None:
        if not hasattr(pool, "tensor_nodes"):
            raise Absent("the file has no tensor_nodes")
        lite = pool.init_rknn(str(model))
        ins, outs = pool.tensor_nodes(lite)
        expect([node.shape for node in ins] == [(1, 112, 112, 3)], f"inputs {ins}")
        expect([tuple(node.shape) for node in outs] == [expected[0].shape], f"outputs {outs}")
        lite.release()

    def custom_string() -> None:
        if not hasattr(pool, "custom_string"):
            raise Absent("the file has no custom_string")
        lite = pool.init_rknn(str(model))
        expect(pool.custom_string(lite) == '{"dims": [{}]}', f"custom string {pool.custom_string(lite)!r}")
        lite.release()

    def native_outputs() -> None:
        if not hasattr(pool, "native_outputs"):
            raise Absent("the file has no native_outputs")
        lite = pool.init_rknn(str(model))
        agree(lite.inference(inputs=[inputs[0]], data_format="nchw"), [expected[0]])
        agree(pool.native_outputs(lite), [expected[0]])
        lite.release()

    def refused() -> None:
        try:
            pool.init_rknn(str(model.with_name("none.rknn")))
        except RuntimeError as error:
            expect("Failed to load" in str(error), str(error))
        else:
            raise ValueError("a model that does not exist is loaded")

    tests = {
        "board": board,
        "session: one thread": one_thread,
        "session: two contexts in turn": one_after_another,
        "session: three contexts at once": threads,
        "nodes": nodes,
        "custom string": custom_string,
        "native outputs": native_outputs,
        "no model": refused,
    }
    judge(outcomes, tests)


if __name__ == "__main__":
    main()
