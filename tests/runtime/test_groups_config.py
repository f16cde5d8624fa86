"""Groups from rows to the snapshot, through files and exports, and all that one can have wrong."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from gateway.models import Group, Pool, Team, VendorAccount, Worker
from gateway.routing.references import account_pool
from gateway.routing.snapshot import ErrorClasses, GroupSpec, MemberSpec, RuleSpec, Strategy
from gateway.runtime.builder import ConfigError, build, check
from gateway.runtime.document import Change, export
from gateway.runtime.importer import apply_file
from gateway.runtime.records import MEMBER, RULE
from gateway.runtime.rows import read_rows

pytestmark = pytest.mark.django_db

FILE = """\
version: 1
pools:
  - {model: m, workers: [{name: w1, url: "http://h"}]}
groups:
  - {id: g, members: [m]}
"""


def make(**columns: Any) -> Group:
    """A group g beside the pools m and n and the account a."""
    for model in ("m", "n"):
        Worker.objects.create(pool=Pool.objects.create(model=model), name="w1", url="http://h")
    VendorAccount.objects.create(name="a", base_url="http://h")
    return Group.objects.create(**({"name": "g", "members": ["m", "n"]} | columns))


def problems() -> list[tuple[str, str]]:
    return [(problem.path, problem.message) for problem in check(read_rows(), 0).problems]


def apply(text: str, name: str = "main.yaml", **options: Any) -> list[Change]:
    return apply_file(text, name, "tester", **options).changes


def test_group_of_a_rich_file_becomes_its_spec(rich: str) -> None:
    apply(rich)
    groups = build(1).groups
    assert sorted(groups) == ["fast", "spare"]
    assert dataclasses.replace(groups["fast"], created_s=0) == GroupSpec(
        id="fast",
        strategy=Strategy.WEIGHT,
        members=(MemberSpec("deepseek-v3"), MemberSpec("open/qwen/32b", 3), MemberSpec("group/spare")),
        rules=(
            RuleSpec("open/qwen/32b", min_tokens=8000, has_tools=True, min_effort="medium"),
            RuleSpec("group/spare", header="x-app: batch", keys=frozenset({"red/ops"}), teams=frozenset({"blue"})),
            RuleSpec("deepseek-v3", has_images=False, has_audio=False, intent="code"),
        ),
        error_classes=ErrorClasses.JACKDAW_STRICT,
        max_attempts=4,
        keeps_conversations=False,
        intent_model="open/tiny",
        intents={"code": "writing, or mending code", "talk": "everything else"},
    )
    assert (groups["spare"].strategy, groups["spare"].picked) == (Strategy.MANUAL, "gpt-4.1")


def test_account_models_that_enabled_groups_name_are_pools_without_being_names(rich: str) -> None:
    apply(rich)
    snapshot = build(1)
    expected = {name: account_pool(snapshot.accounts["open"], name[5:]) for name in ("open/qwen/32b", "open/tiny")}
    assert {name: snapshot.pools[name] for name in snapshot.pools.keys() - snapshot.names.keys()} == expected
    Group.objects.filter(name="fast").update(is_enabled=False)
    assert sorted(build(1).pools) == ["deepseek-v3", "gpt-4.1"]


def test_pool_goes_before_the_account_model_of_its_name() -> None:
    make(members=["a/x"])
    pool = Pool.objects.create(model="a/x")
    Worker.objects.create(pool=pool, name="w1", url="http://h")
    assert build(1).pools["a/x"].id == pool.pk


@pytest.mark.parametrize(
    ("columns", "path", "message"),
    [
        ({"name": "g 1"}, "id", "'g 1' is not a name: letters, digits, - and _ (100 at most)"),
        ({"strategy": "best"}, "strategy", "Value 'best' is not a valid choice."),
        ({"error_classes": "all"}, "error_classes", "Value 'all' is not a valid choice."),
        ({"max_attempts": 101}, "max_attempts", "Ensure this value is less than or equal to 100."),
        ({"members": {}}, "members", 'expected a list such as [m, {"ref": "n", "weight": 2}], got {}'),
        ({"members": []}, "members", "an enabled group needs members"),
        ({"members": ["m", ""]}, "members[1].ref", "is needed"),
        ({"members": ["m", 4]}, "members[1]", "expected fields by name, got 4"),
        ({"members": ["m", {"ref": "m"}]}, "members[1]", "'m' is a member already"),
        ({"members": [{"ref": "m", "weight": 0}]}, "members[0].weight", "0 is below the least allowed, 1"),
        (
            {"members": [{"ref": "m", "weight": "2"}]},
            "members[0].weight",
            "expected a whole number, got '2'",
        ),
        ({"members": [{"ref": "m", "share": 2}]}, "members[0].share", "no such field; known: ref, weight"),
        ({"picked": "a/x"}, "picked", "'a/x' is no member of this group"),
        ({"rules": {}}, "rules", "expected a list of rules, got {}"),
        ({"rules": [{"has_tools": True}]}, "rules[0].member", "is needed"),
        ({"rules": [{"member": "a/x"}]}, "rules[0].member", "'a/x' is no member of this group"),
        ({"rules": [{"member": "m", "min_tokens": "9"}]}, "rules[0].min_tokens", "expected a whole number, got '9'"),
        ({"rules": [{"member": "m", "has_audio": 1}]}, "rules[0].has_audio", "expected true or false, got 1"),
        ({"rules": [{"member": "m", "teams": "t"}]}, "rules[0].teams", "expected a list of names, got 't'"),
        (
            {"rules": [{"member": "m", "min_effort": "max"}]},
            "rules[0].min_effort",
            "'max' is none of low, medium, high",
        ),
        (
            {"rules": [{"member": "m", "intent": "x"}], "intent_model": "m", "intents": {"code": "c"}},
            "rules[0].intent",
            "'x' is none of the intents: code",
        ),
        (
            {"rules": [{"member": "m", "intent": "code"}], "intents": {"code": "c"}},
            "intent_model",
            "is needed by rules that look at the intent",
        ),
        ({"intents": {"a": 1}}, "intents", "expected texts by name, got {'a': 1}"),
        ({"intent_model": "group/g"}, "intent_model", "'group/g' is no pool and no model of an account"),
        ({"intent_model": "a/"}, "intent_model", "'a/' is no pool and no model of an account"),
    ],
)
def test_group_with_a_wrong_column_is_told_by_path(columns: dict[str, Any], path: str, message: str) -> None:
    make(**columns)
    assert problems() == [(f"groups[{columns.get('name', 'g')}].{path}", message)]


@pytest.mark.parametrize(
    ("member", "message"),
    [
        ("nobody", "there is no pool 'nobody'; expected a pool's name, account/model-id or group/id"),
        ("b/x", "there is no account 'b'"),
        ("a/", "'a/' lacks a part; expected account/model-id or group/id"),
        ("group/h", "there is no enabled group 'h'"),
    ],
)
def test_member_that_there_is_not_is_told_by_its_row(member: str, message: str) -> None:
    make(members=["m", member])
    assert problems() == [("groups[g].members[1]", message)]


def test_groups_in_circles_and_too_deep_are_told() -> None:
    make(members=["group/h"])
    Group.objects.create(name="h", members=["group/g"], is_enabled=False)
    assert problems() == [
        ("groups[g].members", "leads back to itself: g > h > g"),
        ("groups[h].members", "leads back to itself: h > g > h"),
    ]
    Group.objects.filter(name="h").update(members=["m"])
    assert problems() == []
    for number in range(8):
        Group.objects.create(name=f"n{number}", members=[f"group/n{number + 1}" if number < 7 else "group/g"])
    assert [path for path, _ in problems()] == ["groups[n0].members", "groups[n1].members"]


def test_disabled_members_are_members_still() -> None:
    make(members=["m", "group/h"])
    Group.objects.create(name="h", members=["n"], is_enabled=False)
    Pool.objects.update(is_enabled=False)
    assert problems() == []
    assert list(build(1).groups) == ["g"]


def test_disabled_group_is_checked_and_left_out() -> None:
    make(is_enabled=False, members=[], max_attempts=0)
    assert problems() == [("groups[g].max_attempts", "Ensure this value is greater than or equal to 1.")]
    Group.objects.update(max_attempts=None)
    assert dict(build(1).groups) == {}


def test_strangers_in_rules_and_rules_for_everything_are_only_warnings() -> None:
    make(rules=[{"member": "m", "teams": ["t"], "keys": ["t/k"]}, {"member": "n"}])
    checked = check(read_rows(), 0)
    assert checked.problems == []
    assert [str(warning) for warning in checked.warnings] == [
        "groups[g].rules[0].teams: there is no team t",
        "groups[g].rules[0].keys: there is no key t/k",
        "groups[g].rules[1]: has no condition and holds for every call",
    ]


def test_records_have_the_fields_of_what_they_become() -> None:
    assert [part.name for part in MEMBER] == [field.name for field in dataclasses.fields(MemberSpec)]
    assert [part.name for part in RULE] == [field.name for field in dataclasses.fields(RuleSpec)]


@pytest.mark.parametrize(
    "change",
    [
        {"strategy": "rotate"},
        {"members": ["n", "m"]},
        {"members": [{"ref": "m", "weight": 2}, "n"]},
        {"rules": [{"member": "n", "has_tools": True}]},
        {"picked": "n"},
        {"error_classes": "jackdaw-strict"},
        {"max_attempts": 3},
        {"keeps_conversations": False},
        {"intent_model": "m"},
        {"intents": {"code": "c"}},
        {"is_enabled": False},
    ],
)
def test_fingerprint_follows_every_column_of_a_group(change: dict[str, Any]) -> None:
    make()
    before = build(1).fingerprint
    Group.objects.update(**change)
    assert build(1).fingerprint != before


def test_fingerprint_follows_accounts_and_the_priority_of_keys(rich: str) -> None:
    apply(rich)
    first = build(1).fingerprint
    VendorAccount.objects.filter(name="open").update(base_url="http://other")
    second = build(1).fingerprint
    apply(rich.replace("priority: batch", "priority: interactive"))
    assert len({first, second, build(1).fingerprint}) == 3


def test_export_with_groups_applied_elsewhere_gives_the_same_fingerprint(rich: str) -> None:
    apply(rich)
    written, fingerprint = export(), build(0).fingerprint
    for model in (Group, Pool, VendorAccount, Team):
        model.objects.all().delete()
    apply(written, "written.yaml")
    assert (build(0).fingerprint, export()) == (fingerprint, written)


def test_file_owns_its_groups_and_removes_those_it_does_not_name_any_more() -> None:
    made = apply(FILE)
    assert (made[-1].action, made[-1].kind, made[-1].object) == ("create", "group", "g")
    assert apply(FILE) == []
    changed = apply(FILE.replace("members: [m]", "members: [m], strategy: rotate"), dry_run=True)
    assert changed == [Change("update", "group", "g", {"strategy": (None, "rotate")})]
    assert [(c.action, c.kind) for c in apply(FILE[: FILE.index("groups")])] == [("delete", "group")]


def test_group_of_another_origin_is_an_error_that_names_the_owner_unless_adopted() -> None:
    apply(FILE)
    other = "version: 1\ngroups:\n  - {id: g, members: [m]}\n"
    with pytest.raises(ConfigError, match=r"groups\[g\]: belongs to 'main.yaml'; --adopt takes it over"):
        apply(other, "other.yaml")
    assert apply(other, "other.yaml", adopt=True) == [
        Change("update", "group", "g", {"origin": ("main.yaml", "other.yaml")})
    ]


def test_group_of_a_wrong_shape_in_a_file_is_told_by_path() -> None:
    text = FILE.replace("{id: g, members: [m]}", "{id: g, member: [m], strategy: best, rules: [{member: m}]}\n  - {}")
    with pytest.raises(ConfigError) as caught:
        apply(text)
    assert sorted((p.path, p.message) for p in caught.value.problems) == [
        ("groups[1].id", "is needed"),
        ("groups[g].member", "no such field; did you mean members?"),
        ("groups[g].members", "an enabled group needs members"),
        ("groups[g].rules[0].member", "'m' is no member of this group"),
        ("groups[g].strategy", "Value 'best' is not a valid choice."),
    ]
