"""What is not Python: the compose file names what exists, the locks name no host, the scripts are sound."""

from __future__ import annotations

import importlib
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import get_commands

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
OURS = {name: service for name, service in COMPOSE["services"].items() if "build" in service}
SETTINGS_VARIABLES = set(
    re.findall(r'"(IGW_[A-Z_]+|DATABASE_URL|REDIS_URL)"', (ROOT / "gateway/settings.py").read_text())
)


def test_compose_has_the_services_of_a_whole_gateway() -> None:
    assert set(COMPOSE["services"]) == {"gateway", "worker", "beat", "migrate", "postgres", "redis"}
    assert set(OURS) == {"gateway", "worker", "beat", "migrate"}


@pytest.mark.parametrize("name", OURS)
def test_compose_command_names_what_exists(name: str) -> None:
    program, *arguments = OURS[name]["command"]
    if program == "python":
        assert arguments[0] == "manage.py"
        assert arguments[1] in get_commands()
    else:
        assert [program, arguments[0]] == ["celery", "-A"]
        assert importlib.import_module(arguments[1]).app.main


@pytest.mark.parametrize("name", OURS)
def test_compose_environment_is_read_by_the_settings(name: str) -> None:
    assert set(OURS[name]["environment"]) - SETTINGS_VARIABLES == set()


@pytest.mark.parametrize("name", sorted(set(COMPOSE["services"]) - {"migrate"}))
def test_compose_service_that_stays_has_a_healthcheck(name: str) -> None:
    assert {"test", "interval", "timeout"} <= set(COMPOSE["services"][name]["healthcheck"])


def test_compose_secrets_have_no_default() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    secrets = set(re.findall(r"\$\{((?:\w+_PASSWORD|IGW_SECRET_KEYS)[^}]*)\}", text))
    assert {re.split(r"\W", secret)[0] for secret in secrets} == {
        "POSTGRES_PASSWORD",
        "REDIS_PASSWORD",
        "IGW_SECRET_KEYS",
    }
    assert all(":?" in secret for secret in secrets)


def test_compose_stop_waits_longer_than_the_grace_time() -> None:
    gateway = OURS["gateway"]
    assert int(gateway["stop_grace_period"].rstrip("s")) > int(gateway["environment"]["IGW_GRACE_S"])


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_lock_pins_by_hash_and_names_no_host(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "://" not in text
    pins = re.findall(r"^[\w.\-\[\]]+==\S+.*?(?=^\w|\Z)", text, re.M | re.S)
    assert len(pins) > 40
    assert [pin.split()[0] for pin in pins if "--hash=sha256:" not in pin] == []


def test_makefile_without_a_target_prints_the_targets() -> None:
    run = subprocess.run(["make", "-C", ROOT, "--no-print-directory"], capture_output=True, text=True, check=True)
    listed = {line.split()[1] for line in run.stdout.splitlines()}
    assert {"run", "test", "check", "bench", "sim", "lock", "help", "clean"} == listed


@pytest.mark.parametrize("script", ["tools/browser.sh", ".ci/run"])
def test_script_parses_and_is_executable(script: str) -> None:
    path = ROOT / script
    subprocess.run([path.read_text().splitlines()[0].split()[-1].rpartition("/")[2], "-n", path], check=True)
    assert path.stat().st_mode & 0o111 == 0o111
