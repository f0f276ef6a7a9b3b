"""Files beside a run's log, by their digests, and the messages that show them (see `protocol.language.files`).

A request in the log names its files; what is published has them, so whoever asks the model needs no log.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from acts_celery.protocol.language.files import file_parts, is_file, with_changed


class FileGone(Exception):
    """A file that a request shows is not there any more."""


def filled(messages: Iterable[Mapping[str, Any]], contents: Mapping[str, bytes]) -> list[Mapping[str, Any]]:
    """Messages with their files in base64. Raises `FileGone`."""
    found = [*messages]
    for part in file_parts(found):
        if part.get("digest") not in contents:
            raise FileGone(f"the file {part['file']!r} is not there: its run has none of that digest")

    def with_data(part: Any) -> Any:
        return {**part, "data": base64.b64encode(contents[part["digest"]]).decode()} if is_file(part) else part

    return [with_changed(message, with_data) for message in found]
