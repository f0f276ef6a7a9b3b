"""What a tool gives, as MCP has it: structured content, and the same as a text; or an error as a text of JSON.

Values that others wrote (SPEC R16) are data in it, and nowhere else. What is said of an error is what the pages say: a
sentence that tells what to do, and nothing of the inside.
"""

from __future__ import annotations

from typing import Any

from mcp_types import CallToolResult, TextContent
from pydantic import ValidationError

from acts_celery.protocol import Rejected
from acts_celery.worker.web.reading import encoded
from acts_celery.worker.web.refusals import Refused, document, refusal

from .reading import problems


def answer(found: dict[str, Any]) -> CallToolResult:
    """What a tool has given."""
    return CallToolResult(content=[_text(encoded(found).decode())], structured_content=found)


def failure(error: Exception, tool: str) -> CallToolResult:
    """What went wrong, for the client to read."""
    if isinstance(error, ValidationError):
        wrong = (f"{'/'.join(map(str, each['loc'])) or 'arguments'}: {each['msg']}" for each in error.errors())
        error = Refused(400, "BadArguments", f"{tool} is not called in this way: {'; '.join(wrong)}"[:2_000])
    found = document(refusal(error))
    if isinstance(error, Rejected):
        found["error"]["message"] = "the submission is refused, and nothing of it runs"
        found["error"] |= problems(error)
    return CallToolResult(content=[_text(encoded(found).decode())], is_error=True)


def _text(text: str) -> TextContent:
    return TextContent(type="text", text=text)
