"""The secrets that the configurations of these tests refer to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.configurations import RICH


@pytest.fixture
def rich(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The rich configuration with its variables set and its file there."""
    (tmp_path / "secret").write_text("a-secret-from-a-file-of-32-characters\n")
    monkeypatch.setenv("IGW_TEST_APP_KEY", "sk-igw-abcdef12-" + "s" * 43)
    monkeypatch.setenv("IGW_TEST_VENDOR_KEY", "sk-vendor-from-the-environment")
    return RICH.replace("FILE", str(tmp_path / "secret"))
