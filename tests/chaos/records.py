"""What the workload's activities have noted about their executions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Note:
    """A line: somebody began an execution of a call, or came to its end."""

    at: float
    """Seconds since the epoch."""
    pid: int
    group: int
    is_beginning: bool
    mark: str


@dataclass(frozen=True)
class Records:
    """All lines so far, in the order in which they were written."""

    notes: Sequence[Note]

    @classmethod
    def read(cls, path: Path) -> Records:
        """Read the file that the workers write to."""
        if not path.exists():
            return cls(())
        whole = path.read_text("utf-8").rpartition("\n")[0]  # the last line may still be being written
        return cls([_note(line) for line in whole.splitlines()])

    @cached_property
    def begun(self) -> Counter[str]:
        """How often the execution of each call was begun."""
        return Counter(note.mark for note in self.notes if note.is_beginning)

    @cached_property
    def done(self) -> Counter[str]:
        """How often an execution of each call came to its end."""
        return Counter(note.mark for note in self.notes if not note.is_beginning)

    @property
    def under_way(self) -> list[Note]:
        """Beginnings whose end is not noted."""
        latest = {note.mark: note for note in self.notes}
        return [note for note in latest.values() if note.is_beginning]

    @cached_property
    def executions(self) -> list[tuple[str, float, float]]:
        """The mark of each execution, its beginning and its end; one without an end is taken to end at once."""
        found, open_ = list[tuple[str, float, float]](), dict[tuple[str, int], list[int]]()
        for note in self.notes:
            own = open_.setdefault((note.mark, note.pid), [])
            if note.is_beginning:
                own.append(len(found))
                found.append((note.mark, note.at, note.at))
            else:
                place = own.pop(0)
                found[place] = (*found[place][:2], note.at)
        return found

    def recoveries(self, killed_at: float, processes: frozenset[int]) -> list[float]:
        """For each call that died with these processes and was begun again: seconds from the kill until then."""
        own = [note for note in self.notes if {note.pid, note.group} & processes and note.at <= killed_at]
        ended = {note.mark for note in own if not note.is_beginning}
        orphans = {note.mark for note in own if note.is_beginning} - ended
        again: dict[str, float] = {}
        for note in self.notes:
            if note.is_beginning and note.mark in orphans and note.at > killed_at:
                again.setdefault(note.mark, note.at - killed_at)
        return list(again.values())


def _note(line: str) -> Note:
    at, pid, group, event, mark = line.split(" ")
    return Note(float(at), int(pid), int(group), event == "begun", mark)
