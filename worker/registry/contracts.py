"""Contracts of activities and delegates as a document: what workers announce, and a client without their code reads.

A worker answers Celery's remote-control command `acts_contracts`: with a digest of its contracts, or with the whole. A
client asks all workers for the digest, and one worker of each digest for the whole. Whatever it reads, the workers hold
each call against their own contract before they run it (SPEC R17.3): an answer can only make a check milder or
stricter.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Final

from ...broker_config import Settings
from ...protocol.calls.declarations import digest_of
from ...protocol.errors import some_of
from .. import limits
from ..errors import ContractsError
from .activities import Activity, Delegate, Policy, Registry

COMMAND: Final = "acts_contracts"
_KINDS: Final = ("activities", "delegates")


def contracts_of(known: Registry) -> dict[str, Any]:
    """Write the contracts of what is registered as JSON."""
    activities = {
        one.name: {"schema": one.schema, "queue": one.queue, "version": one.version, "policy": asdict(one.policy)}
        | ({"undo": one.undo} if one.undo is not None else {})
        for one in known.activities.values()
    }
    delegates = {
        one.name: {"version": one.version, "gives_result": one.gives_result} for one in known.delegates.values()
    }
    document = {"format": limits.CONTRACTS_FORMAT, "activities": activities, "delegates": delegates}
    written: dict[str, Any] = json.loads(json.dumps(document, default=str))
    return written


def announcement(known: Registry, *, whole: bool) -> dict[str, Any]:
    """Write what a worker answers: the digest of its contracts, or the whole."""
    document = contracts_of(known)
    digest = digest_of(json.dumps(document, sort_keys=True).encode())
    return {**document, "digest": digest} if whole else {"format": limits.CONTRACTS_FORMAT, "digest": digest}


# Reading a document: a registry whose functions are elsewhere.


def read_contracts(document: Any, source: str) -> Registry:
    """Make a registry of contracts; `source` says where the document came from. Raises `ContractsError`."""
    written = document.get("format") if isinstance(document, Mapping) else None
    if not isinstance(written, int):
        raise ContractsError(f"{source}: not contracts; `acts contracts --json` writes them")
    if written > limits.CONTRACTS_FORMAT:
        raise ContractsError(
            f"{source}: contracts of format {written}, where this version of acts-celery reads "
            f"{limits.CONTRACTS_FORMAT}: it is older than the workers, so update it here"
        )
    known = Registry()
    known.origin = source
    try:
        known.activities = {name: _activity(name, said) for name, said in document["activities"].items()}
        known.delegates = {
            name: Delegate(name, _giving if said["gives_result"] else _elsewhere, given_version=str(said["version"]))
            for name, said in document["delegates"].items()
        }
    except Exception as error:  # it was written elsewhere, and may be anything
        raise ContractsError(f"{source}: contracts that cannot be read ({type(error).__name__}: {error})") from error
    return known


def read_contracts_file(path: str | PathLike[str]) -> Registry:
    """Read a file that `acts contracts --json` has written. Raises `ContractsError`."""
    try:
        document = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise ContractsError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ContractsError(f"{path}: not JSON: {error}") from error
    return read_contracts(document, Path(path).name)


def _activity(name: str, said: Mapping[str, Any]) -> Activity:
    schema, queue = said["schema"], said["queue"]
    if not isinstance(schema, dict) or not isinstance(queue, str | None):
        raise ValueError(f"{name}: no contract of an activity")
    made = Activity(
        name,
        _elsewhere,
        schema,
        scopes=(),
        takes_call=True,
        queue=queue,
        policy=Policy(**said["policy"]),
        given_version=str(said["version"]),
        undo=said.get("undo"),
    )
    made.contract.tool.problems({}, lenient=True)  # a schema that is none is found here
    return made


def _elsewhere(*_: object) -> Any:
    """Stand in for a function that only workers have."""
    raise ContractsError("the code of this activity or delegate is with the workers: a client does not run it")


def _giving(*_: object) -> str:
    """Stand in for a function whose annotation describes its results."""
    raise ContractsError("the code of this delegate is with the workers: a client does not run it")


# What the workers announce, together.


@dataclass(frozen=True)
class Announced:
    """The contracts that workers have announced: by name those that most of them have."""

    known: Registry = field(default_factory=Registry)
    workers: Mapping[str, str] = field(default_factory=dict)
    """The digest of what each worker announces."""
    problems: Sequence[str] = ()
    """Possible reasons why a submission is refused: nobody answered, or workers differ."""

    def to_dict(self) -> dict[str, Any]:
        """Write what `acts contracts --json` prints, which `Client(contracts=…)` reads."""
        return {**contracts_of(self.known), "workers": dict(self.workers), "problems": list(self.problems)}


def ask_workers(control: Any, connection: Any) -> Announced:
    """Ask the workers for their contracts, by Celery's `control` and a connection. Raises what the broker raises."""
    quick, slow = limits.CONTRACTS_ANSWER_SECONDS, limits.CONTRACTS_WAIT_SECONDS
    answers = _asked(control, connection, timeout=quick) or _asked(control, connection, timeout=slow, limit=1)
    if not answers:
        return Announced(problems=[_NOBODY.format(quick + slow)])
    problems = [_OLDER.format(worker) for worker, said in answers.items() if "digest" not in said]
    of_digest = defaultdict[str, list[str]](list)
    for worker, said in answers.items():
        if "digest" in said:
            of_digest[str(said["digest"])].append(worker)
    destination = [workers[0] for workers in of_digest.values()]
    whole = (
        _asked(
            control,
            connection,
            arguments={"whole": True},
            destination=destination,
            timeout=limits.CONTRACTS_WAIT_SECONDS,
            limit=len(destination),
        )
        if destination
        else {}
    )
    read: list[tuple[list[str], Registry]] = []
    for workers in of_digest.values():
        try:
            read.append((workers, read_contracts(whole.get(workers[0]), workers[0])))
        except ContractsError as error:
            problems.append(str(error))
    known = _together(read)
    known.origin = f"workers: {some_of(sorted(name for names, _ in read for name in names), limits.MOST_NAMED)}"
    digests = {worker: digest for digest, names in of_digest.items() for worker in names}
    return Announced(known, digests, [*problems, *_differences(read)])


_NOBODY: Final = (
    "no worker has announced its tools within {:g} s: start one (`acts worker`), load the code here (ACTS_ACTIVITIES), "
    'or give a file that `acts contracts --json` has written, Client(contracts="tools.json")'
)
_OLDER: Final = "worker {} is of a version that announces no tools: update it, or load its code here (ACTS_ACTIVITIES)"


def _asked(control: Any, connection: Any, **options: Any) -> dict[str, dict[str, Any]]:
    answers = control.broadcast(COMMAND, reply=True, connection=connection, **options) or ()
    return {str(worker): said for answer in answers for worker, said in answer.items() if isinstance(said, dict)}


def _together(read: Sequence[tuple[list[str], Registry]]) -> Registry:
    """Take of each name the contract that most workers have."""
    found = Registry()
    for kind in _KINDS:
        votes: defaultdict[str, Counter[str]] = defaultdict(Counter)
        by_digest: dict[tuple[str, str], Any] = {}
        for workers, known in read:
            for name, one in getattr(known, kind).items():
                digest = _digest(one)
                votes[name][digest] += len(workers)
                by_digest[name, digest] = one
        chosen = {name: by_digest[name, max(sorted(counts), key=counts.__getitem__)] for name, counts in votes.items()}
        setattr(found, kind, chosen)
    return found


def _differences(read: Sequence[tuple[list[str], Registry]]) -> Iterator[str]:
    """Say of which activities the workers have different contracts."""
    having = defaultdict[str, dict[str, list[str]]](dict)
    for workers, known in read:
        for name, one in known.activities.items():
            having[name].setdefault(_digest(one), []).extend(workers)
    differing = {name: found for name, found in having.items() if len(found) > 1}
    if differing:
        which = some_of(sorted(differing), limits.MOST_NAMED)
        name, found = next(iter(differing.items()))
        sides = " and ".join(some_of(sorted(workers), limits.MOST_NAMED) for workers in found.values())
        yield (
            f"workers have different contracts of {which} (of {name}: {sides}): calls are checked against the most "
            "common one, and each worker refuses what its own does not admit"
        )


def _digest(one: Activity | Delegate) -> str:
    return one.contract.digest if isinstance(one, Activity) else one.version


class WorkersRegistry(Registry):
    """The contracts that workers announce, asked for again after some time."""

    def __init__(self, ask: Callable[[], Announced]) -> None:
        super().__init__()
        self._ask = ask
        self._lock = threading.Lock()
        self._asked: float | None = None

    def renew(self, older_than_seconds: float) -> bool:
        """Ask the workers, unless that was done in so many seconds; tells whether they were asked."""
        with self._lock:
            if self._asked is not None and time.monotonic() - self._asked < older_than_seconds:
                return False
            announced = self._ask()
            self.activities, self.delegates = announced.known.activities, announced.known.delegates
            self.origin = announced.known.origin
            listed = ["`acts contracts` lists what the workers announce"] if announced.workers else []
            told = [*announced.problems, *listed]
            self.missing = f": {'; '.join(told)}" if told else ""
            self._asked = time.monotonic()
            return True


def workers_registry(settings: Settings, make_control: Callable[[Settings], Any]) -> WorkersRegistry:
    """The registry of what the workers of a broker announce; a broker that does not answer announces nothing."""

    def ask() -> Announced:
        try:
            return announced_by(make_control(settings))
        except Exception as error:  # foreign errors of each broker's client; the submission itself reports it, too
            return Announced(
                problems=[f"the workers cannot be asked for their tools ({type(error).__name__}: {error})"]
            )

    return WorkersRegistry(ask)


def announced_by(app: Any) -> Announced:
    """Ask the workers that an application's broker reaches for their contracts. Raises what the broker raises."""
    with app.connection_for_write(connect_timeout=limits.CONTRACTS_WAIT_SECONDS) as connection:
        connection.ensure_connection(max_retries=1, interval_start=0, timeout=limits.CONTRACTS_WAIT_SECONDS)
        return ask_workers(app.control, connection)
