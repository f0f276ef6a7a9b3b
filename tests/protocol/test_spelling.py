"""Near names are looked for as long as that does not take too long (SPEC R7.1)."""

from __future__ import annotations

from itertools import count, takewhile

from acts_celery.protocol.errors import Speller


def test_the_longer_the_names_the_fewer_are_compared() -> None:
    def found(length: int) -> int:
        speller, name = Speller(), "".join(map(chr, range(0x100, 0x100 + length)))
        return sum(1 for _ in takewhile(bool, (speller.nearest(name, [name]) for _ in count())))

    assert found(20) > 30 * found(100) > 0


def test_very_long_names_are_compared_with_nothing_and_cost_nothing() -> None:
    speller, names = Speller(), ["name", "n" * 101]
    for _ in range(1_000):
        assert speller.hint("n" * 101, names) == ""
    assert speller.hint("nmae", names) == ", did you mean 'name'?"
