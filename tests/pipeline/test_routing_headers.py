"""What a caller may say of where its call goes, and what it is told of where it went."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from gateway.routing.options import QueueOptions, RetryOptions
from gateway.routing.requirement import Priority, Profile
from gateway.routing.rest import RestReason
from tests.fakes.scripts import Script, Stall, Wait, chat, status
from tests.fakes.worker import FakeWorker
from tests.pipeline.rig import pool_of, running

ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


async def test_target_worker_named_by_operator_gets_every_call():
    async with FakeWorker() as first, FakeWorker() as second, running(pool_of(first, second)) as rig:
        rig.key = rig.add_key(is_operator=True)
        rig.use(rig.pools)
        answers = [await rig.post(ASK, x_igw_target_worker="w2") for _ in range(3)]
        assert [answer.headers["x-igw-worker"] for answer in answers] == ["w2"] * 3
        assert (len(first.requests), len(second.requests)) == (0, 3)


async def test_target_worker_that_is_not_there_is_no_worker():
    async with FakeWorker() as worker, running(pool_of(worker)) as rig:
        rig.key = rig.add_key(is_operator=True)
        rig.use(rig.pools)
        answer = await rig.post(ASK, x_igw_target_worker="nobody")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_worker_available")
        assert answer.json()["error"]["message"] == "No worker can take this call (1 worker: 1 not the target)."


async def test_target_worker_named_without_operator_scope_is_refused():
    async with FakeWorker() as worker, running(pool_of(worker)) as rig:
        answer = await rig.post(ASK, x_igw_target_worker="w1")
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "permission_denied")
        assert worker.requests == []


async def test_priority_that_there_is_not_is_refused():
    async with FakeWorker() as worker, running(pool_of(worker)) as rig:
        answer = await rig.post(ASK, x_igw_priority="urgent")
        message = "The header x-igw-priority is expected as interactive or batch."
        assert (answer.status_code, answer.json()["error"]["message"]) == (400, message)
        assert worker.requests == []


async def test_interactive_call_goes_before_a_batch_call_that_waited_longer():
    gate = asyncio.Event()
    held = Script([Wait(gate), *chat().steps])
    async with FakeWorker() as worker, running(pool_of(worker, caps=1, queue=QueueOptions(timeout_s=5))) as rig:
        worker.next(held)
        (spec,) = rig.table.pools()
        first = asyncio.create_task(rig.post(ASK))
        await worker.until(lambda: worker.requests)
        batch = asyncio.create_task(rig.post({**ASK, "user": "batch"}, x_igw_priority="batch"))
        await rig.until(lambda: spec.waiting == 1)
        interactive = asyncio.create_task(rig.post({**ASK, "user": "interactive"}))
        await rig.until(lambda: spec.waiting == 2)
        gate.set()
        await asyncio.gather(first, batch, interactive)
        assert [json.loads(request.body).get("user") for request in worker.requests] == [None, "interactive", "batch"]


async def test_key_of_batch_priority_cannot_raise_itself():
    gate = asyncio.Event()
    async with FakeWorker() as worker, running(pool_of(worker, caps=1, queue=QueueOptions(timeout_s=5))) as rig:
        worker.next(Script([Wait(gate), *chat().steps]))
        fast, rig.key = rig.key, rig.add_key(priority=Priority.BATCH)
        rig.use(rig.pools)
        (pool,) = rig.table.pools()
        first = asyncio.create_task(rig.post(ASK))
        await worker.until(lambda: worker.requests)
        asks = {**ASK, "user": "batch"}
        batch = asyncio.create_task(rig.post(asks, x_igw_priority="interactive"))
        await rig.until(lambda: pool.waiting == 1)
        rig.key = fast
        other = asyncio.create_task(rig.post({**ASK, "user": "fast"}))
        await rig.until(lambda: pool.waiting == 2)
        gate.set()
        await asyncio.gather(first, batch, other)
        assert [json.loads(request.body).get("user") for request in worker.requests] == [None, "fast", "batch"]


async def test_worker_that_says_429_rests_and_tells_the_others():
    refusal = status(429, headers={"retry-after": "7"})
    async with FakeWorker(refusal) as tired, FakeWorker() as fresh, running(pool_of(tired, fresh)) as rig:
        answers = [await rig.post(ASK) for _ in range(6)]
        assert [answer.status_code for answer in answers] == [200] * 6
        assert len(tired.requests) == 1
        live = next(iter(rig.table.workers()))
        assert live.rest.reason is RestReason.RATE_LIMIT
        assert 6 < live.rest.until - live.rest.since <= 7
        assert live.breaker.failures == 0
        assert rig.rests == [("m-w1", "rate limit")]


async def test_every_worker_says_429_it_is_passed_on_with_its_retry_after():
    refusal = status(429, headers={"retry-after": "7"})
    async with FakeWorker(refusal) as one, FakeWorker(refusal) as other, running(pool_of(one, other)) as rig:
        answer = await rig.post(ASK)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
        assert (len(one.requests), len(other.requests)) == (1, 1)


async def test_attempts_say_why_each_worker_was_chosen():
    async with FakeWorker(status(503)) as bad, FakeWorker() as good, running(pool_of(bad, good)) as rig:
        answer = await rig.post(ASK)
        assert (answer.status_code, answer.headers["x-igw-attempts"]) == (200, "2")
        exchange = await rig.ended()
        first, second = [attempt.decision for attempt in exchange.attempts]
        assert first is not None
        assert second is not None
        assert (first.policy, first.chosen, first.candidates, first.excluded) == ("round_robin", "w1", ("w1", "w2"), ())
        assert (second.chosen, second.candidates, second.excluded) == ("w2", ("w2",), (("w1", "tried already"),))


async def test_profile_with_images_gets_the_calls_that_have_them():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    with_image = {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "?"}, image]}]}
    async with FakeWorker() as plain, FakeWorker() as seeing, running() as rig:
        spec = pool_of(plain, seeing)
        text, any_input = Profile(inputs=frozenset({"text"})), Profile(inputs=frozenset({"text", "image"}))
        pairs = zip(spec.workers, (text, any_input), strict=True)
        rig.use([replace(spec, workers=tuple(replace(worker, profiles=(profile,)) for worker, profile in pairs))])
        answers = [await rig.post(with_image) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200] * 3
        assert (len(plain.requests), len(seeing.requests)) == (0, 3)


async def test_retries_stop_when_the_pool_as_a_whole_fails():
    async with (
        FakeWorker(status(503)) as a,
        FakeWorker(status(503)) as b,
        FakeWorker(status(503)) as c,
        running(pool_of(a, b, c, retry=RetryOptions(max_attempts=3))) as rig,
    ):
        statuses = [(await rig.post(ASK)).status_code for _ in range(60)]
        assert set(statuses) <= {502, 503}
        attempts = sum(len(worker.requests) for worker in (a, b, c))
        assert attempts <= 1.25 * len(statuses)


async def test_queue_wait_over_refuses_with_a_predicted_retry_after():
    queue = QueueOptions(size=1, timeout_s=0.05)
    async with FakeWorker(Script([Stall()])) as worker, running(pool_of(worker, caps=1, queue=queue)) as rig:
        _, writer = await rig.connect(json.dumps(ASK).encode())
        await worker.until(lambda: worker.requests)
        answer = await rig.post(ASK)
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "router_overloaded")
        assert int(answer.headers["retry-after"]) >= 1
        writer.close()
        await rig.until(rig.is_idle)


@pytest.mark.parametrize(
    ("header", "value", "param"),
    [
        ("x_sglang_omni_route_model", "other", "model"),
        ("x_sglang_omni_route_stream", "true", "stream"),
        ("x_sglang_omni_route_stream", "yes", "stream"),
    ],
)
async def test_assertion_that_disagrees_with_the_body_is_refused(header: str, value: str, param: str):
    async with FakeWorker() as worker, running(pool_of(worker)) as rig:
        answer = await rig.post(ASK, **{header: value})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
        assert worker.requests == []


async def test_assertions_that_agree_with_the_body_go_no_further():
    async with FakeWorker() as worker, running(pool_of(worker)) as rig:
        answer = await rig.post(ASK, x_sglang_omni_route_model="m", x_sglang_omni_route_stream="false")
        assert answer.status_code == 200
        assert not any(name.startswith("x-sglang") for name, _ in worker.requests[0].headers)


async def test_request_that_no_profile_takes_is_refused_and_sent_nowhere():
    audio = {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}
    asks = {"model": "m", "messages": [{"role": "user", "content": [audio]}]}
    async with FakeWorker() as worker, running() as rig:
        spec = pool_of(worker)
        (only,) = spec.workers
        rig.use([replace(spec, workers=(replace(only, profiles=(Profile(inputs=frozenset({"text"})),)),))])
        answer = await rig.post(asks)
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "no_compatible_worker")
        assert worker.requests == []


async def test_facts_over_two_profile_rows_are_never_combined():
    rows = (Profile(streaming=True, inputs=frozenset({"text"})), Profile(streaming=False, inputs=frozenset({"image"})))
    async with FakeWorker() as worker, running() as rig:
        spec = pool_of(worker)
        (only,) = spec.workers
        rig.use([replace(spec, workers=(replace(only, profiles=rows),))])
        assert (await rig.post(ASK)).status_code == 422
        assert (await rig.post({**ASK, "stream": True})).status_code == 200
