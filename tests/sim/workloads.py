"""What arrives: requests on their own, evenly or in bursts, and chats that share their beginnings."""

from __future__ import annotations

import functools
import math
import random
from dataclasses import dataclass

_BYTES_A_TOKEN = 4
_LETTERS = bytes(97 + each % 26 for each in range(256))
_LONGEST_CHAT = 14_000  # tokens


@dataclass(frozen=True, slots=True)
class Request:
    """One request; lengths in tokens. `shared` is the part of the prompt that its group has in common."""

    at_s: float
    prompt: int
    output: int
    group: int | None = None
    shared: int = 0
    conversation: int | None = None
    history: int = 0


@dataclass(frozen=True, slots=True)
class Burst:
    """`high` times the rate for the first `high_s` of every `every_s`, `low` times in between."""

    high: float = 2.0
    every_s: float = 30.0
    high_s: float = 5.0
    low: float = 0.8


def independent(number: int, per_s: float, seed: int, burst: Burst | None = None) -> list[Request]:
    """Requests that have nothing in common."""
    chance = random.Random(seed)
    now, requests = 0.0, []
    for _ in range(number):
        rate = per_s
        if burst is not None:
            rate *= burst.high if now % burst.every_s < burst.high_s else burst.low
        now += chance.expovariate(rate)
        requests.append(Request(now, _length(chance, 400, 0.9, 16, 8000), _output(chance)))
    return requests


def chats(number: int, per_s: float, seed: int, groups: int = 80, turns: int = 5) -> list[Request]:
    """Conversations of some turns, each with one of the system prompts, a few of which most have."""
    chance = random.Random(seed)
    popularity = [1 / (each + 1) ** 1.1 for each in range(groups)]
    lengths = [chance.randrange(800, 3200) for _ in range(groups)]
    requests: list[Request] = []
    begins, conversation = 0.0, 0
    while len(requests) < number * 1.15:  # more than asked: the last ones are cut off before their later turns
        begins += chance.expovariate(per_s / turns)
        group = chance.choices(range(groups), popularity)[0]
        now, history = begins, 0
        while True:
            user, output = _length(chance, 60, 0.8, 5, 1500), _output(chance)
            if lengths[group] + history + user > _LONGEST_CHAT:
                break
            prompt = lengths[group] + history + user
            requests.append(Request(now, prompt, output, group, lengths[group], conversation, history))
            history += user + output
            now += output * 0.02 + chance.expovariate(1 / 20)
            if chance.random() < 1 / turns:
                break
        conversation += 1
    return sorted(requests, key=lambda request: request.at_s)[:number]


def text_of(request: Request) -> bytes:
    """The prompt: the group's system prompt, then a text that grows with the conversation. Empty without a group."""
    if request.group is None or request.conversation is None:
        return b""
    system = _text(request.group)[: request.shared * _BYTES_A_TOKEN]
    mark = b"conversation %012d " % request.conversation
    rest = (request.prompt - request.shared) * _BYTES_A_TOKEN
    return b"".join((system, mark[:rest], _text(-1)[: max(0, rest - len(mark))]))


@functools.cache
def _text(number: int) -> bytes:
    return random.Random(number).randbytes(_LONGEST_CHAT * _BYTES_A_TOKEN).translate(_LETTERS)


def _output(chance: random.Random) -> int:
    return _length(chance, 150, 0.8, 4, 1500)


def _length(chance: random.Random, middle: int, spread: float, least: int, most: int) -> int:
    return int(min(most, max(least, chance.lognormvariate(math.log(middle), spread))))
