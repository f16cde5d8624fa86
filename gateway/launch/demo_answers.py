"""What a demo worker says: OpenAI's answer shapes around friendly, deterministic content. Pure but for time and ids."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import random
import re
import struct
import time
import uuid
import wave
from collections.abc import Iterator
from typing import Any

_DIMENSIONS = 16
_MAX_DIMENSIONS = 4096
_RATE_HZ = 24_000
_TONE_HZ = 440.0
_SPEECH_S_PER_CHARACTER, _MAX_SPEECH_S = 0.06, 30.0


class BadCall(ValueError):
    """The client's mistake, in a sentence for it."""


def error(message: str, kind: str = "invalid_request_error") -> dict[str, Any]:
    """OpenAI's error object."""
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def models(model: str) -> dict[str, Any]:
    """The list of the one model."""
    return {"object": "list", "data": [{"id": model, "object": "model", "created": 0, "owned_by": "igw-demo"}]}


# ---- chat -----------------------------------------------------------------------------------------------------------


def chat(asked: dict[str, Any], name: str) -> dict[str, Any]:
    """A whole chat completion."""
    tokens, finish, usage = _reply(asked, name)
    message = {"role": "assistant", "content": "".join(tokens), "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    return {**_frame(asked, "chat.completion"), "choices": [choice], "usage": usage}


def chat_chunks(asked: dict[str, Any], name: str) -> Iterator[bytes]:
    """The data of each event of a streamed chat completion, the last one `[DONE]`."""
    tokens, finish, usage = _reply(asked, name)
    options = asked.get("stream_options")
    wants_usage = isinstance(options, dict) and options.get("include_usage") is True
    frame = _frame(asked, "chat.completion.chunk") | ({"usage": None} if wants_usage else {})

    def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return json.dumps({**frame, "choices": [choice]}).encode()

    yield chunk({"role": "assistant", "content": ""})
    for token in tokens:
        yield chunk({"content": token})
    yield chunk({}, finish)
    if wants_usage:
        yield json.dumps({**frame, "choices": [], "usage": usage}).encode()
    yield b"[DONE]"


def _frame(asked: dict[str, Any], kind: str) -> dict[str, Any]:
    model = asked.get("model")
    return {"id": f"chatcmpl-{uuid.uuid4().hex}", "object": kind, "created": int(time.time()), "model": model}


def _reply(asked: dict[str, Any], name: str) -> tuple[list[str], str, dict[str, Any]]:
    """The tokens (words with the blank before them), why they end, and the usage."""
    said = [_text(message) for message in _messages(asked)]
    words = f'Hello from {name}. You said: "{said[-1]}" There is no model behind this answer, but the way here is real.'
    tokens = re.findall(r"\s*\S+", words)
    limit = asked.get("max_completion_tokens", asked.get("max_tokens"))
    finish = "stop"
    if isinstance(limit, int) and 0 < limit < len(tokens):
        tokens, finish = tokens[:limit], "length"
    prompt = sum(len(text.split()) for text in said)
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": len(tokens),
        "total_tokens": prompt + len(tokens),
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    return tokens, finish, usage


def _messages(asked: dict[str, Any]) -> list[dict[str, Any]]:
    messages = asked.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
        raise BadCall("messages: a list of one message or more is expected")
    return messages


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        return " ".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


# ---- embeddings and speech ------------------------------------------------------------------------------------------


def embeddings(asked: dict[str, Any]) -> dict[str, Any]:
    """A unit vector a text, the same for the same text; as base64 of float32 where asked for, as the SDK does."""
    given = asked.get("input")
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise BadCall("input: a text or a list of texts is expected")
    dimensions = asked.get("dimensions", _DIMENSIONS)
    if not isinstance(dimensions, int) or not 1 <= dimensions <= _MAX_DIMENSIONS:
        raise BadCall(f"dimensions: a whole number from 1 to {_MAX_DIMENSIONS} is expected")
    is_packed = asked.get("encoding_format") == "base64"
    vectors = (_vector(text, dimensions) for text in texts)
    data = [
        {"object": "embedding", "index": index, "embedding": _packed(vector) if is_packed else vector}
        for index, vector in enumerate(vectors)
    ]
    tokens = sum(len(text.split()) for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": asked.get("model"), "usage": usage}


def _vector(text: str, dimensions: int) -> list[float]:
    source = random.Random(hashlib.sha256(text.encode(errors="surrogatepass")).digest())
    values = [source.gauss(0, 1) for _ in range(dimensions)]
    length = math.hypot(*values) or 1.0
    return [value / length for value in values]


def _packed(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def speech(asked: dict[str, Any]) -> bytes:
    """A WAV file with a tone as long as the text would take to say."""
    text = asked.get("input")
    if not isinstance(text, str) or not text:
        raise BadCall("input: a text is expected")
    samples = int(min(len(text) * _SPEECH_S_PER_CHARACTER, _MAX_SPEECH_S) * _RATE_HZ)
    tone = (int(8000 * math.sin(2 * math.pi * _TONE_HZ * n / _RATE_HZ)) for n in range(samples))
    file = io.BytesIO()
    with wave.open(file, "wb") as wav:
        wav.setnchannels(1)
        wav.setsampwidth(2)
        wav.setframerate(_RATE_HZ)
        wav.writeframes(struct.pack(f"<{samples}h", *tone))
    return file.getvalue()
