"""runtime/importer: files into rows, what a file owns, and what it is told when it is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.models import ApiKey, AuditEvent, ConfigRevision, Pool, Team, VendorAccount, Worker
from gateway.protocol.apikeys import prefix_of
from gateway.runtime.builder import ConfigError, build
from gateway.runtime.document import Change, export
from gateway.runtime.edit import Edit, edit
from gateway.runtime.importer import apply_file
from gateway.runtime.keys import issue_key
from gateway.runtime.secrets import resolve, seal, worker_owner
from tests.runtime.configurations import SMALL

pytestmark = pytest.mark.django_db

POOL = "version: 1\npools:\n  - model: m\n    workers: [{name: w1, url: 'http://h'}]\n"


def apply(text: str, name: str = "main.yaml", **options: Any) -> Edit:
    return apply_file(text, name, "tester", **options)


def told(text: str, name: str = "main.yaml", **options: Any) -> list[str]:
    """What is wrong with the file; nothing may have changed."""
    before = export()
    with pytest.raises(ConfigError) as caught:
        apply(text, name, **options)
    assert export() == before
    return [str(problem) for problem in caught.value.problems]


def test_rich_file_becomes_rows_and_a_snapshot(rich: str) -> None:
    assert apply(rich).revision is not None
    snapshot = build(1)
    assert sorted(snapshot.names) == ["deepseek-chat", "deepseek-v3", "deepseek/v3", "gpt-4.1"]
    pool = snapshot.pools["deepseek-v3"]
    assert (pool.rate_limit_per_min, pool.queue.size, pool.history.value, pool.policy.name) == (
        1000,
        64,
        "off",
        "least_requests",
    )
    assert [worker.credential for worker in pool.workers] == ["worker-secret", "a-secret-from-a-file-of-32-characters"]
    assert [worker.credential for worker in snapshot.pools["gpt-4.1"].workers] == ["sk-vendor-from-the-environment"]
    assert sorted(key.name for key in snapshot.keys.values()) == ["app", "ops"]
    assert snapshot.keys["abcdef12"].requests_per_min == 600
    assert "worker-secret" not in "".join(Worker.objects.values_list("secret", flat=True))


def test_file_applied_again_changes_nothing(rich: str) -> None:
    first = apply(rich)
    again = apply(rich)
    assert (again.changes, again.revision) == ([], None)
    assert ConfigRevision.objects.count() == 1
    assert {event.actor for event in AuditEvent.objects.all()} == {"tester"}
    assert first.changes != []


def test_file_changes_what_it_says_and_resets_what_it_leaves_out() -> None:
    apply(POOL.replace("model: m", "model: m\n    rate_limit: 60").replace("'}", "', weight: 3}"))
    change = apply(POOL)
    assert change.changes == [
        Change("update", "pool", "m", {"rate_limit": (60, None)}),
        Change("update", "worker", "m/w1", {"weight": (3, None)}),
    ]


def test_file_removes_what_it_does_not_name_any_more(rich: str) -> None:
    apply(SMALL, "small.yaml")
    apply(rich)
    change = apply("version: 1\n")
    assert {change.action for change in change.changes} == {"delete"}
    assert list(Pool.objects.values_list("model", flat=True)) == ["small"]
    assert (VendorAccount.objects.count(), Team.objects.count(), ApiKey.objects.count()) == (0, 1, 1)


def test_file_removes_a_worker_it_does_not_name_any_more() -> None:
    apply(POOL.replace("}]", "}, {name: w2, url: 'http://h'}]"))
    assert [(c.action, c.object) for c in apply(POOL).changes] == [("delete", "m/w2")]


def test_dry_run_tells_the_difference_and_changes_nothing() -> None:
    change = apply(POOL, dry_run=True)
    assert [(c.action, c.kind, c.object) for c in change.changes] == [
        ("create", "pool", "m"),
        ("create", "worker", "m/w1"),
    ]
    assert (change.revision, Pool.objects.count(), ConfigRevision.objects.count()) == (None, 0, 0)


def test_object_of_another_origin_is_an_error_that_names_the_owner() -> None:
    apply(POOL, "first.yaml")
    assert told(POOL, "second.yaml") == ["second.yaml:3: pools[m]: belongs to 'first.yaml'; --adopt takes it over"]


def test_object_of_another_origin_is_adopted_when_asked() -> None:
    apply(POOL, "first.yaml")
    assert apply(POOL, "second.yaml", adopt=True).changes == [
        Change("update", "pool", "m", {"origin": ("first.yaml", "second.yaml")})
    ]
    assert apply("version: 1", "first.yaml").changes == []
    assert Pool.objects.get().origin == "second.yaml"


def test_file_and_admin_do_not_evict_each_other() -> None:
    apply(POOL)
    with edit("alice", "admin"):
        pool = Pool.objects.create(model="ours")
        Worker.objects.create(pool=pool, name="w1", url="http://h")
    apply(POOL.replace("model: m", "model: m\n    max_in_flight: 3"))
    assert sorted(build(1).pools) == ["m", "ours"]


def test_key_of_another_origin_stays_and_keeps_its_team() -> None:
    team = "version: 1\nteams: [{name: red}]\n"
    apply(team)
    with edit("alice", "admin"):
        issue_key(Team.objects.get(), "hers", origin="admin")
    assert apply(team).changes == []
    assert told("version: 1") == [
        "main.yaml: teams[red]: is not in the file any more, but has keys of another origin: hers"
    ]


def test_account_that_others_use_stays() -> None:
    apply("version: 1\naccounts: [{name: a, base_url: 'http://h'}]\n")
    with edit("alice", "admin"):
        Pool.objects.create(model="ours", account=VendorAccount.objects.get())
    assert told("version: 1") == [
        "main.yaml: accounts[a]: is not in the file any more, but is used by pools of another origin: ours"
    ]


@pytest.mark.parametrize("name", ["admin", "api", "demo", "x" * 201])
def test_file_with_a_name_that_is_no_origin_is_refused(name: str) -> None:
    assert told(POOL, name) == [f"{name}: this name cannot be an origin; rename the file"]


def test_all_problems_are_told_at_once_with_line_object_and_field() -> None:
    text = """\
version: 1
teams:
  - name: red
    keys:
      - {name: app, key: short}
      - {name: lost, key: "env:IGW_TEST_MISSING"}
      - {name: none}
      - {name: soon, key: "a-literal-key-of-more-than-32-characters", expires: tomorrow}
pools:
  - model: m
    polcy: random
    rate_limit: {tokens_per_minute: 5}
    queue: {size: -1}
    timeouts:
      first_byte_s: fast
    workers:
      - {name: w1}
      - {name: w1, url: "http://h"}
      - {name: w2, url: "ftp://h", weight: "7"}
  - {model: 4, workers: 1}
  - {model: n, account: nobody, enabled: 1}
extras: []
"""
    assert told(text) == [
        "main.yaml:5: teams[red].keys[app].key: a key is a text of at least 32 characters",
        "main.yaml:6: teams[red].keys[lost].key: the environment variable IGW_TEST_MISSING is not set",
        "main.yaml:7: teams[red].keys[none].key: is needed: env:NAME, file:PATH, or a text of 32 characters or more",
        "main.yaml:8: teams[red].keys[soon].expires: "
        "expected a date or a time such as 2027-01-31T12:00:00Z, got 'tomorrow'",
        "main.yaml:11: pools[m].polcy: no such field; did you mean policy?",
        "main.yaml:12: pools[m].rate_limit.tokens_per_minute: tokens_per_minute comes with a later release; "
        "set requests_per_minute",
        "main.yaml:13: pools[m].queue.size: -1 is below the least allowed, 0",
        "main.yaml:15: pools[m].timeouts.first_byte_s: expected a number, got 'fast'",
        "main.yaml:17: pools[m].workers[w1].url: is needed",
        "main.yaml:18: pools[m].workers[1]: w1 is listed twice",
        "main.yaml:19: pools[m].workers[w2].weight: expected a whole number, got text",
        "main.yaml:19: pools[m].workers[w2].url: expected an address that begins with http:// or https:// and a host",
        "main.yaml:20: pools[4].model: expected text, got a number; put it in quotes",
        "main.yaml:21: pools[n].enabled: expected true or false, got a number",
        "main.yaml:21: pools[n].account: there is no account 'nobody'",
        "main.yaml:22: extras: no such field; known: version, teams, accounts, pools, groups",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "main.yaml: file: expected `version: 1` and sections such as pools"),
        ("- 1", "main.yaml: file: expected `version: 1` and sections such as pools"),
        ("pools: []", "main.yaml: version: expected 1, got None"),
        ("version: 2", "main.yaml:1: version: expected 1, got 2"),
        ("version: 1\npools: {m: 1}", "main.yaml:2: pools: expected a list, got fields by name"),
        ("version: 1\npools: [m]", "main.yaml:2: pools[0]: expected fields by name, got text"),
        ("version: 1\npools: [{policy: {size: 1}}]", "main.yaml:2: pools[0].model: is needed"),
        ("version: 1\npools: [1", "main.yaml:2: file: not YAML: expected ',' or ']', but got '<stream end>'"),
        (POOL.replace("model: m", "model: m\n    policy: {a: 1}"), "main.yaml:4: pools[m].policy.name: is needed"),
        (
            POOL.replace("w1,", "w1, api_key: 12345678,"),
            "main.yaml:4: pools[m].workers[w1].api_key: expected text, got a number; put it in quotes",
        ),
        (
            POOL.replace("w1,", "w1, api_key: two words,"),
            "main.yaml:4: pools[m].workers[w1].api_key: the secret is not one word of visible ASCII characters",
        ),
        (
            POOL.replace("w1,", "w 1,"),
            "pools[m].workers[w 1].name: Enter a valid “slug” consisting of letters, numbers, underscores or hyphens.",
        ),
        (POOL.replace("model: m", "model: " + "m" * 201), "Ensure this value has at most 200 characters (it has 201)."),
        (
            POOL.replace("w1,", "w1, max_in_flight: 99999999999,"),
            "Ensure this value is less than or equal to 2147483647.",
        ),
    ],
)
def test_file_of_a_wrong_shape_is_refused(text: str, problem: str) -> None:
    assert any(line.endswith(problem) for line in told(text))


def test_yaml_off_is_the_history_mode_and_not_a_boolean() -> None:
    apply(POOL.replace("model: m", "model: m\n    history: off"))
    assert Pool.objects.get().history == "off"


def test_rate_limit_may_be_a_number_or_named() -> None:
    apply(POOL.replace("model: m", "model: m\n    rate_limit: 1000"))
    assert apply(POOL.replace("model: m", "model: m\n    rate_limit: {requests_per_minute: 1000}")).changes == []


def test_given_key_of_any_text_is_found_by_its_hash() -> None:
    apply(SMALL)
    text = "another-literal-key-of-more-than-32-characters"
    assert list(build(1).keys) == [prefix_of(text)]
    assert text not in str(list(ApiKey.objects.values()))


def test_two_keys_of_one_text_are_refused() -> None:
    key = "key: a-literal-key-of-more-than-32-characters"
    text = f"version: 1\nteams:\n  - name: red\n    keys:\n      - {{name: a, {key}}}\n      - {{name: b, {key}}}\n"
    assert told(text) == ["main.yaml:6: teams[red].keys[b].key: the same key as red/a"]


def test_key_may_go_from_one_name_to_another_in_one_file() -> None:
    apply(SMALL)
    change = apply(SMALL.replace("name: app", "name: renamed"))
    assert [(c.action, c.object) for c in change.changes] == [("delete", "green/app"), ("create", "green/renamed")]


def test_variable_of_a_key_changed_changes_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    text = SMALL.replace('"another-literal-key-of-more-than-32-characters"', "env:IGW_TEST_APP_KEY")
    monkeypatch.setenv("IGW_TEST_APP_KEY", "1" * 32)
    apply(text)
    monkeypatch.setenv("IGW_TEST_APP_KEY", "2" * 32)
    apply(text)
    assert list(build(1).keys) == [prefix_of("2" * 32)]


def test_literal_secret_applied_again_is_not_a_change() -> None:
    text = POOL.replace("w1,", "w1, api_key: hush,")
    apply(text)
    assert apply(text).changes == []
    assert apply(text.replace("hush", "other")).changes == [Change("update", "worker", "m/w1", {"api_key": "changed"})]
    assert resolve(Worker.objects.get().secret, worker_owner("m", "w1")) == "other"


def test_token_of_another_worker_is_refused() -> None:
    token = seal("hush", worker_owner("m", "w2"))
    assert told(POOL.replace("w1,", f"w1, api_key: '{token}',")) == [
        "main.yaml:4: pools[m].workers[w1].api_key: the sealed secret belongs to another object; enter it anew"
    ]
