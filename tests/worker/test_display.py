"""What is shown of a result in a shell and in a notebook."""

from __future__ import annotations

from acts_celery import CallResult, CallStatus, Result


def result(calls: list[CallResult], **data: object) -> Result:
    return Result("1-a", "failed", None, data, {"<①>": {"state": {"x": "<b>" * 100}}}, calls)


def call(index: int, status: CallStatus) -> CallResult:
    return CallResult(str(index), index, "echo", None, status, reason="a & b" if status == "failed" else None)


def test_a_result_is_short_in_a_shell() -> None:
    assert repr(result([call(0, "done"), call(1, "failed")])) == "<Result of 1-a: failed, 1 done, 1 failed>"
    assert repr(result([])) == "<Result of 1-a: failed, no calls>"


def test_a_notebook_shows_failures_first_cuts_values_and_escapes_everything() -> None:
    shown = result([*(call(index, "done") for index in range(30)), call(30, "failed")])._repr_html_()
    assert shown.index("<td>30</td><td>echo</td><td></td><td>failed</td><td>a &amp; b</td>") < shown.index("<td>0</td>")
    assert "and 11 more" in shown
    assert "<b>" not in shown.replace("<b>failed</b>", "")
    assert "&lt;①&gt;" in shown
    assert len(shown) < 5_000
