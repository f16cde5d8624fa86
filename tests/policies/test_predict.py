"""What `predict` learns from calls that pass, and what follows from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.policies.predict import Predict, PredictOptions
from gateway.routing.policy import Terms, Track
from gateway.routing.requirement import Facts, Need
from gateway.routing.retry import Signal
from gateway.routing.worker import Worker
from tests.policies.candidates import REQUIREMENT, kept, worker, workers

OPTIONS = PredictOptions()
STREAMED = replace(REQUIREMENT, is_streaming=True)


def call(tokens: int = 400, prompt: bytes = b"", max_tokens: int | None = None, is_streaming: bool = True) -> Need:
    facts = Facts(prompt=prompt, input_tokens=tokens, max_tokens=max_tokens)
    return Need(STREAMED if is_streaming else REQUIREMENT, lambda: facts)


def predict(live: list[Worker], **options: object) -> Predict:
    policy = Predict(replace(OPTIONS, **options), lambda: 0.0)
    kept(policy, live)
    return policy


def begin(policy: Predict, at: Worker, need: Need, now: float) -> Track:
    at.in_flight += 1
    return policy.taken(at, need, now)


def end(at: Worker, track: Track, now: float, tokens: int = 100, signal: Signal = Signal.SUCCESS) -> None:
    track.ended(signal, tokens, now)
    at.in_flight -= 1


def serve(policy: Predict, at: Worker, ttft_s: float, tpot_s: float, begins: float = 0.0, calls: int = 60) -> float:
    """Streams one after another; returns when the last has ended."""
    now = begins
    for _ in range(calls):
        track = begin(policy, at, call(), now)
        now += ttft_s
        track.answered(now)
        for token in range(1, 51):
            track.progressed(token, now)
            now += tpot_s
        end(at, track, now, 50)
    return now


def terms(policy: Predict, at: Worker, need: Need, now: float) -> dict[str, float]:
    its: Terms = policy.choose([at], need, now)[1][0]
    return dict(zip(policy.term_names, its, strict=True))


def test_unknown_workers_alike_take_turns():
    live = workers(0, 0)
    policy = predict(live)
    live[0].turn = 1
    chosen, its = policy.choose(live, call(), 0.0)
    assert chosen is live[1]
    # 0.02 + 400/20000, and 0.3 * 200 * (0.012 + 0.0002)
    assert its[0] == its[1] == pytest.approx((0.04 + 0.732, 0.04, 0.0122, 0.0, 400, 0))


def test_score_counts_harm_to_streams_there():
    (one,) = live = workers(3)
    its = terms(predict(live), one, call(1000, max_tokens=10), 0.0)
    assert its["harm_s"] == pytest.approx(0.25 * 3 * (0.0002 * 10 + 1000 / 20_000))
    assert its["score_s"] == pytest.approx(0.07 + 0.3 * 10 * 0.0128 + its["harm_s"])


def test_faster_worker_is_learnt_without_weights():
    fast, slow = live = workers(0, 0)
    policy = predict(live)
    later = max(serve(policy, fast, 0.03, 0.01), serve(policy, slow, 0.3, 0.05))
    assert terms(policy, fast, call(), later)["tpot_s"] == pytest.approx(0.01, rel=0.1)
    assert terms(policy, slow, call(), later)["tpot_s"] == pytest.approx(0.05, rel=0.2)
    fast.in_flight = 12
    assert policy.choose(live, call(), later)[0] is fast


def test_outstanding_prompts_delay_those_behind_until_first_byte():
    (one,) = live = workers(0)
    policy = predict(live)
    track = begin(policy, one, call(20_000), 0.0)
    waiting_s = terms(policy, one, call(400), 0.0)["ttft_s"]
    track.answered(1.0)
    assert (waiting_s, terms(policy, one, call(400), 1.0)["ttft_s"]) == pytest.approx((1.04, 0.036), abs=0.005)


@pytest.mark.parametrize("signal", Signal)
def test_outstanding_prompt_is_given_back_without_first_byte(signal: Signal):
    (one,) = live = workers(0)
    policy = predict(live)
    end(one, begin(policy, one, call(20_000), 0.0), 0.001, 0, signal)
    ttft_s = terms(policy, one, call(400), 0.001)["ttft_s"]
    assert ttft_s == pytest.approx(0.54 if signal is Signal.FAILURE else 0.04)


def test_stalled_worker_shows_by_age_of_oldest_call():
    stalled, other = live = workers(0, 0)
    policy = predict(live)
    begin(policy, stalled, call(), 0.0)
    begin(policy, stalled, call(), 2.5)
    assert terms(policy, stalled, call(), 3.0)["ttft_s"] == pytest.approx(3.0 + 400 / 20_000)
    assert policy.choose(live, call(), 3.0)[0] is other


def test_failures_add_up_fade_and_end_with_first_byte():
    (one,) = live = workers(0)
    policy = predict(live)
    for _ in range(3):
        end(one, begin(policy, one, call(), 0.0), 0.0, 0, Signal.FAILURE)
    assert terms(policy, one, call(), 0.0)["ttft_s"] == pytest.approx(2.04)
    assert terms(policy, one, call(), 10.0)["ttft_s"] == pytest.approx(2.0 / 2.718281828 + 0.04)
    begin(policy, one, call(), 10.0).answered(10.04)
    assert terms(policy, one, call(), 10.04)["ttft_s"] == pytest.approx(0.04, abs=0.001)


def test_long_wait_that_ends_without_answer_is_learnt():
    (one,) = live = workers(0)
    policy = predict(live)
    end(one, begin(policy, one, call(), 0.0), 30.0, 0, Signal.NEUTRAL)
    assert terms(policy, one, call(), 30.0)["ttft_s"] > 6.0


def test_rejected_request_teaches_nothing():
    (one,) = live = workers(0)
    policy = predict(live)
    before = terms(policy, one, call(), 0.0)
    end(one, begin(policy, one, call(), 0.0), 0.001, 0, Signal.SUCCESS)
    assert terms(policy, one, call(), 0.001) == before


def test_prompt_that_a_worker_has_goes_there():
    live = workers(0, 0, 0)
    policy = predict(live)
    prompt = bytes(range(256)) * 40
    begin(policy, live[2], call(2560, prompt), 0.0).answered(0.1)
    live[2].in_flight = 0
    chosen, its = policy.choose(live, call(2600, prompt + b"x" * 160), 0.1)
    assert chosen is live[2]
    assert [each[4] for each in its] == [2600, 2600, 40]


def test_prefix_index_can_be_off():
    live = workers(0)
    policy, prompt = predict(live, prefix_tokens=0), b"a" * 4096
    begin(policy, live[0], call(1024, prompt), 0.0)
    assert terms(policy, live[0], call(1024, prompt), 0.0)["uncached_tokens"] == 1024


def test_answer_length_is_learnt_and_max_tokens_bounds_it():
    (one,) = live = workers(0)
    policy = predict(live, harm=0.0, wait_weight=1.0)
    track = begin(policy, one, call(), 0.0)
    track.answered(0.04)
    end(one, track, 0.04, tokens=1200)
    mean, most = terms(policy, one, call(), 0.04), terms(policy, one, call(max_tokens=20), 0.04)
    assert mean["score_s"] - mean["ttft_s"] == pytest.approx(210 * 0.0122)
    assert most["score_s"] - most["ttft_s"] == pytest.approx(20 * 0.0122)


def test_inter_token_time_of_bursts_is_not_cut():
    (one,) = live = workers(0)
    policy = predict(live)
    tracks = [begin(policy, one, call(), 0.0) for _ in range(4)]
    for burst in range(40):  # ten tokens of each of four streams every 0.3 s
        for track in tracks:
            track.progressed(1 + 10 * burst, burst * 0.3)
    one.in_flight = 3
    assert terms(policy, one, call(), 11.7)["tpot_s"] == pytest.approx(0.03, rel=0.05)


def test_whole_answers_teach_time_of_output():
    (one,) = live = workers(0)
    policy, now = predict(live), 0.0
    for _ in range(100):
        track = begin(policy, one, call(is_streaming=False), now)
        now += 0.04 + 99 * 0.05
        track.answered(now)
        end(one, track, now, 100)
    its = terms(policy, one, call(), now)
    assert (its["ttft_s"], its["tpot_s"]) == pytest.approx((0.04, 0.05), rel=0.1)


def test_whole_answers_without_output_teach_time_to_first_byte():
    (one,) = live = workers(0)
    policy, now = predict(live), 0.0
    for _ in range(100):
        track = begin(policy, one, call(is_streaming=False), now)
        now += 0.4
        track.answered(now)
        end(one, track, now, 0)
    its = terms(policy, one, call(), now)
    assert (its["ttft_s"], its["tpot_s"]) == pytest.approx((0.4, 0.0122), rel=0.1)


def test_prompt_of_whole_answer_counts_as_long_as_it_should_be_read():
    (one,) = live = workers(0)
    policy = predict(live)
    begin(policy, one, call(20_000, is_streaming=False), 0.0)  # to be read by 1.02
    ttfts = [terms(policy, one, call(), now)["ttft_s"] for now in (0.0, 1.0, 1.1, 9.0)]
    assert ttfts == pytest.approx([1.04, 1.04, 0.04, 0.04])


class Shared:
    """A cell in which other processes have some tokens and calls."""

    def __init__(self) -> None:
        self.tokens = self.calls = 0

    def add(self, calls: int, tokens: int) -> None:
        self.calls += calls
        self.tokens += tokens

    def other_calls(self) -> int:
        return 2

    def other_tokens(self) -> int:
        return 20_000


def test_processes_of_a_host_share_calls_and_prompt_tokens():
    (one,) = live = workers(0)
    one.cell = Shared()
    policy = predict(live)
    its = terms(policy, one, call(), 0.0)
    assert (its["ttft_s"], its["streams"]) == (pytest.approx(1.04), 2)
    track = begin(policy, one, call(400), 0.0)
    assert one.cell.tokens == 400
    track.answered(0.1)
    track.ended(Signal.SUCCESS, 10, 0.2)
    assert one.cell.tokens == 0


def test_random_half_of_the_workers_is_looked_at():
    live = workers(9, 9, 0, 0, 0)
    chosen, its = predict(live, random_half=True).choose(live, call(), 0.0)
    assert [each[0] > 0 for each in its] == [True, True, True, False, False]
    assert chosen is live[2]


@pytest.mark.parametrize(("rank", "waits"), [(0, True), (99, False)])
def test_call_waits_for_fast_full_worker_while_few_are_before_it(rank: int, waits: bool):
    fast, slow = live = workers(0, 0)
    policy = predict(live)
    later = max(serve(policy, fast, 0.03, 0.01), serve(policy, slow, 1.0, 0.2))
    fast.in_flight = 8
    assert policy.would_wait([slow], [fast], call(), later, rank) is waits
    assert policy.would_wait([fast], [slow], call(), later, rank) is False


def test_new_worker_starts_as_median_and_moved_one_anew():
    live = workers(0, 0, 0)
    policy = predict(live)
    later = max(serve(policy, each, 0.05 * (at + 1), 0.02 * (at + 1)) for at, each in enumerate(live))
    new, moved = worker("new"), live[0]
    moved.spec = replace(moved.spec, url="http://elsewhere:1")
    known = {each: terms(policy, each, call(), later + 1e6) for each in live[1:]}
    policy.keep([*live, new])
    tpots = [terms(policy, each, call(), later + 1e6)["tpot_s"] for each in (*live, new)]
    second, third = (known[each]["tpot_s"] for each in live[1:])
    assert tpots == pytest.approx([(second + third) / 2, second, third, (second + third) / 2])
