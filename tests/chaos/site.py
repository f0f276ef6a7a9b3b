"""The site of a chaos: a server, a network, workers, and what clients need to know of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Self

from redis import Redis

from acts_celery import Client
from acts_celery.broker_config import Settings, load
from acts_celery.worker.registry.loading import load as load_activities
from tests.environment import without_settings

from .crew import Death, Member
from .limited import MODEL, REQUESTS_A_MINUTE, TOKENS_A_MINUTE
from .proxy import Proxy
from .records import Records
from .server import ROOT, Server
from .workload import ACTIVITIES, LIMITED, write_model


@dataclass(frozen=True)
class Post:
    """What one member of the crew is to be."""

    name: str
    arguments: Sequence[str] = ()
    is_remote: bool = False
    """Whether it reaches the server through the proxy."""
    processes: int = 1
    source: Path = ROOT
    """Where its code lies: elsewhere for an earlier version's."""


POSTS: Final = (
    Post("near", ("-Q", "instances")),
    Post("far", is_remote=True),
    Post("hands", ("-Q", "delegates,background,chaos"), is_remote=True),
)
FOUR: Final = tuple(Post(name, processes=2) for name in ("first", "second", "third", "fourth"))
"""Four workers of two processes, each of which serves every queue."""


class Site:
    """Everything that runs; use it as a context manager. All of it ends with the block, or with us."""

    def __init__(
        self, folder: Path, posts: Sequence[Post] = POSTS, *, broker_url: str | None = None, is_limited: bool = False
    ) -> None:
        """With a `broker_url` messages go there, and the server has the log alone. One that `is_limited` has the
        activities with limits, too, which earlier versions did not offer.
        """
        self.folder = folder.absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.crew: list[Member] = []
        self._posts = posts
        self._broker_url = broker_url
        self._activities = (str(ACTIVITIES), *([str(LIMITED)] if is_limited else []))
        self._model: dict[str, object] = {"model": write_model(self.folder / "model.json")}
        if is_limited:
            limits = {"model_requests_per_minute": REQUESTS_A_MINUTE, "model_tokens_per_minute": TOKENS_A_MINUTE}
            self._model = {"model": MODEL, **limits}
        self._records = self.folder / "records"
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for file in self._activities:
            load_activities(file)
        with self._stack:
            self.server = Server(self.folder / "server")
            self._stack.callback(self.server.stop)
            self.server.start()
            self.proxy = self._stack.enter_context(Proxy(self.server.port))
            for post in self._posts:
                arguments = ("--processes", str(post.processes), *post.arguments)
                member = Member(post.name, arguments, self._environment(post), folder=self.folder, source=post.source)
                self._stack.callback(member.stop)
                self.crew.append(member)
            for member in self.crew:
                member.wait_until_ready()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @cached_property
    def settings(self) -> Settings:
        """Everybody's settings: the defaults, but for the places of things."""
        return self.settings_at(self.server.url)

    def settings_at(self, url: str) -> Settings:
        """The settings of somebody who reaches the server at this address."""
        return load(
            env_file=None,
            broker_url=self._broker_url or url,
            redis_url=url,
            activities=self._activities,
            **self._model,
        )

    def environment(self, url: str) -> dict[str, str]:
        """The environment of a process that reaches the server at this address."""
        return {**without_settings(), **self.settings_at(url).to_environment(), "CHAOS_RECORDS": str(self._records)}

    def client(self) -> Client:
        """A client for one thread."""
        return Client(self.settings)

    @property
    def processes(self) -> int:
        """How many processes take tasks."""
        return sum(post.processes for post in self._posts)

    @cached_property
    def redis(self) -> Redis:
        """The server, raw."""
        return Redis.from_url(self.server.url)

    @property
    def records(self) -> Records:
        """What the activities have noted."""
        return Records.read(self._records)

    def take_deaths(self) -> list[Death]:
        """Workers that have died though nobody had killed them, each told once."""
        return [member.deaths.popleft() for member in self.crew for _ in range(len(member.deaths))]

    def turn_over(self) -> None:
        """Forget the runs and the records, nothing being under way."""
        for key in self.redis.scan_iter(f"{self.settings.key_prefix}:*", count=1_000):
            self.redis.unlink(key)
        self.turn_over_records()

    def turn_over_records(self) -> None:
        """Forget what the activities have noted."""
        self._records.unlink(missing_ok=True)

    def _environment(self, post: Post) -> dict[str, str]:
        return self.environment(self.proxy.url if post.is_remote else self.server.url)
