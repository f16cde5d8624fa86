"""What the person at the terminal reads once everything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where the gateway listens."""

    host: str
    port: int
    control_port: int | None  # None: the same port

    @property
    def reachable_host(self) -> str:
        return _ANY_ADDRESS.get(self.host, self.host)

    @property
    def calls(self) -> str:
        return self._base(self.port)

    @property
    def control(self) -> str:
        return self._base(self.control_port or self.port)

    def _base(self, port: int) -> str:
        host = self.reachable_host
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def summary(place: Place, *, seconds: float, is_ready: bool, made: Mapping[str, str] | None) -> str:
    """URLs, the login, the key and a call to try; `made` is what setup_demo printed, None without a demo."""
    lines = [
        "",
        f"IGW {'is ready' if is_ready else 'runs, but is not ready,'} after {seconds:.1f} s",
        f"  calls      {place.calls}/v1",
        f"  admin      {place.control}/admin/",
        f"  API docs   {place.control}/api/docs",
    ]
    if not is_ready:
        lines.append(f"  not ready  {place.calls}/ready says why")
    if made is not None:
        lines += _demo_lines(place, made)
    return "\n".join([*lines, "Ctrl-C stops everything.", ""])


def _demo_lines(place: Place, made: Mapping[str, str]) -> list[str]:
    key = made.get("api_key")
    lines = [*secret_lines(made)]
    if not key:
        lines.append("  API key    made at the first start; `manage.py create_key --team demo --name N` makes another")
    return [
        *lines,
        "  try it",
        f"    curl -sS {place.calls}/v1/chat/completions -H 'Content-Type: application/json' \\",
        f'      -H "Authorization: Bearer {key or "$IGW_API_KEY"}" \\',
        """      -d '{"model": "demo-chat", "messages": [{"role": "user", "content": "Hello"}]}'""",
    ]


def secret_lines(made: Mapping[str, str]) -> list[str]:
    """The login and the key; they are shown once, and cannot be shown again."""
    lines = [f"  login      admin / {made['admin_password']}"] if "admin_password" in made else []
    return lines + ([f"  API key    {made['api_key']}"] if "api_key" in made else [])
