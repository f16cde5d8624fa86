"""The backends by the name that a pool or an account gives. A new one is a module beside this and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gateway.vendors.base import Adapter
from gateway.vendors.openai import OpenAIAdapter

ADAPTERS: Mapping[str, Adapter] = MappingProxyType({"openai": OpenAIAdapter()})
