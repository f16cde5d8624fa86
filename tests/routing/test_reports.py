from __future__ import annotations

from gateway.routing.reports import Reports
from gateway.routing.worker import LoadReport
from tests.policies.candidates import worker


def test_report_is_current_until_it_is_stale_since_first_seen():
    told = worker("a", report=LoadReport(0.0))
    reports = Reports(stale_s=10.0)
    reports.keep([told])
    assert reports.current(told, 1000.0) is told.report  # nobody has met it before
    reports.notice(1000.0)
    reports.notice(1005.0)
    assert [reports.current(told, now) for now in (1010.0, 1010.1)] == [told.report, None]


def test_report_that_is_replaced_is_new_again():
    told = worker("a", report=LoadReport(0.0))
    reports = Reports(stale_s=10.0)
    reports.keep([told])
    reports.notice(1000.0)
    told.report = LoadReport(0.0)
    assert reports.current(told, 1020.0) is told.report
    reports.notice(1020.0)
    reports.keep([told, worker("b")])
    assert [reports.current(told, now) for now in (1030.0, 1030.1)] == [told.report, None]


def test_report_of_worker_that_tells_nothing_is_none():
    silent = worker("a")
    reports = Reports(stale_s=10.0)
    reports.keep([silent])
    reports.notice(0.0)
    assert reports.current(silent, 0.0) is None
