"""Rows in, rows out: a plan runs once for each row of a file, in an instance of its own, and each gives one row back.

Rows are read as a stream. Each few thousand of them are a *part*, one run, and a few parts are under way at a time, so
that memory does not grow with the file. Calls that read in all instances, or run once for all, need all rows in one
run: then there is one part. The id of a part is made from the batch's, and the same id twice is one run: so the same
command goes on where it was cut off, and reads again what has ended.
"""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from .. import limits
from .options import REJECTED, Failed, option
from .output import SHORT, Failures, counted, data_lines, status_word
from .source import decode_submission

if TYPE_CHECKING:
    from ...broker_config import Settings
    from ...protocol import Plan, Problem
    from ..client.results import Result


@dataclass(frozen=True, slots=True)
class RowOptions:
    """The options that make a table of a table."""

    rows: str | None = option(
        "--rows",
        metavar="FILE.csv",
        help="Run once for each row of this CSV file, or file of JSON lines (.jsonl), in an instance of its own; the "
        "row is its input.",
    )
    key: str | None = option("--key", metavar="COLUMN", help="The column that names the instances: with --rows.")

    output: str | None = option(
        "--output", "-o", metavar="FILE", help="Write a row for each row there, as CSV or JSON lines: with --rows."
    )
    columns: tuple[str, ...] = option(
        "--columns",
        metavar="PATH,…",
        multiple=True,
        help="The values to write, such as state.action,state.reply. Default: what the output reads, else all that "
        "calls write.",
    )

    def are_given(self) -> bool:
        """Say whether there are rows. Raises `UsageError` for an option that makes no sense without another."""
        if self.rows is not None and self.key is None:
            raise click.UsageError("--rows needs --key COLUMN, the column that names the instances")
        others = {"--key": self.key, "--output": self.output, "--columns": self.columns}
        if self.rows is None and (lonely := next((name for name, given in others.items() if given), None)):
            raise click.UsageError(f"{lonely} goes with --rows")
        return self.rows is not None

    @property
    def paths(self) -> list[str]:
        """The columns that are asked for."""
        return [path.strip() for text in self.columns for path in text.split(",") if path.strip()]

    def target(self, rows: Path) -> Path | None:
        """Return the file to write, which takes the place of one that is there when all rows are in it; None is
        standard output. Raises `Failed` for one that cannot be.
        """
        if self.output is None:
            return None
        path = Path(self.output)
        if path.exists() and path.samefile(rows):
            raise Failed(f"--output {self.output}: the rows are read from there: give another file", REJECTED)
        if not path.parent.is_dir():
            raise Failed(f"--output {self.output}: there is no folder {path.parent}", REJECTED)
        if path.exists() and not path.is_file():
            raise Failed(f"--output {self.output}: a folder or a device, and no file", REJECTED)
        return path


# Reading rows: CSV or JSON lines, in UTF-8, a line at a time.

LINES: Final = (".jsonl", ".ndjson")
"""The endings of names of files that have a JSON object in each line."""
_NUMBERS: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?\Z", re.ASCII)
_OF_TYPE: Final[Mapping[str, Callable[[Any], bool]]] = {
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "null": lambda value: value is None,
}


class _Fault(Exception):
    """Something that is wrong with a line of the rows."""

    def __init__(self, line: int, message: str, *, is_last: bool = False) -> None:
        self.line = line
        self.is_last = is_last
        """Whether nothing behind the line can be read."""
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Row:
    """One row: the line at which it begins, the instance that it is, its values."""

    line: int
    key: str
    values: Mapping[str, Any]

    @property
    def message(self) -> dict[str, Any]:
        """The input of the instance; under `data`, since a column may have any name."""
        return {"type": "input", "_instance": self.key, "data": self.values}


@dataclass
class RowFile:
    """A file of rows."""

    path: Path
    key: str
    settings: Settings
    types: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The types as which cells of a CSV file are read, by column; all others are texts."""

    @property
    def is_lines(self) -> bool:
        """Whether the file has a JSON object in each line."""
        return self.path.suffix.lower() in LINES

    def parts(self, most: int | None) -> Iterator[list[Row]]:
        """Yield the rows, so many at most at a time and no more than fit into one submission; all at once for None.

        Raises `protocol.Rejected` with the first faults of the file.
        """
        part, size = list[Row](), 0
        for row in self.rows():
            own = len(json.dumps(row.message, ensure_ascii=False))
            if most is not None and part and (len(part) == most or size + own > limits.ROWS_PART_BYTES):
                yield part
                part, size = [], 0
            part.append(row)
            size += own
        if part:
            yield part

    def rows(self) -> Iterator[Row]:
        """Yield the rows. Raises `protocol.Rejected` with the first faults of the file, once it was read."""
        faults, seen, count = list[_Fault](), dict[int, int](), 0
        lines = self._read()
        while len(faults) < limits.MOST_TOLD:
            try:
                line, read = next(lines)
                row = self._row(line, read())
                if (before := seen.setdefault(hash(row.key), line)) != line:
                    raise _Fault(line, f"{self.key} is {_shown(row.key)} as in line {before}: each row needs its own")
            except StopIteration:
                break
            except _Fault as fault:
                faults.append(fault)
                if fault.is_last:
                    break
            else:
                count += 1
                if not faults:
                    yield row
        if not faults and not count:
            faults = [_Fault(1, "has no rows: the first line names the columns, and a row is a line behind it")]
        if faults:
            from ...protocol import Rejected

            raise Rejected([self.problem(fault.line, str(fault)) for fault in faults])

    def problem(self, line: int, text: str) -> Problem:
        """Make the error about a line."""
        from ...protocol import Problem

        return Problem("", f"{self.path}:{line}: {text}")

    def _read(self) -> Iterator[tuple[int, Callable[[], dict[str, Any]]]]:
        """Yield the line of each row, and what reads it: a fault in it does not keep those behind from being read."""
        return self._objects() if self.is_lines else self._cells()

    def _row(self, line: int, values: dict[str, Any]) -> Row:
        from ...protocol.state.context import message_problems

        if self.key not in values:
            raise _Fault(line, f"has no {self.key!r}, which names the instances")
        key = values[self.key]
        name = str(key) if isinstance(key, int) and not isinstance(key, bool) else key
        found = message_problems({"type": "input", "_instance": name if name is not None else "", "data": {}})
        if (problem := next(found, None)) is not None:
            raise _Fault(line, f"{self.key} {_shown(name)} cannot name an instance: {problem.message}")
        return Row(line, name, values)

    def _objects(self) -> Iterator[tuple[int, Callable[[], dict[str, Any]]]]:
        for line, text in self._lines():
            if text.strip():
                yield line, partial(self._object, line, text)

    def _object(self, line: int, text: str) -> dict[str, Any]:
        from ...protocol import Rejected

        try:
            value = decode_submission(text.encode(), self.settings, str(self.path))
        except Rejected as rejected:
            raise _Fault(line, rejected.errors[0].message.removeprefix(f"{self.path}: ")) from None
        if not isinstance(value, dict):
            raise _Fault(line, "a line must be one JSON object")
        return value

    def _cells(self) -> Iterator[tuple[int, Callable[[], dict[str, Any]]]]:
        """Read a CSV file, in which commas, semicolons or tabs are between cells, as in its first line."""
        position = [0]

        def texts(first: str, others: Iterable[tuple[int, str]]) -> Iterator[str]:
            yield first
            for position[0], text in others:
                yield text

        lines = self._lines()
        first = next(lines, (0, ""))[1]
        csv.field_size_limit(int(self.settings.limit_message_bytes))
        reader = csv.reader(texts(first, lines), delimiter=max(",;\t", key=first.count), strict=True)
        begins = 1
        try:
            names = next(reader, [])
            self._require_names(names)
            while True:
                begins = max(position[0], 1) + 1
                cells = next(reader, None)
                if cells is None:
                    return
                if cells:
                    yield begins, partial(self._typed, begins, names, cells)
        except csv.Error as error:
            raise _Fault(begins, f"cannot be read as CSV: {error}", is_last=True) from None

    def _require_names(self, names: Sequence[str]) -> None:
        """Refuse a first line that does not name the columns."""
        from ...protocol.errors import Speller, some_of

        if not any(names):
            raise _Fault(1, "is empty: the first line names the columns", is_last=True)
        if "" in names:
            raise _Fault(1, f"column {names.index('') + 1} has no name", is_last=True)
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise _Fault(1, f"two columns have the name {twice!r}", is_last=True)
        if self.key not in names:
            meant = Speller().hint(self.key, names) or f": there are {some_of(names, limits.MOST_TOLD, repr)}"
            raise _Fault(1, f"has no column {self.key!r}, which --key names{meant}", is_last=True)

    def _typed(self, line: int, names: Sequence[str], cells: Sequence[str]) -> dict[str, Any]:
        if len(cells) != len(names):
            raise _Fault(line, f"has {counted(len(cells), 'cell')}, and the first line names {len(names)} columns")
        return {name: self._value(line, name, cell) for name, cell in zip(names, cells, strict=True)}

    def _value(self, line: int, name: str, cell: str) -> Any:
        """Read a cell as the plan reads it: a text, unless only other types are read there."""
        types = self.types.get(name)
        if not types or name == self.key:
            return cell
        text = cell.strip()
        value = _json_in(text) if text else None
        if not any(_OF_TYPE[each](value) for each in types):
            wanted = " or ".join(sorted(types))
            raise _Fault(line, f"{name} is {_shown(cell)}, where the plan reads {wanted}")
        return value

    def _lines(self) -> Iterator[tuple[int, str]]:
        """Yield the lines of a file in UTF-8, with or without a byte order mark."""
        most = int(self.settings.limit_message_bytes)
        with self.path.open("rb") as stream:
            for number, raw in enumerate(iter(lambda: stream.readline(most + 1), b""), start=1):
                if len(raw) > most:
                    raise _Fault(number, f"is longer than {most} bytes (ACTS_LIMIT_MESSAGE_BYTES)", is_last=True)
                try:
                    yield number, (raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw).decode()
                except UnicodeDecodeError as error:
                    text = f"is not UTF-8 (byte 0x{error.object[error.start]:02x}): save the file as UTF-8"
                    raise _Fault(number, text, is_last=True) from None


def _json_in(text: str) -> Any:
    """Read a number, true or false in any case, an object or a list; else return the text."""
    word = text.lower() if text.lower() in ("true", "false") else text
    if word[:1] not in ("t", "f", "{", "[") and not _NUMBERS.match(word):
        return text
    try:
        return json.loads(word)
    except (ValueError, RecursionError):
        return text


def _shown(value: Any) -> str:
    from ...protocol.errors import shortened

    return shortened(json.dumps(value, ensure_ascii=False), limits.PROGRESS_SHOWN)


def row_file(options: RowOptions, settings: Settings) -> RowFile:
    """Make the file of rows that options name. Raises `Failed` for what is no file: rows are read twice."""
    path = Path(options.rows or "")
    if not path.is_file():
        what = "is no file, and rows are read twice" if path.exists() or options.rows == "-" else "no such file"
        raise Failed(f"--rows {options.rows}: {what}", REJECTED)
    return RowFile(path, options.key or "", settings)


# The plan of each row: what each instance runs, how cells are read, and which values are written.


@dataclass
class RowPlan:
    """A submission that rows are put into, and what follows from it for the rows."""

    document: Any
    outputs: tuple[str, ...]
    """The places that its output reads."""
    check: Callable[[Any], Plan]

    @classmethod
    def of(cls, value: Any, check: Callable[[Any], Plan]) -> RowPlan:
        """Read a submission. The calls of a solution run once for each row, and its output is what columns show;
        unless some of them have an instance or gather: then each runs as it says.
        """
        from ...protocol.plan.submission import shaped

        document, _ = shaped(value)
        solution = document.get("solution") if isinstance(document, dict) else None
        calls = solution.get("calls") if isinstance(solution, dict) else None
        if not isinstance(solution, dict) or not isinstance(calls, list) or not all(map(_may_run_anywhere, calls)):
            return cls(value, (), check)
        spread = {"calls": [{**call, "_instance": "*"} for call in calls]}
        whole = {key: part for key, part in document.items() if key != "schema"} | {"solution": spread}
        return cls(whole, tuple(dict.fromkeys(_places_in(solution.get("output")))), check)

    def with_rows(self, rows: Iterable[Row]) -> Any:
        """Put the inputs of rows behind the context."""
        context = self.document.get("context", []) if isinstance(self.document, dict) else None
        if not isinstance(context, list):
            return self.document  # the check reports what is wrong
        return self.document | {"context": [*context, *(row.message for row in rows)]}

    def checked(self, file: RowFile, rows: Sequence[Row]) -> Plan:
        """Check the plan with these rows. Raises `protocol.Rejected`; what is wrong with a row names its line."""
        from ...protocol import Rejected
        from ...protocol.errors import segments

        value = self.with_rows(rows)
        try:
            return self.check(value)
        except Rejected as rejected:
            own = len(value["context"]) - len(rows) if isinstance(value, dict) and "context" in value else 0
            errors: list[Problem] = []
            for each in rejected.errors:
                match segments(each.pointer):
                    case ("context", at, *_) if at.isdecimal() and int(at) >= own:
                        errors.append(file.problem(rows[int(at) - own].line, each.message))
                    case _:
                        errors.append(each)
            rejected.errors = tuple(errors)
            raise


def _may_run_anywhere(call: Any) -> bool:
    return isinstance(call, dict) and call.get("_instance") is None and not call.get("_gather")


def _places_in(value: Any) -> Iterator[str]:
    """Yield the places that an output reads."""
    from ...protocol import ExpressionError
    from ...protocol.templates import expressions_in

    if isinstance(value, str):
        try:
            yield from (str(place) for expression in expressions_in(value) for place in expression.references)
        except ExpressionError as error:
            raise Failed(f"/solution/output: {error}", REJECTED) from None
    for below in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _places_in(below)


def types_read(plan: Plan) -> dict[str, frozenset[str]]:
    """Find the types as which a plan reads the fields of its input, by its declared input, else by the parameters that
    read them; a field that may be a text is left out.
    """
    from ...protocol.calls.declarations import input_schema
    from ...protocol.errors import segments
    from ...protocol.paths import lookup
    from ...protocol.references import is_expression
    from ...protocol.schemas.walk import applied, properties_in, schemas_at

    found = dict[str, list[frozenset[str]]]()
    for call in plan.calls:
        if (tool := plan.tools.get(call.tool)) is None:
            continue
        for at, expression in call.reads:
            place, path = expression.references[0], segments(at)
            is_alone = len(expression.references) == 1 and is_expression(lookup(call.parameters, path))
            if is_alone and place.kind == "input" and len(place.path) == 1:
                types = _types_of(schemas_at(tool.document, path), tool.document)
                found.setdefault(str(place.path[0]), []).append(types)
    types_of = {name: frozenset[str]().union(*some) for name, some in found.items() if all(some)}
    if isinstance(schema := input_schema(plan.submission.context), dict):
        declared = properties_in(applied((schema,), schema))
        types_of |= {name: _types_of(parts, schema) for name, parts in declared.items()}
    return {name: types for name, types in types_of.items() if types and "string" not in types}


def _types_of(schemas: Iterable[Any], root: Any) -> frozenset[str]:
    """List the types that schemas of one place name; none where any is possible."""
    from ...protocol.schemas.walk import applied

    named = [part["type"] for part in applied(schemas, root) if "type" in part]
    return frozenset(name for some in named for name in ([some] if isinstance(some, str) else some))


def columns_of(plan: Plan, asked: Sequence[str], outputs: Sequence[str]) -> list[str]:
    """Choose the places that a row is made of. Raises `Failed` for one that nothing brings."""
    from ...protocol import ExpressionError
    from ...protocol.near_misses import KnownPlaces
    from ...protocol.references import DAGGER
    from ...protocol.state.scopes import read_scope

    own = (str(place) for call in plan.calls if not call.gather for place in call.written)
    places = KnownPlaces(plan)
    for path in asked:
        try:
            place = read_scope(path if path.startswith(DAGGER) else DAGGER + path)
        except ExpressionError as error:
            raise Failed(f"--columns: {error}", REJECTED) from None
        if not places.has(place):
            near = places.nearest(place)
            hint = f", did you mean {near}?" if near is not None else ""
            raise Failed(f"--columns: no call writes {place}, and the context does not hold it{hint}", REJECTED)
    return list(dict.fromkeys(asked or outputs or own))


@dataclass(frozen=True, slots=True)
class Survey:
    """Facts about all rows, gathered before the first one runs."""

    plan: Plan
    """The plan of the first part."""
    row_plan: RowPlan
    columns: tuple[str, ...]
    part: int | None
    """The most rows of a part; None for all of them."""
    sizes: tuple[int, ...]
    """How many rows each part has."""

    @classmethod
    def of(cls, plan: RowPlan, file: RowFile, asked: Sequence[str]) -> Survey:
        """Read and check all rows; the file then reads cells as the plan does. Raises `protocol.Rejected`, `Failed`."""
        rows = next(file.parts(1))
        first = plan.checked(file, rows)
        if own := [name for name in first.submission.instances if name != rows[0].key]:
            raise Failed(f"the plan has instances of its own, such as {own[0]!r}, and rows are instances", REJECTED)
        file.types = types_read(first)
        columns, most = columns_of(first, asked, plan.outputs), _rows_of_a_part(first, file.settings)
        checked = None
        sizes = []
        for rows in file.parts(most):
            of_part = plan.checked(file, rows)
            checked = checked or of_part
            sizes.append(len(rows))
        assert checked is not None, "a file without rows is rejected"
        return cls(checked, plan, tuple(columns), most, tuple(sizes))

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(self.sizes)

    def ids(self, batch: str) -> list[str]:
        """Make the ids of the parts from the batch's."""
        return [f"{batch}.{number}" for number in range(1, len(self.sizes) + 1)]

    @property
    def ahead(self) -> int:
        """How many parts may be under way; one where the plan limits what is at work in a run."""
        return 1 if self.plan.submission.config.get("max_concurrency") is not None else limits.ROWS_AHEAD

    @property
    def calls(self) -> int:
        """How many calls a row has."""
        return next((len(lane.calls) for name, lane in self.plan.lanes.items() if name is not None), 0)


def _rows_of_a_part(plan: Plan, settings: Settings) -> int | None:
    """Say how many rows may be one run; None is all: where calls run once for all rows, or read in each of them."""
    is_whole = plan.submission.is_request or (None in plan.lanes and bool(plan.lanes[None].calls))
    return None if is_whole else min(limits.ROWS_PART, settings.limit_instances)


# What comes back: sums, and a row for each row.


@dataclass
class RowBatch:
    """All that is known of the parts of a batch."""

    id: str
    rows: int = 0
    runs: list[str] = field(default_factory=list)
    """The ids of the parts, in order."""
    statuses: Counter[str] = field(default_factory=Counter)
    """Rows that have come back, by status."""
    failures: Failures = field(default_factory=Failures)
    global_data: dict[str, Any] = field(default_factory=dict)
    """The global data, where all rows are one run: gathered values."""
    has_failed: bool = False
    """Whether a run has failed, which may also be for a call that is no row's."""

    @property
    def done(self) -> int:
        """How many rows have come back."""
        return self.statuses.total()

    @property
    def is_completed(self) -> bool:
        """Whether every row, and all that runs once for them, has completed."""
        return not self.has_failed and self.statuses["completed"] == self.rows

    def take(self, result: Result) -> None:
        """Count the results of a part."""
        self.has_failed |= result.status != "completed"
        self.statuses.update(result.instance_status.values())
        for error in result.errors:
            self.failures.add(error.tool, {"type": error.type, "message": error.message}, error.instance)
        self.global_data = dict(result.global_data) if len(self.runs) == 1 else {}

    def to_dict(self) -> dict[str, Any]:
        """Write the sums as JSON."""
        return {
            "run": self.id,
            "status": "completed" if self.is_completed else "failed",
            "runs": self.runs,
            "rows": {"total": self.rows, **self.statuses},
            "failures": self.failures.to_list(),
            "global": self.global_data,
        }

    def lines(self) -> Iterator[str]:
        """Yield the sums for people."""
        listed = ", ".join(f"{count} {status}" for status, count in self.statuses.items())
        status = status_word("completed" if self.is_completed else "failed")
        yield f"{status}  run {self.id}, {counted(self.rows, 'row')}: {listed}"
        if len(self.runs) > 1:
            yield f"  {len(self.runs)} runs, {self.runs[0]} to {self.runs[-1]}"
        yield from self.failures.lines()
        yield from data_lines("global", self.global_data, SHORT)


_FORMULA: Final = re.compile(r"[=+\-@\t\r\n](?!\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\Z)|[=@\t\r\n]", re.ASCII)
"""The beginning of a cell that a spreadsheet may take for a formula, except a number with a sign."""


def cell(value: Any) -> str:
    """Write a value as a cell of CSV: a text as it is, nothing for null, other values as JSON.

    A text that a spreadsheet would take for a formula gets an apostrophe before it: values come from models and from
    other people's data.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return f"'{value}" if _FORMULA.match(value) else value


class RowWriter:
    """Writes rows as CSV, or as JSON lines."""

    def __init__(self, write: Callable[[str], object], key: str, *, as_lines: bool) -> None:
        self._write = write
        self._key = key
        self._as_lines = as_lines
        self._has_names = False

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write rows of a result's table; the column of the instances has the name of the key, if no other has it."""
        text = StringIO()
        table = csv.writer(text, lineterminator="\n")
        for row in rows:
            key = self._key if self._key not in row else "instance"
            named = {key if name == "instance" else name: value for name, value in row.items()}
            if self._as_lines:
                text.write(json.dumps(named, ensure_ascii=False) + "\n")
                continue
            if not self._has_names:
                table.writerow(map(cell, named))
                self._has_names = True
            table.writerow(map(cell, named.values()))
        self._write(text.getvalue())
