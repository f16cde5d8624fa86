"""runtime/secrets: where secrets come from, and that a sealed one opens for its owner only."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from gateway.runtime.secrets import SecretError, is_sealed, reseal, resolve, seal, store

OLD, NEW = b"o" * 32, b"n" * 32


def test_sealed_secret_opens_for_its_owner() -> None:
    stored = seal("hush", "account:a")
    assert is_sealed(stored)
    assert "hush" not in stored
    assert resolve(stored, "account:a") == "hush"


def test_sealed_secret_of_another_owner_is_refused() -> None:
    with pytest.raises(SecretError, match="belongs to another object"):
        resolve(seal("hush", "account:a"), "account:b")


@pytest.mark.parametrize("stored", ["sealed:", "sealed:x", "sealed:\x00é", "plain", ""])
def test_text_that_is_neither_reference_nor_token_is_refused(stored: str) -> None:
    with pytest.raises(SecretError):
        resolve(stored, "account:a")


def test_secret_sealed_by_an_old_key_opens_and_is_sealed_anew(settings: Settings) -> None:
    settings.SEAL_KEYS = [OLD]
    stored = seal("hush", "account:a")
    settings.SEAL_KEYS = [NEW, OLD]
    renewed = reseal(stored, "account:a")
    settings.SEAL_KEYS = [NEW]
    assert resolve(renewed, "account:a") == "hush"
    with pytest.raises(SecretError, match="does not open with any of IGW_SECRET_KEYS"):
        resolve(stored, "account:a")


def test_reseal_leaves_references_alone() -> None:
    assert reseal("env:NAME", "account:a") == "env:NAME"


def test_store_keeps_references_and_a_token_of_the_same_secret() -> None:
    stored = seal("hush", "account:a")
    assert [store(given, "account:a") for given in ("", "env:A", "file:/a", stored)] == ["", "env:A", "file:/a", stored]
    assert store("hush", "account:a", stored) == stored
    assert resolve(store("other", "account:a", stored), "account:a") == "other"


def test_variable_and_file_are_read_without_their_line_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("IGW_TEST_SECRET", "from-env\n")
    (tmp_path / "secret").write_text("from-file\n")
    assert resolve("env:IGW_TEST_SECRET", "") == "from-env"
    assert resolve(f"file:{tmp_path / 'secret'}", "") == "from-file"


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        ("env:IGW_TEST_SECRET", "the environment variable IGW_TEST_SECRET is not set"),
        ("env:A B", "env: is followed by the name of a variable"),
        ("env:IGW_SECRET_KEYS", "the variable IGW_SECRET_KEYS holds a secret of the gateway itself"),
        ("file:secret", "file: is followed by an absolute path"),
        ("file:/nowhere/secret", "the file /nowhere/secret cannot be read (No such file or directory)"),
        ("file:/dev/zero", "the file /dev/zero is not one word of visible ASCII characters"),
    ],
)
def test_reference_that_leads_nowhere_is_told_in_a_sentence(reference: str, sentence: str) -> None:
    with pytest.raises(SecretError) as caught:
        resolve(reference, "")
    assert str(caught.value) == sentence


def test_file_with_the_gateways_own_keys_is_refused(settings: Settings, tmp_path: Path) -> None:
    settings.STATE_DIR = tmp_path
    (tmp_path / "secret_keys").write_text("k" * 32)
    (tmp_path / "link").symlink_to("secret_keys")
    with pytest.raises(SecretError, match="of the gateway itself"):
        resolve(f"file:{tmp_path}/link", "")


@pytest.mark.parametrize("text", ["two words", "line\r\nx-injected: 1", "ключ", "x" * 20_000])
def test_secret_that_cannot_stand_in_a_header_is_refused_without_showing_it(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "IGW_TEST_SECRET", text)
    for ask in (lambda: seal(text, ""), lambda: resolve("env:IGW_TEST_SECRET", "")):
        with pytest.raises(SecretError) as caught:
            ask()
        assert text not in str(caught.value)
