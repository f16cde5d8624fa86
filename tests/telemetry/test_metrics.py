"""Metrics: what one process counts, and what several add up to, dead ones included."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.telemetry.dumps import DumpDirectory
from gateway.telemetry.families import BOUNDS_S, Family, Kind, State, merge
from gateway.telemetry.metrics import Merge, Metrics

Series = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]


def scraped(text: bytes) -> Series:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def values(text: bytes, name: str) -> dict[tuple[str, ...], float]:
    return {tuple(v for _, v in labels): value for (key, labels), value in scraped(text).items() if key == name}


def end_call(metrics: Metrics, **changes: object) -> None:
    call: dict[str, object] = {
        "service": "chat",
        "pool": "m",
        "outcome": "completed",
        "status": 200,
        "duration_s": 1.5,
        "ttft_s": 0.2,
        "input_tokens": 10,
        "output_tokens": 20,
        "cached_tokens": 4,
    }
    metrics.call_ended(**(call | changes))  # type: ignore[arg-type]


def test_call_ended_counts_calls_times_and_tokens() -> None:
    metrics = Metrics("0")
    end_call(metrics)
    end_call(metrics, duration_s=2.5, ttft_s=None)
    end_call(metrics, outcome="refused", status=429, pool="", duration_s=0.001, ttft_s=None, input_tokens=0)
    text = metrics.render()
    assert values(text, "igw_calls_total") == {
        ("completed", "m", "chat", "2xx"): 2,
        ("refused", "", "chat", "4xx"): 1,
    }
    assert values(text, "igw_tokens_total") == {
        ("input", "m", "chat"): 20,
        ("output", "m", "chat"): 40,
        ("cached", "m", "chat"): 8,
        ("input", "", "chat"): 0,
        ("output", "", "chat"): 20,
        ("cached", "", "chat"): 4,
    }
    assert values(text, "igw_call_duration_seconds_sum")["completed", "m", "chat"] == 4.0
    assert values(text, "igw_time_to_first_byte_seconds_count") == {("m", "chat"): 1}


def test_histogram_buckets_include_their_bound_and_are_cumulative() -> None:
    metrics = Metrics("0")
    for seconds in (0.0, 0.005, 0.0051, 600.0, 601.0):
        end_call(metrics, duration_s=seconds)
    buckets = values(metrics.render(), "igw_call_duration_seconds_bucket")
    assert {key[0]: count for key, count in buckets.items() if key[0] in ("0.005", "0.01", "300", "600", "+Inf")} == {
        "0.005": 2,
        "0.01": 3,
        "300": 3,
        "600": 4,
        "+Inf": 5,
    }
    assert len(buckets) == len(BOUNDS_S) + 1


def test_attempts_retries_and_refusals_are_counted() -> None:
    metrics = Metrics("0")
    metrics.attempt_ended("m", "w1", "upstream_unreachable", 0.1)
    metrics.attempt_ended("m", "w2", "ok", 0.4)
    metrics.retried("m")
    metrics.refused("rate_limit_exceeded")
    text = metrics.render()
    assert values(text, "igw_attempts_total") == {("upstream_unreachable", "m", "w1"): 1, ("ok", "m", "w2"): 1}
    assert values(text, "igw_attempt_duration_seconds_sum") == {("m", "w1"): 0.1, ("m", "w2"): 0.4}
    assert values(text, "igw_retries_total") == {("m",): 1}
    assert values(text, "igw_refusals_total") == {("rate_limit_exceeded",): 1}


def test_gauge_of_a_removed_pool_is_gone() -> None:
    metrics = Metrics("0")
    in_flight = {("a",): 1.0, ("b",): 2.0}
    metrics.gauge("igw_in_flight", "Running calls.", lambda: in_flight, ("pool",))
    assert values(metrics.render(), "igw_in_flight") == in_flight
    del in_flight["a",]
    assert values(metrics.render(), "igw_in_flight") == {("b",): 2.0}


def test_gauge_that_fails_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics("0")
    metrics.gauge("igw_broken", "Fails.", lambda: {(): 1 / 0})
    end_call(metrics)
    assert [values(metrics.render(), "igw_calls_total") for _ in range(2)] == [
        {("completed", "m", "chat", "2xx"): 1}
    ] * 2
    assert [record.message for record in caplog.records] == ["metric has no value"]


def test_label_values_are_escaped() -> None:
    metrics = Metrics("0")
    end_call(metrics, pool='a"b\\c\nd')
    assert list(values(metrics.render(), "igw_time_to_first_byte_seconds_count")) == [('a"b\\c\nd', "chat")]


async def two_processes(directory: Path) -> tuple[Metrics, Metrics]:
    both = Metrics("0", directory), Metrics("1", directory)
    for number, metrics in enumerate(both, 1):
        metrics.gauge("igw_in_flight", "Running calls.", lambda number=number: {("m",): number}, ("pool",))
        metrics.gauge("igw_revision", "Revision.", lambda number=number: {(): number}, merge=Merge.MAX)
        metrics.gauge("igw_each", "Apart.", lambda number=number: {(): number}, merge=Merge.EACH)
        metrics.counter("igw_records", "Written rows.", lambda number=number: {(): number})
        for _ in range(number):
            end_call(metrics)
        await metrics.dump()
    return both


async def test_scrape_of_two_processes_adds_up(tmp_path: Path) -> None:
    first, second = await two_processes(tmp_path)
    texts = [await first.scrape(), await second.scrape()]
    for text in texts:
        assert values(text, "igw_calls_total") == {("completed", "m", "chat", "2xx"): 3}
        assert values(text, "igw_call_duration_seconds_sum") == {("completed", "m", "chat"): 4.5}
        assert values(text, "igw_in_flight") == {("m",): 3}
        assert values(text, "igw_revision") == {(): 2}
        assert values(text, "igw_each") == {("0",): 1, ("1",): 2}
        assert values(text, "igw_records_total") == {(): 3}
    first.close(), second.close()


async def test_scrape_after_a_process_ended_keeps_its_counters_and_drops_its_gauges(tmp_path: Path) -> None:
    first, second = await two_processes(tmp_path)
    second.close()
    for _ in range(2):
        text = await first.scrape()
        assert values(text, "igw_calls_total") == {("completed", "m", "chat", "2xx"): 3}
        assert values(text, "igw_records_total") == {(): 3}
        assert values(text, "igw_in_flight") == {("m",): 1}
        assert values(text, "igw_each") == {("0",): 1}
    assert sorted(os.listdir(tmp_path)) == ["0.bin", "0.lock", "directory.lock", "retired.bin"]
    first.close()


async def test_process_that_takes_a_dead_ones_name_keeps_its_counts(tmp_path: Path) -> None:
    first, second = await two_processes(tmp_path)
    second.close()
    heir = Metrics("1", tmp_path)
    end_call(heir)
    await heir.dump()
    assert values(await first.scrape(), "igw_calls_total") == {("completed", "m", "chat", "2xx"): 4}
    first.close(), heir.close()


async def test_process_with_a_living_ones_name_waits_for_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, heir = Metrics("0", tmp_path), Metrics("0", tmp_path)
    end_call(first), end_call(heir)
    for metrics in (first, heir, heir):
        await metrics.dump()
    assert [record.message for record in caplog.records] == ["metrics cannot be dumped"]
    first.close()
    await heir.dump()
    assert values(await heir.scrape(), "igw_calls_total") == {("completed", "m", "chat", "2xx"): 2}
    heir.close()


def test_killed_process_is_counted_once_even_when_folding_is_interrupted(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys, time; from pathlib import Path; from gateway.telemetry.metrics import Metrics\n"
        "m = Metrics('9', Path(sys.argv[1])); m.refused('x'); asyncio.run(m.dump()); print('ready', flush=True)\n"
        "time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        dump = (tmp_path / "9.bin").read_bytes()
        os.kill(child.pid, signal.SIGKILL)
    reader = DumpDirectory(tmp_path, "0")
    reader.write(State("reader", {}))
    for _ in range(2):
        assert merge(reader.others())["igw_refusals"].samples == {("x",): [1]}
        (tmp_path / "9.bin").write_bytes(dump)  # as if the folding process had died before it deleted the file
    reader.close()


def test_dump_of_another_release_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "7.bin").write_bytes(msgspec.msgpack.encode({"other": "shape"}))
    (tmp_path / "8.bin").write_bytes(b"\xc1 torn")
    reader = DumpDirectory(tmp_path, "0")
    reader.write(State("reader", {}))
    assert reader.others() == []
    reader.close()


def test_merge_of_families_that_differ_keeps_the_first() -> None:
    ours = State("a", {"x": Family(Kind.COUNTER, "Ours.", ("pool",), {("m",): [1]})})
    theirs = State("b", {"x": Family(Kind.COUNTER, "Theirs.", ("pool", "worker"), {("m", "w"): [5]})})
    assert merge([ours, theirs]) == ours.families


async def test_run_dumps_and_measures_the_loop(tmp_path: Path) -> None:
    metrics = Metrics("0", tmp_path)
    running = asyncio.create_task(metrics.run())
    async with asyncio.timeout(10):
        while not (tmp_path / "0.bin").exists():
            await asyncio.sleep(0.05)
    running.cancel()
    text = metrics.render()
    assert values(text, "igw_process_resident_bytes")["0",] > 1e6
    assert 0 <= values(text, "igw_event_loop_lag_seconds")["0",] < 10
    metrics.close()
