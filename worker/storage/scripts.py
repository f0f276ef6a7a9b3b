"""Our Lua scripts, and the request that each takes as its one argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import msgpack
from redis import Redis
from redis.client import Pipeline
from redis.cluster import ClusterPipeline


@cache
def read_script(*names: str) -> str:
    """The text of one of our Lua scripts; those before the last hold functions that it uses."""
    folder = files(__package__).joinpath("lua")
    return "\n".join(folder.joinpath(f"{name}.lua").read_text(encoding="utf-8") for name in names)


class Script:
    """One of our scripts, as clients for threads run it."""

    def __init__(self, redis: Redis, *names: str) -> None:
        self._text = read_script(*names)
        self._script = redis.register_script(self._text)

    def __call__(self, keys: Sequence[str], args: Sequence[Any], client: Pipeline | None = None) -> Any:
        """Run it, or add it to a pipeline. Raises `RedisError`."""
        if isinstance(client, ClusterPipeline):  # it takes no EVALSHA, since a node may not know the script
            return client.execute_command("EVAL", self._text, len(keys), *keys, *args)
        return self._script(keys=keys, args=args, client=client)


def pack_request(request: Mapping[str, Any]) -> bytes:
    """A request as msgpack. Redis' own knows no bin type: there texts and bytes are one."""
    return _pack(request)


def pack_list(values: Sequence[Any]) -> bytes:
    """A list as msgpack, likewise."""
    return _pack(values)


def _pack(request: object) -> bytes:
    packed = msgpack.packb(request, use_bin_type=False)
    assert isinstance(packed, bytes)
    return packed
