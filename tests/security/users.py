"""deploy/redis/users.acl on a real server, and a worker of each kind under the user that is meant for it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from string import Template

import redis

from acts_celery.broker_config import EmbeddedServer, load
from tests.worker.backend import ACTIVITIES, MODEL, ROOT, Backend, Meeting

from .servers import free_port, redis_server

USERS = ROOT / "deploy" / "redis" / "users.acl"


def users_file(folder: Path) -> Path:
    """The file as an operator would fill it in, with the queues of the tests' activities, and a user who sees all."""
    text = USERS.read_text(encoding="utf-8")
    names = re.findall(r"\$\{(\w+)_SHA256\}", text)
    filled = Template(text).substitute({f"{name}_SHA256": hashlib.sha256(name.encode()).hexdigest() for name in names})
    with_queues = re.sub(r"(\S*)~background(\S*)", r"\1~background\2 \1~lathe\2 \1~far\2 \1~hog\2", filled)
    path = folder / "users.acl"
    path.write_text(f"{with_queues}user admin on nopass ~* &* +@all\n", encoding="utf-8")
    return path


@dataclass(frozen=True)
class Guarded:
    """A server with the users, and a worker of each kind under its own."""

    port: int
    folder: Path
    meeting: Meeting
    admin: redis.Redis

    def url(self, user: str) -> str:
        return f"redis://{user}:{user.upper()}@127.0.0.1:{self.port}/0"

    def as_(self, user: str) -> Backend:
        """The backend as one user sees it; who carries out remote calls is told nothing of a log."""
        settings = load(env_file=None, broker_url=self.url(user), activities=(str(ACTIVITIES),), model=MODEL)
        backend = Backend(settings, self.meeting, self.folder)
        backend.log = self.folder / f"{user}.log"
        return backend


@contextmanager
def guarded_server(folder: Path) -> Iterator[Guarded]:
    """A server with the users of the file, and a worker of each kind at work."""
    port = free_port()
    with ExitStack() as stack:
        stack.enter_context(redis_server(folder, f"port {port}", f"aclfile {users_file(folder)}"))
        elsewhere = stack.enter_context(EmbeddedServer())
        admin = stack.enter_context(redis.Redis(port=port, username="admin", password="any"))
        guarded = Guarded(port, folder, Meeting(elsewhere.redis_url), admin)
        for user, queues, name in (
            ("instances", "instances", "instances"),
            ("delegates", "delegates", "delegates-2"),  # as the second process of a worker is called
            ("background", "background,lathe", "acts-2"),
        ):
            stack.enter_context(guarded.as_(user).worker("-Q", queues, "-n", name))
        yield guarded
