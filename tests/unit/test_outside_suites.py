"""What suites of the ledger make and read by themselves: a language model's file, and lines of verdicts."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from tests.programs import needs_program
from tools.outside import suite as ledger
from tools.outside.drivers import yolo
from tools.outside.gguf import write_model
from tools.outside.programs import Finished
from tools.outside.suites import llama_rknpu2, nnlib, rk_llama

HERE = "owner/name"


def _string(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<Q", data, at)
    return data[at + 8 : at + 8 + length].decode(), at + 8 + length


def _skip(data: bytes, at: int, kind: int) -> int:
    """The place behind a value of GGUF: uint32, int32, float32, string or array."""
    if kind == 8:
        return _string(data, at)[1]
    if kind != 9:
        return at + 4
    of, count = struct.unpack_from("<IQ", data, at)
    at += 12
    for _ in range(count):
        at = _skip(data, at, of)
    return at


def test_a_language_model(tmp_path: Path) -> None:
    """The layout is that of GGUF's description: version 3, tensors at multiples of 32, blocks of 34 bytes."""
    write_model(tmp_path / "model.gguf", seed=3, width=64, inner=96, layers=1, heads=2)
    data = (tmp_path / "model.gguf").read_bytes()
    magic, version, tensors, keys = struct.unpack_from("<4sIQQ", data)
    assert (magic, version) == (b"GGUF", 3)
    at, names = 24, []
    for _ in range(keys):
        name, at = _string(data, at)
        names.append(name)
        at = _skip(data, at + 4, struct.unpack_from("<I", data, at)[0])
    assert "llama.feed_forward_length" in names and "tokenizer.ggml.tokens" in names
    infos = {}
    for _ in range(tensors):
        name, at = _string(data, at)
        (dimensions,) = struct.unpack_from("<I", data, at)
        shape = struct.unpack_from(f"<{dimensions}Q", data, at + 4)
        kind, offset = struct.unpack_from("<IQ", data, at + 4 + 8 * dimensions)
        at += 16 + 8 * dimensions
        infos[name] = shape, kind, offset
    start = -(-at // 32) * 32
    assert infos["blk.0.ffn_down.weight"][:2] == ((96, 64), 8)
    assert infos["blk.0.attn_norm.weight"][:2] == ((64,), 0)
    assert all(offset % 32 == 0 for _, _, offset in infos.values())
    (inner, width), _, offset = infos["blk.0.ffn_down.weight"]
    blocks = np.frombuffer(data, np.uint8, inner * width // 32 * 34, start + offset).reshape(-1, 34)
    scales = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    weights = scales * blocks[:, 2:].copy().view(np.int8)
    assert abs(weights).max() == pytest.approx(1, rel=2**-10) and weights.std() > 0.5
    np.testing.assert_allclose(weights * 127, np.rint(weights * 127), atol=127 * 2**-11)


def test_the_verdicts_of_the_int4_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "      vs CPU ref (wrap16): NORM 256/256 ok, NATIVE 256/256 ok\n"
        "PASS  M=1    K=256   N=256    (bit-identical, 256 elements)\n"
        "      vs CPU ref (wrap16): NORM 1280/1280 ok, NATIVE 9/1280 ok\n"
        "FAIL  M=5    K=320   N=256    1271/1280 elements differ\n"
        "set_io_mem failed (ac_native=1)\n"
    )
    monkeypatch.setattr(rk_llama, "under", lambda *_, **__: Finished(1, text, 2.0))
    program = tmp_path / rk_llama.PROGRAM
    program.parent.mkdir(parents=True)
    program.touch()
    found = rk_llama._run(ledger.Checkout(HERE, tmp_path, "", "python3"), "golden", tmp_path)
    assert len(found) == 8
    assert [name for name, outcome in found.items() if outcome.verdict == ledger.PASS] == [
        "1 x 256 x 256: layouts",
        "1 x 256 x 256: sums",
    ]
    assert "NATIVE 9/1280" in found["5 x 320 x 256: sums"].note
    assert found["128 x 1024 x 512: sums"].note == "exit code 1: set_io_mem failed (ac_native=1)"


@needs_program("cc")
@pytest.mark.parametrize(("npu", "verdict"), [(b"", ledger.PASS), (b"!", ledger.FAIL)])
def test_the_tokens_of_llama(
    npu: bytes, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the back end prints between tokens does not count; a token that differs does."""
    program = tmp_path / llama_rknpu2.PROGRAM
    program.parent.mkdir(parents=True)
    program.touch()

    def ran(door: str, engine: str, command: list[str], limit: float, **more: object) -> Finished:
        in_back_end, on_npu = command[-1] != "0", "LD_PRELOAD" not in command[2]
        said = b"Created RKNPU2 matmul kernel: src0(1, 256)\n" if in_back_end else b""
        last = npu if in_back_end and on_npu else b""
        (tmp_path / "text").write_bytes(b" Hello,_tiny_world" + b"abcdefgh" + said + b"ijklmnop" + last)
        if on_npu:
            (tmp_path / "report.json").write_text('{"products": [{"k": 256, "n": 256, "runs": 14}]}')
        return Finished(0, "", 1.0)

    monkeypatch.setattr("tools.outside.llama.under", ran)
    found = llama_rknpu2._run(ledger.Checkout(HERE, tmp_path, "", "python3"), "golden", tmp_path)
    assert found["256 x 256, model 4: tokens of exact products"].verdict == verdict
    assert found["256 x 256, model 4: tokens without the back end"].verdict == verdict
    assert found["256 x 256, model 4: report"].verdict == ledger.PASS
    assert found["256 x 512: report"].verdict == ledger.FAIL  # no rows of these sizes


@pytest.mark.parametrize(
    ("code", "moved", "count", "small", "med"),
    [
        (0, 0.0, 800, ledger.PASS, ledger.SILENT),
        (0, 1e-5, 800, ledger.FAIL, ledger.SILENT),
        (0, 0.0, 799, ledger.PASS, ledger.FAIL),
        (1, 0.0, 800, ledger.FAIL, ledger.FAIL),
        (None, 0.0, 800, ledger.LIMIT, ledger.LIMIT),
    ],
)
def test_the_numbers_of_graph_app(
    code: int | None,
    moved: float,
    count: int,
    small: str,
    med: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The copy is compared with the picture; the other graph has no verdict, but a number of results."""
    (tmp_path / "build").mkdir()
    for name in ("graph_app_small", "graph_app_med"):
        (tmp_path / "build" / name).touch()

    def ran(door: str, engine: str, command: list[str], limit: float, **more: dict[str, str]) -> Finished:
        values = np.fromfile(command[-1], "<f4")
        shown = values + np.float32(moved) if "small" in command[3] else np.zeros(count)
        text = "Run!\noutput values:\n" + "".join(f"{value:f}," for value in shown) + "\nAppReported: 0\n"
        Path(more["environment"]["SHOWN"]).write_text(text, encoding="utf-8")
        return Finished(code, "graph 1: 1 execution", 1.0)

    monkeypatch.setattr(nnlib, "under", ran)
    found = nnlib._graph_app(ledger.Checkout(HERE, tmp_path, "", "python3"), "golden", tmp_path)
    assert {name: outcome.verdict for name, outcome in found.items()} == {
        "graphinit_small": small,
        "graphinit_med": med,
    }


def test_the_answers_of_predict() -> None:
    """Order and number of boxes do not count, a box without a counterpart does; so does each share."""
    boxes = np.array([[0, 0, 8, 8, 32.0], [4, 4, 20, 20, 16.0], [30, 1, 40, 9, 8.0]])
    assert yolo.apart(boxes, boxes[::-1]) == 0
    assert yolo.apart(np.vstack([boxes, boxes[1:]]), boxes) == 0
    assert yolo.apart(boxes[:2], boxes) == yolo.apart(boxes, boxes[:2]) == 26
    assert yolo.apart(boxes + np.array([0, 0, 0, 0.5, 0]), boxes) == 0.5
    assert yolo.apart(boxes[:0], boxes) == yolo.apart(boxes, boxes[:0]) == float("inf")
    shares = np.array([[0.5], [0.25], [0.25]])
    assert yolo.apart(shares, shares[::-1]) == 0.25


def test_a_picture_keeps_its_codes() -> None:
    """What predict() divides by 255 are the codes of the picture that AutoBackend gets, red first."""
    picture = yolo.codes(np.random.default_rng(3))
    given = yolo.pixels(picture)
    assert given.dtype == np.uint8 and given.shape == (yolo.SIDE, yolo.SIDE, 3)
    back = given[..., ::-1].transpose(2, 0, 1)[None].astype(np.float32) / np.float32(255)
    np.testing.assert_array_equal(back, picture)
