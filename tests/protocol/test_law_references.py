"""Laws of references (SPEC R2): printing and parsing are inverse, and a text that does not parse says where."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from acts_celery.protocol import Expression, ExpressionError, Reference, parse
from acts_celery.protocol.references import parse_output_path

from . import naive
from .laws import law
from .strategies import expressions, references


@law
@given(expressions)
def test_parsing_what_was_printed_gives_the_same_expression(expression: Expression) -> None:
    text = str(expression)
    assert parse(text) == expression
    assert parse_output_path(text) == expression
    assert str(parse(text)) == text


@given(expressions)
def test_the_parser_agrees_with_a_reader_of_its_own(expression: Expression) -> None:
    assert naive.places(str(expression)) == [[(r.kind, r.path) for r in group] for group in expression.alternatives]


@given(st.text("†ab.0[]\"\\ |&u d8'", max_size=12))
def test_a_text_either_parses_and_prints_the_same_again_or_is_an_error_with_a_place_in_it(text: str) -> None:
    for parser in (parse, parse_output_path):
        try:
            expression = parser(text)
        except ExpressionError as error:
            position = error.position
        else:
            assert parser(str(expression)) == expression
            position = len(text)
        assert 0 <= position <= len(text)


@given(expressions, st.lists(st.sampled_from(["", " ", "\t", "\n ", "\u00a0"]), min_size=1, max_size=6))
def test_white_space_around_operators_changes_nothing(expression: Expression, spaces: list[str]) -> None:
    taken = iter(spaces * 20)

    def joined(operator: str, parts: list[str]) -> str:
        text = parts[0]
        for part in parts[1:]:
            text += next(taken) + operator + next(taken) + part
        return text

    text = joined("||", [joined("&&", list(map(str, group))) for group in expression.alternatives])
    assert parse(text) == expression
    assert str(parse(text)) == str(expression)


@given(references, references)
def test_overlapping_is_mutual_and_means_that_one_path_begins_the_other(one: Reference, other: Reference) -> None:
    assert one.overlaps(other) is other.overlaps(one)
    assert one.overlaps(one)
    assert one.overlaps(other) is naive.overlap((one.kind, one.path), (other.kind, other.path))
