"""A server and a worker of the test session's own, and the command pointed at them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from acts_celery.broker_config import EmbeddedServer

from .command import ACTIVITIES, COMMAND, FIXTURES, Finished, acts, acts_afresh, environment
from .forks import end
from .records import Records

MODEL = f"scripted:{FIXTURES / 'seed_model.json'}"
STOP_SECONDS = 20.0


@dataclass(frozen=True)
class Backend:
    """A running server and worker: settings for commands, and the records of the worker's activities."""

    env: dict[str, str]
    records: Records
    worker: subprocess.Popen[bytes]
    worker_log: Path

    def acts(self, *arguments: str, stdin: object = None, afresh: bool = False) -> Finished:
        """Run a command against this server, `afresh` in an interpreter of its own."""
        assert self.worker.poll() is None, f"the worker has ended: {self.log_tail()}"
        try:
            return (acts_afresh if afresh else acts)(*arguments, stdin=stdin, env=self.env)
        except AssertionError as error:
            raise AssertionError(f"{error}\nworker: {self.log_tail()}") from error

    def run(self, submission: object) -> Finished:
        """`acts run - --json` against this server."""
        return self.acts("run", "-", "--json", stdin=submission)

    def log(self, run: str) -> list[Any]:
        """The lines of `acts log RUN --json`."""
        result = self.acts("log", run, "--json")
        assert result.code == 0, result
        return result.json_lines

    def log_tail(self) -> str:
        """The end of the worker's own log, for failure messages."""
        return self.worker_log.read_text(errors="replace")[-4000:]


@contextmanager
def running_backend(folder: Path) -> Iterator[Backend]:
    """A server and one worker with the seeds' activities, both gone at the end."""
    records = Records(folder / "records")
    log = folder / "worker.log"
    with EmbeddedServer() as server, log.open("wb") as output:
        env = server_settings(server) | records.env
        env |= {"ACTS_ACTIVITIES": str(ACTIVITIES), "ACTS_MODEL": MODEL}
        worker = subprocess.Popen(
            [*COMMAND, "worker", "--processes", "2"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=FIXTURES,
            env=environment(env),
            start_new_session=True,
        )
        try:
            yield Backend(env, records, worker, log)
        finally:
            end(worker, STOP_SECONDS)
            records.close()


def server_settings(server: EmbeddedServer) -> dict[str, str]:
    """The settings that point a command at this server."""
    return {"ACTS_BROKER_URL": server.broker_url, "ACTS_REDIS_URL": server.redis_url}


def stored_keys(redis_url: str) -> set[tuple[str, bytes]]:
    """Every key in every database of the server."""
    found: set[tuple[str, bytes]] = set()
    with redis.Redis.from_url(redis_url) as connection:
        databases: dict[str, Any] = connection.info("keyspace")
        for database in databases:
            connection.execute_command("SELECT", database.removeprefix("db"))
            keys: list[bytes] = connection.keys("*")
            found.update((database, key) for key in keys)
    return found
