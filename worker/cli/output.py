"""Output: what goes to stdout and stderr, and in which form.

stdout is for results: JSON in UTF-8 whatever the locale, or text that is coloured on a terminal only. stderr is for
people: one line for each thing said. Text from a submission is shown with its control characters escaped, so that a
value cannot rewrite the terminal or fake a line.
"""

from __future__ import annotations

import errno
import os
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, Final, TextIO

import click

LONGEST_LINE: Final = 1_000
"""Characters of one error line on stderr; machine output is never cut."""

# The zero-width joiners are part of words and of emoji; everything else that cannot be seen is escaped.
_JOINERS: Final = "\u200c\u200d"


class OutputFailed(Exception):
    """stdout cannot be written to; `is_closed` where its reader has closed it (`acts log … | head`)."""

    def __init__(self, error: OSError) -> None:
        self.is_closed = error.errno in (errno.EPIPE, errno.ECONNRESET)
        super().__init__(f"the output cannot be written: {error.strerror}")


def prepare_streams() -> None:
    """Make both streams accept every character, whatever the locale's encoding, and standard input every byte."""
    for stream, errors in ((sys.stdin, "replace"), (sys.stdout, "backslashreplace"), (sys.stderr, "backslashreplace")):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=errors)


def print_json(value: Any) -> None:
    """Write one JSON document on one line of stdout; whatever cannot be seen in it is escaped, which JSON allows."""
    from acts_celery.protocol.language.visible import json_text

    # A lone surrogate, which UTF-8 cannot hold, becomes `\udXXX`: the very escape that JSON has for it.
    text = json_text(value) + "\n"
    with _writing() as stream:
        stream.flush()
        stream.buffer.write(text.encode("utf-8", "backslashreplace"))


def print_text(text: str = "") -> None:
    """Write text and a line end to stdout; colours stay only where it is a terminal."""
    with _writing() as stream:
        stream.write((text if is_coloured(stream) else click.unstyle(text)) + "\n")


def print_lines(lines: Iterable[str]) -> None:
    """Write lines to stdout, in the same way."""
    for line in lines:
        print_text(line)


def print_either(document: Any, lines: Iterable[str], *, as_json: bool) -> None:
    """Write a document to stdout as JSON, or the lines that say it to people."""
    if as_json:
        print_json(document)
    else:
        print_lines(lines)


def tell(message: str) -> None:
    """Write one line to stderr, `message` made fit to be one."""
    line = escaped(" ".join(message.split()))
    if len(line) > LONGEST_LINE:
        line = line[: LONGEST_LINE - 1] + "…"
    write_error(f"acts: {line}\n")


def write_error(text: str) -> None:
    """Write to stderr as it is; where that is closed, nothing is written."""
    try:
        # Not `sys.stderr`: in a worker, Celery's log has taken its place.
        if sys.__stderr__ is not None:
            sys.__stderr__.write(text)
            sys.__stderr__.flush()
    except (OSError, ValueError):
        pass


def confirmed(question: str) -> None:
    """Ask on a terminal, and end the command where the answer is no; a script is not asked."""
    if sys.stdin is not None and sys.stdin.isatty():
        click.confirm(question, abort=True, err=True)


def flush() -> None:
    """Write out what stdout still holds."""
    with _writing() as stream:
        stream.flush()


def detach_stdout() -> None:
    """Let what can no longer be written go nowhere, instead of failing when the interpreter ends."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)


def is_coloured(stream: TextIO) -> bool:
    """Whether a stream is a terminal that shows colours, and no variable turns them off (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def escaped(text: str) -> str:
    """The text with everything that is not a visible character or a space written as Python writes it in a string."""
    if text.isascii() and text.isprintable():
        return text
    from acts_celery.protocol.language.visible import INVISIBLE

    def is_shown(character: str) -> bool:
        if character.isprintable():
            return INVISIBLE.match(character) is None
        return character in _JOINERS or unicodedata.category(character) == "Zs"

    return "".join(each if is_shown(each) else each.encode("unicode_escape").decode() for each in text)


@contextmanager
def nothing_on_stdout() -> Iterator[None]:
    """Send what foreign code prints (an activities file when it is imported) to stderr."""
    with redirect_stdout(sys.stderr):
        yield


@contextmanager
def _writing() -> Iterator[TextIO]:
    """stdout, its errors as `OutputFailed`; one that was closed before we started swallows everything."""
    if sys.stdout is None:
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
            yield nowhere
        return
    try:
        yield sys.stdout
    except OSError as error:
        raise OutputFailed(error) from error
