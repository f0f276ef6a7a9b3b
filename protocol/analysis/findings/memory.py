"""Memory: what is read off tools and schemas once, and not again for each of a thousand instances.

Kept is only what is the same in all lanes: it hangs on a call, its tool and a schema, and on no value of the context.
Schemas are told apart by identity, which is their own as long as the submission they are part of is there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, TypeVar

from protocol.calls.call import Call
from protocol.calls.tools import Tool
from protocol.language.references import Path
from protocol.schemas import Schema

from .cases import Shape, shape_at
from .demands import Demand, Parameter
from .effects import result_schema, source_of
from .signatures import Signature

T = TypeVar("T")


class Memory:
    """What is known of the tools, delegates and activities of one submission, whichever lane asks first."""

    def __init__(
        self, tools: Mapping[str, Tool], delegates: Mapping[str, Any], signatures: Mapping[str, Signature]
    ) -> None:
        self._tools = tools
        self._delegates = delegates
        self._signatures = signatures
        self._known: dict[Hashable, Any] = {}

    def once(self, key: Hashable, find: Callable[..., T], *arguments: Any) -> T:
        """What a function gave for its arguments when it was first asked for by a key."""
        if key not in self._known:
            self._known[key] = find(*arguments)
        known: T = self._known[key]
        return known

    def result(self, call: Call) -> Shape:
        """What a call promises of its result."""
        return self.once(("result", source_of(call)), self._result, call)

    def demands(self, parameter: Parameter) -> tuple[Demand, ...]:
        """What is admitted at a place of calls."""
        return self.once(("demands", parameter), lambda: tuple(self._demands(parameter)))

    def shape(self, schema: Schema, path: Path = (), *, in_lists: bool = False) -> Shape:
        """What a schema of the submission says of the value at a path; see `shape_at`."""
        return self.once(("shape", id(schema), path, in_lists), self._shape, schema, path, in_lists)

    def _demands(self, parameter: Parameter) -> Iterator[Demand]:
        if (tool := self._tools.get(parameter.tool)) is not None:
            admitted = self.shape(tool.compiled.schema, parameter.path, in_lists=True)
            yield Demand(admitted, admitted)
        if (signature := self._signatures.get(parameter.activity or "")) is not None:
            written, admitted = (
                self.shape(schema, parameter.path, in_lists=True)
                for schema in (signature.exact.schema, signature.convertible.schema)
            )
            yield Demand(written, admitted, f" the signature of its activity {signature.name!r}")

    def _result(self, call: Call) -> Shape:
        return shape_at(result_schema(call, self._tools, self._delegates))

    def _shape(self, schema: Schema, path: Path, in_lists: bool) -> Shape:
        return self.shape(schema).at(path, in_lists=in_lists) if path else shape_at(schema)
