"""What a call needs of a worker, what policies and rules may look at, and what a worker says it can do.

A worker without profiles serves everything its pool is asked. With profiles, one row must satisfy every fact of the
requirement; facts of different rows are never combined.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass


class Priority(enum.IntEnum):
    """Who goes first where calls wait; the lower number."""

    INTERACTIVE = 0
    BATCH = 1


@dataclass(frozen=True, slots=True)
class Requirement:
    """Facts of one call that a profile row is held against. `model` is the name that the worker will be asked for.

    `inputs` and `outputs` are modalities (text, image, audio, video); `content_form` is how messages hold their
    content, `string` or `parts`; `batch_size` counts the items of a batch.
    """

    service: str
    model: str
    is_streaming: bool
    inputs: frozenset[str] = frozenset({"text"})
    outputs: frozenset[str] = frozenset({"text"})
    content_form: str = "string"
    audio_format: str | None = None
    task: str | None = None
    batch_size: int = 1


@dataclass(frozen=True, slots=True)
class Profile:
    """One row of what a worker can do. Empty sets and None mean any."""

    services: frozenset[str] = frozenset()
    models: frozenset[str] = frozenset()
    streaming: bool | None = None
    inputs: frozenset[str] = frozenset()
    outputs: frozenset[str] = frozenset()
    content_forms: frozenset[str] = frozenset()
    audio_formats: frozenset[str] = frozenset()
    tasks: frozenset[str] = frozenset()
    max_batch_size: int | None = None

    @property
    def reads_facts(self) -> bool:
        """Whether it asks for more than service, model and stream mode."""
        return bool(self.inputs or self.outputs or self.content_forms or self.audio_formats)

    def satisfies(self, need: Requirement) -> bool:
        return (
            (not self.services or need.service in self.services)
            and (not self.models or need.model in self.models)
            and (self.streaming is None or self.streaming == need.is_streaming)
            and (not self.inputs or need.inputs <= self.inputs)
            and (not self.outputs or need.outputs <= self.outputs)
            and (not self.content_forms or need.content_form in self.content_forms)
            and (not self.audio_formats or need.audio_format is None or need.audio_format in self.audio_formats)
            and (not self.tasks or need.task is None or need.task in self.tasks)
            and (self.max_batch_size is None or need.batch_size <= self.max_batch_size)
        )


def serves(profiles: Sequence[Profile], need: Requirement) -> bool:
    """Whether one row satisfies every fact; without rows everything is served."""
    return not profiles or any(profile.satisfies(need) for profile in profiles)


@dataclass(frozen=True, slots=True)
class Facts:
    """What a request says of itself, read only where somebody asks.

    `prompt` is everything before the answer, so that what two prompts have in common at their beginning they have in
    common here: text as the client wrote it (`unit` 1), or token ids of 4 bytes each (`unit` 4). `turn` is a digest of
    the conversation up to and with its last user message: the same while tools are called.
    """

    prompt: bytes = b""
    unit: int = 1
    input_tokens: int = 1  # estimated, at least 1
    max_tokens: int | None = None
    inputs: frozenset[str] = frozenset({"text"})
    outputs: frozenset[str] = frozenset({"text"})
    content_form: str = "string"
    audio_format: str | None = None
    has_tools: bool = False
    effort: str | None = None  # reasoning effort as the client asked for it
    turn: bytes = b""
    is_continuation: bool = False  # something came after the last user message: a tool's answer, mostly
    text: str = (
        ""  # what the user wrote last, for the intent classifier; cut to its first 3000 and last 1000 characters
    )
    field: Callable[[str], str | None] = lambda name: None  # a top-level text or number of the body


NO_FACTS = Facts()


class Need:
    """One call as routing sees it. `size` is the number of places it takes (items of a batch)."""

    __slots__ = ("_facts", "_read", "conversation", "priority", "requirement", "routing_key", "size", "target", "team")

    def __init__(
        self,
        requirement: Requirement,
        read: Callable[[], Facts] | None = None,
        *,
        routing_key: str | None = None,
        conversation: str | None = None,
        target: str | None = None,  # the name of the one worker that may serve it
        team: int = 0,
        priority: Priority = Priority.INTERACTIVE,
        size: int = 1,
    ) -> None:
        self.requirement = requirement
        self.routing_key = routing_key
        self.conversation = conversation
        self.target = target
        self.team = team
        self.priority = priority
        self.size = size
        self._read = read
        self._facts: Facts | None = None

    @property
    def facts(self) -> Facts:
        """What the request says of itself, read at the first question."""
        if self._facts is None:
            self._facts = NO_FACTS if self._read is None else self._read()
        return self._facts
