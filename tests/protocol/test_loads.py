from __future__ import annotations

import random

import pytest

from gateway.protocol.loads import LIMIT_BYTES, SOURCES, read_get_load, read_loads, read_metrics

LOADS = b"""{"timestamp": "2026-01-06T09:15:23.481920+00:00", "version": "0.5.6", "loads": [
 {"dp_rank": 0, "num_running_reqs": 24, "num_waiting_reqs": 3, "num_waiting_uncached_tokens": 6144,
  "num_used_tokens": 382910, "num_total_tokens": 401294, "max_total_num_tokens": 524288, "max_running_requests": 256,
  "token_usage": 0.75, "gen_throughput": 1842.5, "cache_hit_rate": 0.64, "utilization": 0.0, "memory": null},
 {"dp_rank": 1, "num_running_reqs": 19, "num_waiting_reqs": 0, "num_waiting_uncached_tokens": 0,
  "token_usage": 0.25, "gen_throughput": 1521.0, "queues": {"waiting": 3}}]}"""

GET_LOAD = b"""[{"dp_rank": 0, "num_reqs": 27, "num_waiting_reqs": 3, "num_tokens": 401294, "num_pending_tokens": 18384,
 "ts_tic": 128374.55}, {"dp_rank": 1, "num_reqs": 2, "num_waiting_reqs": 0, "num_tokens": 9}]"""

VLLM = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="Qwen/Qwen3-8B"} 24.0
vllm:num_requests_running{engine="1",model_name="Qwen/Qwen3-8B"} 2.0
vllm:num_requests_waiting{engine="0",model_name="Qwen/Qwen3-8B"} 7.0
vllm:num_requests_waiting{engine="1",model_name="Qwen/Qwen3-8B"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="Qwen/Qwen3-8B",reason="capacity"} 5.0
vllm:kv_cache_usage_perc{engine="0",model_name="Qwen/Qwen3-8B"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="Qwen/Qwen3-8B"} 1e-01
vllm:e2e_request_latency_seconds_bucket{engine="0",le="+Inf",model_name="Qwen/Qwen3-8B"} 99.0
"""

SGLANG = b"""sglang:num_running_reqs{engine_type="unified",model_name="m",tp_rank="0"} 162.0
sglang:num_running_reqs{engine_type="unified",model_name="m",tp_rank="1"} 162.0
sglang:num_queue_reqs{model_name="m",priority=""} 30.0
sglang:num_queue_reqs{model_name="m",priority="1"} 12.0
sglang:token_usage{model_name="m"} 0.28
sglang:gen_throughput{model_name="m"} 86.5 1395066363000
sglang:cache_hit_rate{model_name="m"} NaN
"""


def test_loads_of_two_ranks_are_one_workers() -> None:
    assert read_loads(LOADS) == {
        "running": 43,
        "waiting": 3,
        "queued_tokens": 6144,
        "tokens_per_s": 3363.5,
        "cache_use": 0.5,
    }


def test_get_load_counts_those_that_wait_apart() -> None:
    assert read_get_load(GET_LOAD) == {"running": 26, "waiting": 3, "queued_tokens": 18384}


def test_metrics_of_vllm_engines_are_added_up() -> None:
    assert read_metrics(VLLM) == {"running": 26, "waiting": 7, "cache_use": pytest.approx(0.3)}


def test_metrics_of_vllm_before_its_first_version_have_another_name() -> None:
    assert read_metrics(b'vllm:gpu_cache_usage_perc{model_name="m"} 0.7\r\n') == {"cache_use": 0.7}


def test_metrics_of_sglang_count_each_rank_once() -> None:
    assert read_metrics(SGLANG) == {"running": 162, "waiting": 30, "cache_use": 0.28, "tokens_per_s": 86.5}


def test_metrics_value_that_is_no_number_in_range_is_not_said() -> None:
    page = b"vllm:num_requests_running NaN\nvllm:num_requests_waiting -3\nvllm:kv_cache_usage_perc 1.7\n"
    assert read_metrics(page) == {"cache_use": 1.0}


def test_metrics_label_that_holds_braces_and_spaces_is_read_over() -> None:
    assert read_metrics(b'vllm:num_requests_running{model_name="a} 9 {b"} 4\n') == {"running": 4}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"null",
        b"[]",
        b"[1]",
        b'{"loads": []}',
        b'{"loads": {}}',
        b'{"loads": [1]}',
        b'{"loads": [{"num_running_reqs": "3"}]}',
        b'{"loads": [{"num_running_reqs": true}]}',
        b'{"loads": [{"num_running_reqs": -1}, {"num_waiting_reqs": 1e300}]}',
        b'{"loads": [{"num_running_reqs": 99999999999999999999999999}]}',
        b'[{"num_waiting_reqs": null}]',
        b'{"load": 3}',
        b"[" * 100_000,
        b"\xff\xfe",
        b"# only a comment\nother_metric 3\n",
        b"vllm:num_requests_running{\nvllm:num_requests_running 1 2 3 4\nvllm:num_requests_running 1e9e9\n",
    ],
)
def test_answer_that_says_nothing_of_load_is_none(body: bytes) -> None:
    assert [source.read(body) for source in SOURCES] == [None, None, None]


def test_answer_at_the_limit_is_read_and_above_it_is_not() -> None:
    for body, read in ((LOADS, read_loads), (GET_LOAD, read_get_load), (VLLM, read_metrics)):
        padded = body + b" " * (LIMIT_BYTES - len(body))
        assert read(padded) == read(body) is not None
        assert read(padded + b" ") is None


def test_answer_damaged_anywhere_is_read_or_none_and_never_raises() -> None:
    chance = random.Random(3)
    for _ in range(3000):
        body = bytearray(chance.choice((LOADS, GET_LOAD, VLLM, SGLANG)))
        for _ in range(chance.randint(1, 4)):
            body[chance.randrange(len(body))] = chance.randrange(256)
        for source in SOURCES:
            figures = source.read(bytes(body))
            assert figures is None or figures


def test_metrics_page_of_braces_takes_linear_time() -> None:
    assert read_metrics(b"vllm:num_requests_running{" + b"}" * (LIMIT_BYTES - 100)) is None
    assert read_metrics(b"vllm:num_requests_running{}" + b" " * (LIMIT_BYTES - 100)) is None
