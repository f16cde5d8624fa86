"""A call through a group, from the wire to the wire."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from gateway.pipeline.exchange import Outcome
from gateway.routing.options import QueueOptions
from gateway.routing.snapshot import AccountSpec, ErrorClasses, GroupSpec, MemberSpec, RuleSpec, Strategy
from tests.fakes.scripts import Close, Script, Send, Stall, chat, chat_stream, cut_after, status
from tests.fakes.worker import FakeWorker
from tests.pipeline.rig import Rig, pool_of, running

ASK = {"model": "group/g", "messages": [{"role": "user", "content": "hi"}]}
DEFAULT, STRICT = ErrorClasses.DEFAULT, ErrorClasses.JACKDAW_STRICT
CREDIT = b'{"error":{"message":"Your credit balance is too low."}}'
POLICY = b'{"error":{"code":"content_policy_violation","message":"no"}}'


def group(*refs: str, **fields: Any) -> GroupSpec:
    return GroupSpec("g", members=tuple(MemberSpec(ref) for ref in refs), **fields)


def use(rig: Rig, *workers: FakeWorker, **fields: Any) -> None:
    """The group `g` of pools m1, m2, ... with a worker each."""
    pools = [pool_of(worker, model=f"m{number}") for number, worker in enumerate(workers, 1)]
    rig.use(pools, [group(*(pool.model for pool in pools), **fields)])


async def winners(rig: Rig, count: int, **fields: Any) -> list[str]:
    return [(await rig.post({**ASK, **fields})).headers["x-igw-model"] for _ in range(count)]


async def test_group_first_member_answers_and_is_named():
    async with FakeWorker() as one, FakeWorker() as two, running() as rig:
        use(rig, one, two)
        answer = await rig.post(ASK)
        assert (answer.status_code, answer.headers["x-igw-model"], answer.headers["x-igw-attempts"]) == (200, "m1", "1")
        assert json.loads(one.requests[0].body)["model"] == "m1"
        exchange = await rig.ended()
        assert (exchange.model, exchange.pool, exchange.group) == ("group/g", "m1", "group/g")
        assert exchange.route == {
            "group": "group/g",
            "rule": "",
            "intent": "",
            "steps": [
                {"ref": "m1", "why": "order", "result": "answered"},
                {"ref": "m2", "why": "order", "result": ""},
            ],
            "left_out": 0,
        }


@pytest.mark.parametrize(
    ("refusal", "default", "strict"),
    [
        *((status(code), 200, 200) for code in (429, 500, 502, 503, 504, 529)),
        *((status(code), 200, code) for code in (408, 409, 425)),
        *((status(code), code, code) for code in (400, 404, 413, 415, 422)),
        *((status(code), 200, 502) for code in (401, 403)),
        (status(400, body=CREDIT), 200, 400),
        (status(400, body=POLICY), 400, 400),
        (Script([Close()]), 200, 200),
    ],
)
@pytest.mark.parametrize("classes", ErrorClasses)
async def test_group_error_of_first_member_moves_on_or_stops(
    refusal: Script, default: int, strict: int, classes: ErrorClasses
):
    async with FakeWorker(refusal) as one, FakeWorker() as two, running() as rig:
        use(rig, one, two, error_classes=classes)
        answer = await rig.post(ASK)
        expected = default if classes is DEFAULT else strict
        assert (answer.status_code, len(two.requests)) == (expected, 1 if expected == 200 else 0)
        assert rig.is_idle()


async def test_group_fatal_answer_passes_unchanged():
    async with FakeWorker(status(422, body=b'{"error": {"x":1.0}}')) as one, FakeWorker() as two, running() as rig:
        use(rig, one, two)
        answer = await rig.post(ASK)
        assert (answer.status_code, answer.content) == (422, b'{"error": {"x":1.0}}')


async def test_group_every_member_fails_has_a_line_for_each_and_is_final():
    async with FakeWorker(status(500)) as a, FakeWorker(status(500)) as b, FakeWorker(status(500)) as c:
        async with running() as rig:
            use(rig, a, b, c)
            answer = await rig.post(ASK)
            error = answer.json()["error"]
            lines = ["No member of group/g answered:", "m1: status 500", "m2: status 500", "m3: status 500"]
            assert (answer.status_code, error["code"], error["message"].split("\n")) == (
                502,
                "all_members_failed",
                lines,
            )
            assert answer.headers["x-should-retry"] == "false"
            assert "x-igw-model" not in answer.headers
            assert [len(worker.requests) for worker in (a, b, c)] == [1, 1, 1]
            assert (await rig.ended()).outcome is Outcome.FAILED


async def test_group_passing_failures_may_be_tried_again():
    async with FakeWorker(status(503)) as a, FakeWorker(status(500)) as b, running() as rig:
        use(rig, a, b)
        answer = await rig.post(ASK)
        assert answer.status_code == 502
        assert "x-should-retry" not in answer.headers


async def test_group_every_member_limited_is_429_with_the_soonest_return():
    refusals = [status(429, headers={"retry-after": wait}) for wait in ("9", "4")]
    async with FakeWorker(refusals[0]) as a, FakeWorker(refusals[1]) as b, running() as rig:
        use(rig, a, b)
        answer = await rig.post(ASK)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "4")


async def test_group_attempts_are_capped_over_all_members():
    workers = [FakeWorker(status(500)) for _ in range(3)]
    async with workers[0] as a, workers[1] as b, workers[2] as c, running() as rig:
        use(rig, a, b, c, max_attempts=2)
        answer = await rig.post(ASK)
        assert (answer.status_code, answer.headers["x-igw-attempts"]) == (502, "2")
        assert len(c.requests) == 0


async def test_group_rotates_from_its_first_member():
    async with FakeWorker() as a, FakeWorker() as b, FakeWorker() as c, running() as rig:
        use(rig, a, b, c, strategy=Strategy.ROTATE)
        assert await winners(rig, 4) == ["m1", "m2", "m3", "m1"]


async def test_group_resting_member_goes_last_and_is_never_dropped():
    refusal = status(429, headers={"retry-after": "60"})
    async with FakeWorker(refusal) as a, FakeWorker() as b, running() as rig:
        use(rig, a, b)
        assert await winners(rig, 3) == ["m2", "m2", "m2"]
        assert len(a.requests) == 1
        b.default = status(503)
        assert (await rig.post(ASK)).status_code == 502
        assert len(a.requests) == 2


async def test_group_rule_puts_its_member_first():
    rule = RuleSpec("m2", has_images=True)
    image = {"type": "image_url", "image_url": {"url": "https://a/b.png"}}
    async with FakeWorker() as a, FakeWorker() as b, running() as rig:
        use(rig, a, b, rules=(rule,))
        assert await winners(rig, 1) == ["m1"]
        assert await winners(rig, 1, messages=[{"role": "user", "content": [image]}]) == ["m2"]
        assert (await rig.ended(2)).route["rule"] == "images"  # type: ignore[index]


async def test_group_tool_round_trip_stays_with_the_member_that_answered_the_turn():
    said = [{"role": "user", "content": "what is 2+2"}]
    call = {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f"}}]}
    result = [*said, call, {"role": "tool", "tool_call_id": "1", "content": "4"}]
    async with FakeWorker() as a, FakeWorker() as b, running() as rig:
        use(rig, a, b, strategy=Strategy.ROTATE)
        first = await winners(rig, 1, messages=said)
        assert await winners(rig, 3, messages=result) == first * 3


async def test_group_conversation_stays_with_the_member_that_answered_it():
    async with FakeWorker() as a, FakeWorker() as b, FakeWorker() as c, running() as rig:
        use(rig, a, b, c, strategy=Strategy.ROTATE)
        keyed = [(await rig.post(ASK, x_igw_routing_key="chat-7")).headers["x-igw-model"] for _ in range(3)]
        assert len(set(keyed)) == 1


async def test_group_stream_fails_over_before_its_first_byte_only():
    cut = cut_after(300, chat_stream(["a", "b", "c"]))
    async with FakeWorker(status(503)) as a, FakeWorker(cut) as b, FakeWorker() as c, running() as rig:
        use(rig, a, b, c)
        stream = await rig.openai().chat.completions.create(**ASK, stream=True)
        with pytest.raises(openai.APIError, match="in the middle of its answer"):
            async for _ in stream:
                pass
        exchange = await rig.ended()
        assert (exchange.pool, exchange.outcome) == ("m2", Outcome.INTERRUPTED)
        assert c.requests == []


async def test_group_busy_member_is_passed_over_and_waited_for_when_all_are():
    async with FakeWorker(Script([Stall()])) as a, FakeWorker() as b, running() as rig:
        queue = QueueOptions(size=4, timeout_s=0.2)
        pools = [pool_of(worker, model=model, caps=1, queue=queue) for worker, model in ((a, "m1"), (b, "m2"))]
        rig.use(pools, [group("m1", "m2")])
        _, writer = await rig.connect(json.dumps(ASK).encode())
        await a.until(lambda: a.requests)
        assert await winners(rig, 2) == ["m2", "m2"]
        writer.close()
        await rig.until(rig.is_idle)


async def test_group_of_account_models_and_groups_asks_in_nested_order():
    async with (
        FakeWorker(status(500)) as vendor,
        FakeWorker(status(500)) as own,
        FakeWorker() as last,
        running() as rig,
    ):
        inner = GroupSpec("inner", members=(MemberSpec("acme/deep/model-x"), MemberSpec("m1")))
        outer = group("group/inner", "m2")
        pools = [pool_of(own, model="m1"), pool_of(last, model="m2")]
        account = AccountSpec(1, "acme", "openai", f"{vendor.url}/v1", "sk-vendor")
        rig.use(pools, [inner, outer], [account])
        answer = await rig.post(ASK)
        assert (answer.status_code, answer.headers["x-igw-model"]) == (200, "m2")
        assert json.loads(vendor.requests[0].body)["model"] == "deep/model-x"
        steps = (await rig.ended()).route["steps"]  # type: ignore[index]
        assert [step["ref"] for step in steps] == ["group/inner > acme/deep/model-x", "group/inner > m1", "m2"]


async def test_account_model_is_asked_for_directly():
    async with FakeWorker() as vendor, running() as rig:
        rig.use([], accounts=[AccountSpec(1, "acme", "openai", f"{vendor.url}/v1", "sk-vendor")])
        answer = await rig.post({**ASK, "model": "acme/gpt-9"})
        assert (answer.status_code, answer.headers["x-igw-model"]) == (200, "acme/gpt-9")
        sent = vendor.requests[0]
        assert (sent.path, json.loads(sent.body)["model"]) == ("/v1/chat/completions", "gpt-9")
        assert sent.header("authorization") == "Bearer sk-vendor"


@pytest.mark.parametrize("name", ["group/", "group/nobody", "/x", "acme/", "acme"])
async def test_name_that_leads_nowhere_is_not_found(name: str):
    async with running() as rig:
        rig.use([], accounts=[AccountSpec(1, "acme", "openai", "http://127.0.0.1:1/v1")])
        answer = await rig.post({**ASK, "model": name})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


async def test_key_that_may_use_a_group_may_not_use_its_members_by_themselves():
    async with FakeWorker() as one, running() as rig:
        rig.key = rig.add_key(models=frozenset({"group/g", "acme/*"}))
        use(rig, one)
        assert (await rig.post(ASK)).status_code == 200
        assert (await rig.post({**ASK, "model": "m1"})).status_code == 403


async def test_intent_is_asked_of_its_model_once_a_text_and_decides():
    answer = chat("2")
    async with FakeWorker(answer) as classifier, FakeWorker() as a, FakeWorker() as b, running() as rig:
        pools = [pool_of(classifier, model="cheap"), pool_of(a, model="m1"), pool_of(b, model="m2")]
        asks = group(
            "m1",
            "m2",
            intent_model="cheap",
            intents={"talk": "small talk", "code": "programming"},
            rules=(RuleSpec("m2", intent="code"),),
        )
        rig.use(pools, [asks])
        assert await winners(rig, 2) == ["m2", "m2"]
        assert len(classifier.requests) == 1
        assert [exchange.model for exchange in rig.exchanges] == ["cheap", "group/g", "group/g"]
        assert (await rig.ended()).route["intent"] == "code"  # type: ignore[index]


@pytest.mark.parametrize("answer", [status(500), chat("I think it is kind 77"), Script([Send(b"junk"), Close()])])
async def test_intent_that_cannot_be_told_is_none_and_its_model_is_left_alone(answer: Script):
    async with FakeWorker(answer) as classifier, FakeWorker() as a, FakeWorker() as b, running() as rig:
        pools = [pool_of(classifier, model="cheap"), pool_of(a, model="m1"), pool_of(b, model="m2")]
        asks = group(
            "m1", "m2", intent_model="cheap", intents={"code": "programming"}, rules=(RuleSpec("m2", intent="code"),)
        )
        rig.use(pools, [asks])
        assert await winners(rig, 3) == ["m1"] * 3
        assert len(classifier.requests) == 1
