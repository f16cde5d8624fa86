"""Every log call of ours gives its fields in the one way that the formatter shows."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_log_calls_give_their_fields_as_fields() -> None:
    lost = []
    for package in ("gateway", "conversations", "workers", "admin_ui"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if not (isinstance(node, ast.keyword) and node.arg == "extra" and isinstance(node.value, ast.Dict)):
                    continue
                if [key.value for key in node.value.keys if isinstance(key, ast.Constant)] != ["fields"]:
                    lost.append(f"{path.relative_to(ROOT)}:{node.value.lineno}")
    assert lost == []
