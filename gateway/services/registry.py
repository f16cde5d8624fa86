"""The services by name. A new one is a module beside this and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gateway.services import text
from gateway.services.base import Service
from gateway.services.facts import chat_facts

_ALL = (
    Service(text.CHAT, text.CHAT_PATH, text.read_chat, text.chat_body, text.chat_usage, text.ChatStream, chat_facts),
)

SERVICES: Mapping[str, Service] = MappingProxyType({service.name: service for service in _ALL})
