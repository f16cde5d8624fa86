"""Groups in the admin: rows of members and rules, what is refused and where that shows."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from admin_ui.rows import IntentsField, MembersField, RulesField
from gateway.models import AuditEvent, ConfigRevision, Group, VendorAccount
from gateway.runtime.builder import ConfigError
from gateway.runtime.edit import edit
from gateway.runtime.importer import apply_file
from tests.admin_ui.objects import make_pool
from tests.api.objects import Api, make_key

ADD = reverse("admin:gateway_group_add")
GROUPS = reverse("admin:gateway_group_changelist")
NEW: dict[str, Any] = {
    "name": "fast",
    "is_enabled": "on",
    "strategy": "weight",
    "members-ref": ["deepseek-v3", "", "main/gpt-4o"],
    "members-weight": ["3", "", ""],
    "rules-member": ["main/gpt-4o"],
    "rules-min_tokens": ["8000"],
    "rules-has_tools": ["true"],
    "rules-teams": ["red, blue"],
    "rules-intent": [""],
    "error_classes": "default",
    "keeps_conversations": "on",
}


@pytest.fixture(autouse=True)
def served(db: None) -> None:
    """A pool and an account that groups may name."""
    make_pool()
    with edit("tests", "admin"):
        VendorAccount.objects.create(name="main", base_url="https://example.test/v1")


def make_group(name: str = "fast", **columns: Any) -> Group:
    with edit("tests", "admin"):
        return Group.objects.create(**({"name": name, "members": ["deepseek-v3"]} | columns))


def change_url(group: Group) -> str:
    return reverse("admin:gateway_group_change", args=[group.pk])


def sent(form: Any, client: Client, url: str) -> dict[str, Any]:
    """What a browser would send of a group's page, its rows included."""
    fields = form(client, url)
    shown = client.get(url).context["adminform"].form
    for name in ("members", "rules", "intents"):
        for part in shown.fields[name].widget.parts:
            fields[f"{name}-{part.name}"] = [row.get(part.name, "") for row in shown[name].value()]
    return fields


def errors(response: Any) -> dict[str, list[str]]:
    return {name: list(texts) for name, texts in response.context["adminform"].form.errors.items()}


def test_group_when_added_has_the_rows_that_were_sent(admin: Client) -> None:
    response = admin.post(ADD, NEW)

    group = Group.objects.get()
    event = AuditEvent.objects.filter(kind="group").get()
    assert (response.status_code, event.action, event.object) == (302, "create", "fast")
    assert group.members == [{"ref": "deepseek-v3", "weight": 3}, "main/gpt-4o"]
    assert group.rules == [{"member": "main/gpt-4o", "min_tokens": 8000, "has_tools": True, "teams": ["red", "blue"]}]
    assert [str(message) for message in get_messages(response.wsgi_request)][:1] == [
        "groups[fast].rules[0].teams: there is no team blue, red."
    ]


def test_group_when_saved_unchanged_makes_no_revision(admin: Client, form: Any) -> None:
    group = make_group(
        members=[{"ref": "deepseek-v3", "weight": 2}, "main/gpt-4o"],
        rules=[{"member": "main/gpt-4o", "has_images": False, "header": "x-app: a, b"}],
        intents={"code": "writing, or mending code"},
    )
    before = ConfigRevision.objects.count()

    response = admin.post(change_url(group), sent(form, admin, change_url(group)))

    assert (response.status_code, ConfigRevision.objects.count()) == (302, before)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"name": "a b"}, {"name"}),
        ({"members-ref": ["", "", ""], "members-weight": ["", "", ""], "rules-member": []}, {"members", "rules"}),
        (
            {"members-weight": ["0", "", ""]},
            {"members": ["Row 1, weight: 0 is below the least allowed, 1"]},
        ),
        (
            {"members-weight": ["", "", "many"]},
            {"members": ["Row 2, weight: expected a whole number, got 'many'"]},
        ),
        (
            {"rules-min_tokens": ["-1"]},
            {"rules": ["Row 1, min_tokens: expected a whole number, got '-1'"]},
        ),
        ({"rules-member": ["main/x"]}, {"rules": ["Row 1, member: 'main/x' is no member of this group"]}),
        ({"max_attempts": "101"}, {"max_attempts": ["Ensure this value is less than or equal to 100."]}),
        ({"strategy": "manual", "picked": "x"}, {"picked": ["'x' is no member of this group"]}),
    ],
)
def test_group_that_cannot_be_used_is_refused_at_the_field(admin: Client, changed: Any, expected: Any) -> None:
    response = admin.post(ADD, NEW | changed)

    found = errors(response)
    assert (response.status_code, Group.objects.count()) == (200, 0)
    assert (set(found) if isinstance(expected, set) else found) == expected


def test_loop_is_refused_at_the_members_in_the_words_of_files_and_api(admin: Client, form: Any) -> None:
    group = make_group("inner")
    make_group("outer", members=["group/inner"])
    text = "version: 1\ngroups: [{id: inner, members: [group/outer]}]"
    fields = sent(form, admin, change_url(group)) | {"members-ref": ["group/outer"], "members-weight": [""]}

    shown = errors(admin.post(change_url(group), fields))
    with pytest.raises(ConfigError) as file:
        apply_file(text, "main.yaml", "tests", adopt=True)
    _, error = Api(make_key()).error("PATCH", "/groups/inner", {"members": ["group/outer"]})

    told = [(problem.path, problem.message) for problem in file.value.problems]
    assert shown["members"] == [told[0][1]] == ["leads back to itself: inner > outer > inner"]
    assert told == [(problem["path"], problem["message"]) for problem in error["problems"]]


def test_rows_of_a_refused_form_stay_as_they_were_typed(admin: Client) -> None:
    page = admin.post(ADD, NEW | {"members-weight": ["many", "", ""]}).content.decode()

    assert 'value="many"' in page
    assert page.count('name="members-ref"') == 3  # two rows, and the empty one that is added from


def test_group_page_suggests_what_a_member_may_be(admin: Client) -> None:
    make_group("other")

    page = admin.get(change_url(make_group())).content.decode()

    options = page.partition('<datalist id="members-suggestions">')[2].partition("</datalist>")[0]
    assert [text for text in options.split('"') if "option" not in text] == ["deepseek-v3", "group/other", "main/"]


def test_group_of_a_file_is_shown_in_words(admin: Client) -> None:
    rules = [{"member": "deepseek-v3", "min_tokens": 9, "has_audio": False}, {"member": "deepseek-v3"}]
    group = make_group(origin="prod.yaml", rules=rules, intents={"code": "writing code"})

    page = admin.get(change_url(group)).content.decode()

    assert "belongs to the file <strong>prod.yaml</strong>" in page
    assert "deepseek-v3 first when Estimated tokens of the prompt are at least: 9; There is audio: no" in page
    assert "deepseek-v3 first when anything is asked" in page
    assert "code: writing code" in page
    assert "members-ref" not in page


def test_group_is_taken_over_disabled_and_deleted(admin: Client) -> None:
    group = make_group(origin="prod.yaml")

    admin.post(reverse("admin:gateway_group_take_over", args=[group.pk]), {"confirmed": "yes"})
    admin.post(GROUPS, {"action": "disable_groups", "_selected_action": [group.pk], "confirmed": "yes"})
    state = list(Group.objects.values_list("origin", "is_enabled"))
    admin.post(reverse("admin:gateway_group_delete", args=[group.pk]), {"post": "yes"})

    assert (state, Group.objects.count()) == ([("admin", False)], 0)


def test_list_of_groups_says_what_they_are_for_while_there_are_none(admin: Client) -> None:
    before = admin.get(GROUPS).content.decode()
    make_group(members=["deepseek-v3", "main/a", {"ref": "main/b", "weight": 2}, "main/c"])
    after = admin.get(GROUPS).content.decode()

    assert ("There are no groups yet." in before, "There are no groups yet." in after) == (True, False)
    assert "deepseek-v3, main/a, main/b (weight 2) and 1 more" in after


@pytest.mark.parametrize("is_list", [True, False])
def test_group_pages_when_there_are_more_ask_no_more_queries(
    admin: Client, is_list: bool, django_assert_num_queries: Any
) -> None:
    url = GROUPS if is_list else change_url(make_group())
    make_group("one")
    admin.get(url)
    with CaptureQueriesContext(connection) as first:
        admin.get(url)
    count = len(first)
    make_group("two")
    make_pool("m2")

    with django_assert_num_queries(count):
        admin.get(url)


def test_fields_of_rows_take_back_what_they_show() -> None:
    members = ["m", {"ref": "n", "weight": 2}]
    rules = [{"member": "m", "has_tools": False, "min_effort": "low", "keys": ["a/b", "c/d"]}]
    intents = {"code": "a, b"}

    assert MembersField().to_python(MembersField().prepare_value(members)) == members
    assert RulesField().to_python(RulesField().prepare_value(rules)) == rules
    assert IntentsField().to_python(IntentsField().prepare_value(intents)) == intents
