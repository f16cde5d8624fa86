"""The commands that read and write configuration: apply, export, create_key, verify_audit, setup_demo."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from gateway.models import ApiKey, AuditEvent, Pool, Team
from gateway.protocol.apikeys import prefix_of
from gateway.runtime.builder import build

pytestmark = pytest.mark.django_db
FILE = """\
version: 1
teams:
  - {name: red, keys: [{name: app, key: "a-literal-key-of-more-than-32-characters", models: [m, later]}]}
pools:
  - model: m
    workers: [{name: w1, url: "http://127.0.0.1:9101", weight: 2}]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "main.yaml"
    path.write_text(FILE)
    return path


def run(*arguments: Any) -> tuple[list[str], list[str]]:
    """The lines that a command writes to its output and to its error output."""
    out, err = io.StringIO(), io.StringIO()
    call_command(*map(str, arguments), stdout=out, stderr=err)
    return out.getvalue().splitlines(), err.getvalue().splitlines()


def test_apply_prints_the_difference_and_the_revision(file: Path) -> None:
    out, err = run("apply", file)
    revision = AuditEvent.objects.first().revision_id
    assert out == [
        "+ team red",
        "+ key red/app",
        "    prefix: changed",
        "    digest: changed",
        "    last4: changed",
        "+ pool m",
        "+ worker m/w1",
        f"4 changes, revision {revision}.",
    ]
    assert err == ["warning: teams[red].keys[app].models: there is no pool, group or account for later"]
    assert run("apply", file)[0] == ["No difference."]


def test_apply_dry_run_prints_signs_and_values_and_changes_nothing(file: Path) -> None:
    run("apply", file)
    file.write_text(FILE.replace("weight: 2", "max_in_flight: 5").replace("{name: red, keys:", "{name: blue, keys:"))
    assert run("apply", file, "--dry-run")[0] == [
        "- team red",
        "- key red/app",
        "    prefix: changed",
        "    digest: changed",
        "    last4: changed",
        "+ team blue",
        "+ key blue/app",
        "    prefix: changed",
        "    digest: changed",
        "    last4: changed",
        "~ worker m/w1",
        "    weight: 2 -> default",
        "    max_in_flight: default -> 5",
        "5 changes; nothing was changed (dry run).",
    ]
    assert build(0).pools["m"].workers[0].weight == 2


def test_apply_of_a_wrong_file_lists_lines_and_fails(file: Path) -> None:
    file.write_text(FILE.replace("weight: 2", "weight: 0").replace("model: m", "modell: m"))
    with pytest.raises(CommandError) as caught:
        run("apply", file)
    assert str(caught.value).splitlines() == [
        "main.yaml:5: pools[0].modell: no such field; did you mean model?",
        "main.yaml:5: pools[0].model: is needed",
        "Nothing was changed.",
    ]
    assert (Pool.objects.count(), Team.objects.count()) == (0, 0)


@pytest.mark.parametrize(("content", "reason"), [(None, "No such file or directory"), (b"\xff", "not UTF-8")])
def test_apply_of_an_unreadable_file_fails(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "x.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CommandError, match=f"{path} cannot be read: {reason}"):
        run("apply", path)


def test_apply_adopts_when_asked(file: Path) -> None:
    run("apply", file)
    other = file.rename(file.with_name("other.yaml"))
    with pytest.raises(CommandError, match=r"belongs to 'main\.yaml'"):
        run("apply", other)
    run("apply", other, "--adopt")
    assert Pool.objects.get().origin == "other.yaml"


def test_export_is_what_apply_accepts(file: Path) -> None:
    run("apply", file)
    fingerprint = build(0).fingerprint
    file.write_text("\n".join(run("export")[0]))
    Pool.objects.all().delete()
    Team.objects.all().delete()
    run("apply", file)
    assert build(0).fingerprint == fingerprint


def test_create_key_prints_the_key_alone_on_the_last_line() -> None:
    arguments = ["--operator", "--requests-per-minute", "60", "--expires", "2030-01-31", "--models", "a,b"]
    out, err = run("create_key", "--team", "t", "--name", "n", *arguments)
    key = build(0).keys[prefix_of(out[-1])]
    assert (key.team, key.name, key.models, key.requests_per_min) == ("t", "n", frozenset({"a", "b"}), 60)
    assert (key.is_operator, key.expires_s) == (True, 1896048000.0)
    assert err == ["warning: teams[t].keys[n].models: there is no pool, group or account for a, b"]
    assert AuditEvent.objects.filter(kind="key", object="t/n", actor__startswith="cli:").count() == 1


def test_create_key_of_every_model_in_a_team_there_is() -> None:
    Team.objects.create(name="t", origin="main.yaml")
    out, _ = run("create_key", "--team", "t", "--name", "n")
    assert build(0).keys[prefix_of(out[-1])].models is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--name", "n"], "Key \\(team_id, name\\)=\\(.*, n\\) already exists."),
        (["--name", "a b"], "is not a name"),
        (["--name", "m", "--requests-per-minute", "0"], "greater than or equal to 1"),
    ],
)
def test_create_key_that_cannot_be_fails(arguments: list[str], message: str) -> None:
    run("create_key", "--team", "t", "--name", "n")
    with pytest.raises(CommandError, match=message):
        run("create_key", "--team", "t", *arguments)
    assert ApiKey.objects.count() == 1


def test_verify_audit_counts_and_finds_a_break(file: Path) -> None:
    assert run("verify_audit")[0] == ["OK 0 events, head none"]
    run("apply", file)
    last = AuditEvent.objects.order_by("pk").last()
    assert run("verify_audit")[0] == [f"OK 4 events, head {last.chain}"]
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")  # no triggers
        cursor.execute("UPDATE gateway_auditevent SET object = 'x' WHERE id = %s", [last.pk])
    with pytest.raises(CommandError, match=f"broken at event {last.pk}, after 3 good ones"):
        run("verify_audit")


def test_setup_demo_prints_login_and_key_once() -> None:
    out, _ = run("setup_demo", "--worker", "http://127.0.0.1:1", "--worker", "http://127.0.0.1:2")
    assert [line.split("=")[0] for line in out] == ["admin_password", "api_key"]
    assert prefix_of(out[1].split("=")[1]) in build(0).keys
    assert run("setup_demo", "--worker", "http://127.0.0.1:1") == ([], [])
