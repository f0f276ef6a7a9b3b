"""Walks: how schemas are gone through (SPEC R4.1).

Which keywords hold schemas, and where references lead, is said here alone; so are the ways to go: to all that is
applied to one value (`together`) or that can be applied anywhere (`reachable`), from a question to its answer by those
inside (`Walk`), and to a schema written anew (`rewritten`, `Targets`). Schemas share what they refer to, and refer to
themselves: each is gone through once, so that a walk is no longer than the schema, and ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, MutableMapping
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote, unquote

from acts_celery.protocol.language.errors import pointer, segments
from acts_celery.protocol.language.references import Path

Schema = dict[str, Any] | bool
T = TypeVar("T")

REFERENCES: Final = ("$ref", "$dynamicRef")
NAMED: Final = frozenset({"properties", "patternProperties", "dependentSchemas"})
"""Keywords that hold schemas by name."""
DEFINITIONS: Final = frozenset({"$defs", "definitions"})
"""Keywords that do so, and apply none of them."""
LISTED: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
"""Keywords that hold lists of schemas."""
SINGLE: Final = frozenset(
    {"not", "if", "then", "else", "items", "contains", "additionalProperties", "propertyNames"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
"""Keywords that hold one schema."""
IN_PLACE: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")
"""Keywords that apply what they hold to the same value."""
VALUES: Final = frozenset({"const", "enum", "default", "examples"})
"""Keywords that hold values, not schemas."""
_DEEPEST: Final = 100
"""So many schemas, each in the one before, are asked for an answer."""


def found(path: Path, root: Any) -> Any:
    """What stands at a place of a document, whose indexes may be texts; None where there is nothing."""
    for key in map(str, path):
        if isinstance(root, list) and key.isdecimal() and len(key) < 7 and int(key) < len(root):
            root = root[int(key)]
        elif isinstance(root, dict) and key in root:
            root = root[key]
        else:
            return None
    return root


def referred(reference: Any, root: Any) -> Any:
    """What a `$ref` into the same document points at; None where it leads elsewhere or nowhere."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    return found(segments(unquote(reference)), root)


def reference_to(place: Path) -> str:
    """The `$ref` that points at a place of the same document."""
    return "#" + quote(pointer(*place), safe="/~$")


def subschemas(part: dict[str, Any], keywords: Iterable[str] | None = None) -> Iterator[tuple[Path, Any]]:
    """The schemas that a part applies by its keywords or by some of them, each with the way from the part to it."""
    for key in part if keywords is None else filter(part.__contains__, keywords):
        below = part[key]
        if key in NAMED and isinstance(below, dict):
            yield from (((key, name), item) for name, item in below.items())
        elif key in LISTED and isinstance(below, list):
            yield from (((key, index), item) for index, item in enumerate(below))
        elif key in SINGLE:
            yield (key,), below


def in_place(part: dict[str, Any], root: Any, *keywords: str) -> Iterator[Any]:
    """The schemas that a part applies to the same value, by these keywords or by `$ref` into the same document."""
    yield from (below for _, below in subschemas(part, keywords))
    yield from (target for reference in REFERENCES if (target := referred(part.get(reference), root)) is not None)


def spread(
    schemas: Iterable[Any], step: Callable[[dict[str, Any]], Iterable[Any]], *, nearest_first: bool = False
) -> Iterator[Schema]:
    """Schemas, and all those that a step from one to others leads to, each once; what is none is passed over."""
    waiting, seen = deque(schemas), set[int]()
    while waiting:
        part = waiting.popleft()
        if id(part) in seen or not isinstance(part, (dict, bool)):
            continue
        seen.add(id(part))
        yield part
        if isinstance(part, dict):
            waiting.extend(step(part)) if nearest_first else waiting.extendleft([*step(part)][::-1])


def together(schemas: Iterable[Any], root: Any, *keywords: str) -> Iterator[Schema]:
    """Schemas of one place, with those that they apply there by `$ref` into the same document and by keywords: `allOf`
    where none are named, which counts for every value.
    """
    return spread(schemas, lambda part: in_place(part, root, *(keywords or ("allOf",))))


def conjuncts(schemas: Iterable[Any], root: Any) -> list[dict[str, Any]]:
    """The objects among schemas of one place, and among all that they apply there to every value."""
    return [part for part in together(schemas, root) if isinstance(part, dict)]


def applied(schemas: Iterable[Any], root: Any) -> list[dict[str, Any]]:
    """The objects among them and among all others that they may apply there, depending on the value."""
    return [part for part in together(schemas, root, *IN_PLACE) if isinstance(part, dict)]


def reachable(document: Any, entry: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every object that can be applied from an entry on, by keywords and references, with its place; each once."""
    stack = [(entry, found(entry, document))]
    seen: set[int] = set()
    while stack:
        place, part = stack.pop()
        if not isinstance(part, dict) or id(part) in seen:
            continue
        seen.add(id(part))
        yield place, part
        stack.extend(((*place, *way), below) for way, below in subschemas(part))
        for reference in filter(None, map(part.get, REFERENCES)):
            if (target := referred(reference, document)) is not None:
                stack.append((segments(unquote(reference)), target))


class Walk(Generic[T]):
    """A question about schemas. `judge` answers it of one, and asks the walk of those that it holds or refers to.

    Each is asked once; `cyclic` is the answer where a schema leads back to itself, or lies too deep.
    """

    def __init__(self, judge: Callable[[Any], T], cyclic: T, *, deepest: int = _DEEPEST) -> None:
        self._judge = judge
        self._cyclic = cyclic
        self._left = deepest
        self._known: dict[int, tuple[Any, T]] = {}
        """By the identity of a schema, which is kept so that it lasts."""

    def __call__(self, part: Any) -> T:
        """The answer for a schema of a document that does not change."""
        if not isinstance(part, dict):
            return self._judge(part)
        known = self._known.get(id(part))
        if known is None and not self._left:
            return self._cyclic
        if known is None:
            self._left -= 1
            self._known[id(part)] = part, self._cyclic
            known = self._known[id(part)] = part, self._judge(part)
            self._left += 1
        return known[1]


def rewritten(keyword: str, below: Any, anew: Callable[[Any], Any]) -> Any:
    """What stands at a keyword, with each schema in it written anew; what is none stays as it is."""
    if keyword in NAMED | DEFINITIONS and isinstance(below, dict):
        return {name: anew(item) for name, item in below.items()}
    if keyword in LISTED and isinstance(below, list):
        return [anew(item) for item in below]
    return anew(below) if keyword in SINGLE else below


class Targets:
    """What the references of a document lead to, written anew as definitions: each once for every way of writing.

    `name` gives a name for a reference and a way that no definition has yet.
    """

    def __init__(self, document: Any, definitions: MutableMapping[str, Any], name: Callable[[str, Any], str]) -> None:
        self._document = document
        self._definitions = definitions
        self._name = name
        self._names: dict[tuple[str, Hashable], str] = {}
        self._waiting: deque[tuple[str, Any, Callable[[Any], Any]]] = deque()
        self._is_writing = False

    def __call__(self, reference: str, way: Hashable, anew: Callable[[Any], Any]) -> str:
        """The reference to such a definition; the same one again where it does not lead into the document."""
        target = referred(reference, self._document)
        if not isinstance(target, (dict, bool)):
            return reference
        if (reference, way) not in self._names:
            name = self._names[reference, way] = self._name(reference, way)
            self._definitions[name] = True  # its place among them
            self._waiting.append((name, target, anew))
            self._write()
        return reference_to(("$defs", self._names[reference, way]))

    def _write(self) -> None:
        """Write what waits; what is met meanwhile waits in turn, so that a long chain is no deep one."""
        if self._is_writing:
            return
        self._is_writing = True
        while self._waiting:
            name, target, anew = self._waiting.popleft()
            self._definitions[name] = anew(target)
        self._is_writing = False
