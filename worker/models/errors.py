"""What can go wrong with a request to a model, each with what happens next (SPEC R13.4).

| error | what | next |
|---|---|---|
| `RateLimited` | 429, but for a spent quota | asked again, after `Retry-After` or a backoff, until `request_seconds` |
| `Unreachable` | no connection, one that broke, 5xx, no answer in time | the same |
| `BadRequest` | 400-404, 501, a spent quota, a page for people | the run fails, in the provider's words |
| `ContextTooLong` | 400, 413: more than the model takes at once | the same, with what to do |
| `Refused` | the model or the provider will not answer this | the error of a loop's tick; a delegate's call fails |
| `Truncated` | the answer was cut off, by its length or by the connection | the same |
| `InvalidAnswer` | no JSON, not what the schema demands, too large | the same |
"""

from __future__ import annotations

from typing import ClassVar, Final

from acts_celery.worker.errors import CallFailed

from .request import Answer

TOO_LONG: Final = "give the request less context (config.show_bytes cuts values) or less to write, or a larger model"
"""What to do about `ContextTooLong`."""


class ModelError(CallFailed):
    """A request that was not answered. `answer` is what came of it and has to be paid for, where anything did.

    No policy of a call tries it again: what another attempt may help has been tried until the request's deadline.
    """

    is_transient: ClassVar[bool] = False
    """Whether the same request may be answered later."""
    status: int | None = None
    """HTTP's, where the server has said one."""

    def __init__(self, message: str, *, answer: Answer | None = None, retry_after_seconds: float | None = None) -> None:
        super().__init__(message, retry=False)
        self.answer = answer
        self.retry_after_seconds = retry_after_seconds


class RateLimited(ModelError):
    """The provider takes no more requests for now."""

    is_transient = True


class Unreachable(ModelError):
    """The provider does not answer, or not with what it should."""

    is_transient = True


class BadRequest(ModelError):
    """The provider will not take the request as it is, and says why."""


class ContextTooLong(BadRequest):
    """The request is longer than the model can read at once."""


class Refused(ModelError):
    """The model declines to answer."""


class Truncated(ModelError):
    """The answer ends before its end; `answer` has what there is."""


class InvalidAnswer(ModelError):
    """The answer is not what was asked for."""
