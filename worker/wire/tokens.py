"""Tokens of remote attempts: what shows that a result or a report comes from the worker that was given the call.

Run, instance and call stand in task events and logs, for operators. A process that overhears them could answer for a
call that was never given to it. So the message of each remote attempt carries a token, and what comes back is refused
without it. It is made by HMAC-SHA256 from the log's secret, which never leaves the log: nothing needs to be stored for
it, and the results of earlier attempts keep theirs.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace
from functools import lru_cache
from typing import Final

from .attempts import Attempt, lane_token

_CHARACTERS: Final = 32
"""Of a token: 128 bits in hexadecimal."""
_LONGEST_AGAIN: Final = 16
"""Digits."""
_RUNS_KEPT: Final = 64
"""The seals of so many runs are made once."""


class Tokens:
    """The tokens of all attempts of one backend. A run's seal says, too, when it was `born`, that is submitted: another
    one may have its id once it is deleted.
    """

    def __init__(self, secret: bytes, born: str = "") -> None:
        self._secret = secret
        self._born = born
        self._seal = lru_cache(_RUNS_KEPT)(lambda run: seal_of(self.cancelling(run)))

    def of(self, run: str, lane: str, call: int, number: int, again: int = 0) -> str:
        """The token of an attempt at a call; `again` as in `Attempt`."""
        text = "\x1f".join((run, str(call), f"{number}+{again}" if again else str(number), lane)).encode()
        return hmac.digest(self._secret, text, "sha256").hex()[:_CHARACTERS]

    def given(self, attempt: Attempt) -> Attempt:
        """The same attempt, with its token and its run's seal."""
        return replace(attempt, token=self._of(attempt), seal=self._seal(attempt.id.run))

    def of_run(self, born: str) -> Tokens:
        """The same, with the seals of a run that was submitted then."""
        return Tokens(self._secret, born)

    def admit_shown(self, run: str, lane: str, call: int, number: int, shown: str) -> bool:
        """Whether a report of an attempt shows the right token (see `shown_token`)."""
        again, _, token = shown.rpartition(".")
        if again and not (again.isascii() and again.isdecimal() and len(again) <= _LONGEST_AGAIN):
            return False
        return self.agree(self.of(run, lane, call, number, int(again or 0)), token)

    def admit_seal(self, run: str, seal: str) -> bool:
        """Whether a report with that seal is of the run that has its id now. Workers of versions before show none, and
        clients of versions before made it without the run's birth.
        """
        return not seal or any(self.agree(seal, one._seal(run)) for one in (self, Tokens(self._secret)))

    def of_probe(self, queue: str, published_ms: int) -> str:
        """The token of a probe: it comes out of its queue, and nowhere else."""
        text = f"\x1fprobe\x1f{published_ms}\x1f{queue}".encode()
        return hmac.new(self._secret, text, hashlib.sha256).hexdigest()[:_CHARACTERS]

    def cancelling(self, run: str) -> str:
        """The key of a run's cancellation: shown when the run is cancelled, and not before (see `cancellation`)."""
        return hmac.new(self._secret, f"\x1fcancel\x1f{run}\x1f{self._born}".encode(), hashlib.sha256).hexdigest()

    def admit(self, attempt: Attempt) -> bool:
        """Whether an attempt that came from outside has the right token."""
        return self.agree(self._of(attempt), attempt.token)

    def is_of_run(self, attempt: Attempt) -> bool:
        """Whether an attempt has the seal of the run that has its id now, and not that of one that was deleted."""
        return self.agree(self._seal(attempt.id.run), attempt.seal)

    @staticmethod
    def agree(right: str, given: str) -> bool:
        """Compare two tokens in a time that says nothing of them."""
        return hmac.compare_digest(right.encode(), given.encode())

    def _of(self, attempt: Attempt) -> str:
        id_ = attempt.id
        return self.of(id_.run, lane_token(id_.instance), id_.index, attempt.number, attempt.again)


def shown_token(attempt: Attempt) -> str:
    """The token of an attempt as reports show it: before it stands how often the call had ended before, where it is
    carried out again, since nothing else in a report says so.
    """
    return f"{attempt.again}.{attempt.token}" if attempt.again else attempt.token


def seal_of(key: str) -> str:
    """What remote calls carry of the key of their run's cancellation: who has the seal cannot make the key."""
    return hashlib.sha256(key.encode()).hexdigest()[:_CHARACTERS]
