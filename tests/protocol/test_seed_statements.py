"""What the original documents say holds, of documents and of models' answers on both wires (see `statements`)."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from acts_celery.protocol import Rejected

from .statements import STATEMENTS, TESTS, Seen, Statement, answered, checked, rows


def test_every_statement_is_here_once() -> None:
    assert [one.number for one in STATEMENTS] == list(range(1, 136))
    assert len({one.says for one in STATEMENTS}) == len(STATEMENTS)


@pytest.mark.parametrize("one", rows(lambda one: not one.elsewhere))
def test_a_statement_holds_of_a_document(one: Statement) -> None:
    if one.wrong:
        with pytest.raises(Rejected) as rejected:
            checked(one)
        assert one.wrong in [problem.pointer for problem in rejected.value.errors]
    else:
        assert one.sees(Seen(checked(one)))


@pytest.mark.parametrize("wire", ["json", "tools"])
@pytest.mark.parametrize("one", rows(lambda one: one.can_be_answered))
def test_a_statement_holds_of_a_models_answer(one: Statement, wire: str) -> None:
    answer = answered(one, wire)
    assert answer.errors == ()
    assert one.sees(Seen(replace(answer.layout, submission=replace(answer.layout.submission, is_in_loop=False))))


@pytest.mark.parametrize("one", rows(lambda one: one.elsewhere))
def test_a_statement_that_takes_more_than_the_core_names_its_test(one: Statement) -> None:
    file, _, name = one.elsewhere.partition("::")
    text = (TESTS / file).read_text("utf-8")
    assert re.search(rf"^(async )?def {name or 'test_'}", text, re.MULTILINE)
