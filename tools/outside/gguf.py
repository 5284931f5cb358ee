"""Write a small language model with random weights as a GGUF file.

The format is version 3 of GGUF, the architecture that of LLaMA, matrices are in Q8_0 (blocks of 32 codes with
a scale in fp16) and norms in binary32.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

U32, F32, STRING, ARRAY, I32 = 4, 6, 8, 9, 5
TYPE_F32, TYPE_Q8_0 = 0, 8
ALIGNMENT = 32
VERSION = 3
TOKENS = 288


HIGHEST = 127
"""Of the codes of a matrix, whose values are code / 127."""


def _text(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def _number(name: str, value: int | float) -> bytes:
    kind, form = (F32, "<f") if isinstance(value, float) else (U32, "<I")
    return _text(name.encode()) + struct.pack("<I", kind) + struct.pack(form, value)


def _string(name: str, value: str) -> bytes:
    return _text(name.encode()) + struct.pack("<I", STRING) + _text(value.encode())


def _array(name: str, kind: int, parts: Sequence[bytes]) -> bytes:
    head = _text(name.encode()) + struct.pack("<IIQ", ARRAY, kind, len(parts))
    return head + b"".join(parts)


def _q8_0(values: np.ndarray) -> bytes:
    """Blocks of 32 values: a scale in fp16, which is 1/127 for all, and codes."""
    codes = np.rint(values.reshape(-1, 32) * HIGHEST).astype(np.int8)
    scales = np.full((len(codes), 1), 1 / HIGHEST, np.float16)
    return np.concatenate([scales.view(np.uint8), codes.view(np.uint8)], 1).tobytes()


def write_model(
    path: Path, *, seed: int, width: int = 256, inner: int = 256, layers: int = 2, heads: int = 4
) -> None:
    """Write a model of 288 tokens (256 of them bytes) with random weights.

    The weights are multiples of 1/127 and activations stay within about +-1.7, so that a back end with fixed
    int8 scales of that kind loses little.

    Parameters
    ----------
    path : the file.
    seed : of the weights.
    width, inner : of the embedding and of the inner layer of a block; multiples of 32.
    layers, heads : blocks, and heads of the attention.
    """
    rng = np.random.default_rng(seed)
    tokens = [b"<unk>", b"<s>", b"</s>", *(f"<0x{n:02X}>".encode() for n in range(256))]
    tokens += [chr(0x100 + n).encode() for n in range(TOKENS - len(tokens))]
    kinds = [2, 3, 3, *[6] * 256, *[1] * (TOKENS - 259)]
    keys = [
        _string("general.architecture", "llama"),
        _string("general.name", "random"),
        _number("llama.context_length", 128),
        _number("llama.embedding_length", width),
        _number("llama.block_count", layers),
        _number("llama.feed_forward_length", inner),
        _number("llama.attention.head_count", heads),
        _number("llama.attention.head_count_kv", heads),
        _number("llama.attention.layer_norm_rms_epsilon", 1e-5),
        _number("llama.rope.dimension_count", width // heads),
        _number("general.file_type", 7),
        _string("tokenizer.ggml.model", "llama"),
        _array("tokenizer.ggml.tokens", STRING, [_text(token) for token in tokens]),
        _array("tokenizer.ggml.scores", F32, [struct.pack("<f", -n) for n in range(TOKENS)]),
        _array("tokenizer.ggml.token_type", I32, [struct.pack("<i", kind) for kind in kinds]),
        _number("tokenizer.ggml.bos_token_id", 1),
        _number("tokenizer.ggml.eos_token_id", 2),
        _number("tokenizer.ggml.unknown_token_id", 0),
    ]

    def matrix(rows: int, columns: int, most: int) -> tuple[np.ndarray, int]:
        return (rng.integers(-most, most + 1, (rows, columns)) / HIGHEST).astype(np.float32), TYPE_Q8_0

    def norm(factor: float) -> tuple[np.ndarray, int]:
        return np.full(width, factor, np.float32), TYPE_F32

    tensors = {
        "token_embd": matrix(TOKENS, width, HIGHEST),
        "output_norm": norm(1),
        "output": matrix(TOKENS, width, HIGHEST),
    }
    for n in range(layers):
        block = {
            "attn_norm": norm(0.5),
            "ffn_norm": norm(0.5),
            "attn_q": matrix(width, width, 40),
            "attn_k": matrix(width, width, 40),
            "attn_v": matrix(width, width, 12),
            "attn_output": matrix(width, width, HIGHEST),
            "ffn_gate": matrix(inner, width, 12),
            "ffn_up": matrix(inner, width, 12),
            "ffn_down": matrix(width, inner, HIGHEST),
        }
        tensors |= {f"blk.{n}.{name}": tensor for name, tensor in block.items()}
    infos, data = b"", b""
    for name, (values, kind) in tensors.items():
        data += bytes(-len(data) % ALIGNMENT)
        infos += _text(f"{name}.weight".encode()) + struct.pack("<I", values.ndim)
        infos += struct.pack(f"<{values.ndim}Q", *values.shape[::-1]) + struct.pack("<IQ", kind, len(data))
        data += values.tobytes() if kind == TYPE_F32 else _q8_0(values)
    head = b"GGUF" + struct.pack("<IQQ", VERSION, len(tensors), len(keys)) + b"".join(keys) + infos
    path.write_bytes(head + bytes(-len(head) % ALIGNMENT) + data)
