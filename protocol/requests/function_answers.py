"""Function answers: what a model has answered by calling functions, as the answer that it is (SPEC R12.6).

    find(city="Omsk", _outputPath="†state.hotel"), output(output="†state.hotel.id")
    {"calls": [{"_tool": "find", "city": "Omsk", "_outputPath": "†state.hotel"}], "output": "†state.hotel.id"}

From there on it is read as any other. Arguments that cannot be read stand in a call as the text that they are, under
`_arguments`: the call is an error, the others run. So do those of the output, beside the calls. What a model says
beside its calls is no part of the answer; where it calls nothing, and the output may be a text, it is the output.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from .answer_texts import Unreadable, decoded
from .functions import OUTPUT, Function
from .request import Request

ARGUMENTS: Final = "_arguments"
"""Where arguments stand that cannot be read, as the text that they are."""
_BEGIN: Final = '{"calls": ['
_NO_CALL: Final = (
    "the answer calls no tool and gives no result: call those of the tools that bring the result nearer, or `output` "
    "with the result"
)


SAYS_NOTHING: Final = (
    "the answer has no calls and no output, so it brings the result no nearer: write the calls that are to be made "
    "next, or the output"
)
"""What is said of such an answer where it is a JSON object: the schema admits it, and it costs a tick (SPEC R12.3)."""


class FunctionAnswer:
    """Writes the answer call by call, so that calls can begin while others are written.

    >>> answer = FunctionAnswer([Function("a.b", "a_b", "", {})])
    >>> answer.call("a_b", '{"x": 1}') + answer.end()
    '{"calls": [{"_tool": "a.b", "x": 1}], "output": null}'
    """

    def __init__(self, functions: Sequence[Function]) -> None:
        self._tools = {function.name: function.tool for function in functions}
        self._with_parameters = {function.name for function in functions if _has_parameters(function)}
        self._has_calls = False
        self._output: str | None = None
        self._unread: str | None = None
        """The arguments of the output, where they cannot be read, or differ from those before."""

    def call(self, name: str, arguments: str) -> str:
        """Take in a call of a function, whose arguments are a JSON text; what it adds to the text of the answer."""
        text = arguments.strip() or ("" if name in self._with_parameters else "{}")
        tool = self._tools.get(name, name)
        if tool is None:
            self._take_output(text)
            return ""
        begin = ", " if self._has_calls else _BEGIN
        self._has_calls = True
        inside = text[1:] if arguments_problem(text) is None else f"{json.dumps(ARGUMENTS)}: {json.dumps(text)}}}"
        comma = "" if inside.lstrip() == "}" else ", "
        return f'{begin}{{"_tool": {json.dumps(tool)}{comma}{inside}'

    @property
    def before_output(self) -> str:
        """What stands between the calls and the output, if no call follows."""
        return f'{"" if self._has_calls else _BEGIN}], "{OUTPUT}": '

    def end(self) -> str:
        """What stands behind the calls. Nothing is added after it."""
        unread = f", {json.dumps(ARGUMENTS)}: {json.dumps(self._unread)}" if self._unread is not None else ""
        output = self._output if self._output is not None and self._unread is None else "null"
        return f"{self.before_output}{output}{unread}}}"

    def _take_output(self, text: str) -> None:
        written = json.dumps(decoded(text)[OUTPUT]) if output_problem(text) is None else None
        if written is None or self._output not in (None, written):
            self._unread = text
        else:
            self._output = written


def _has_parameters(function: Function) -> bool:
    """Whether a call may give it parameters besides meta-properties."""
    own = [name for name in function.parameters.get("properties", ()) if not name.startswith("_")]
    return bool(own) or function.parameters.get("additionalProperties") is not False


def arguments_problem(text: str) -> str | None:
    """Why a text is no arguments of a tool; None where it is."""
    if not text:
        return "its arguments are missing: write {} where it is to be given none"
    try:
        value = decoded(text)
    except Unreadable as error:
        return f"its arguments cannot be read: {error}"
    if not isinstance(value, dict):
        return "its arguments are not a JSON object of parameters"
    return "its arguments have `_tool`, which is the name of the function" if "_tool" in value else None


def output_problem(text: str) -> str | None:
    """Why a text is no arguments of the output; None where it is."""
    try:
        value = decoded(text)
    except Unreadable as error:
        return f"the arguments of {OUTPUT} cannot be read: {error}"
    is_output = isinstance(value, dict) and value.keys() == {OUTPUT}
    return None if is_output else f"{OUTPUT} has one argument, `{OUTPUT}`, which holds the whole result"


def with_words(request: Request, answer: str | Mapping[str, Any], words: str) -> str | Mapping[str, Any]:
    """An answer with what was said beside its calls: that is the output where there are none. Raises `Unreadable` where
    nothing was said, or it cannot be one.
    """
    if not request.is_native:
        return answer
    value = decoded(answer) if isinstance(answer, str) else answer
    if value != {"calls": [], "output": None}:
        return answer
    if not words.strip() or not request.may_say:
        raise Unreadable(_NO_CALL)
    return {"calls": [], "output": words}
