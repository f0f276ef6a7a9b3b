"""Decoding: what kombu decodes by itself, before anything of ours sees a message, and bounds for it."""

from __future__ import annotations

from functools import partial

import kombu.compression
from kombu.serialization import registry

from acts_celery.broker_config.configuration import CONTENT
from acts_celery.protocol import Limits
from acts_celery.protocol.language.limits import unpacked

from .packing import pack

_CONTENT_TYPE = "application/x-msgpack"


def restrict_decoding(limits: Limits) -> None:
    """Bound what a message unfolds to, in this process. The last limits given hold.

    Compressed messages are not taken, since nothing bounds what a few bytes unfold to, and none of ours is; objects and
    lists are counted as msgpack is unpacked.
    """
    for content_type in kombu.compression.encoders():
        encoder, _ = kombu.compression.get_encoder(content_type)
        kombu.compression.register(encoder, _refuse, content_type)
    unpack = partial(unpacked, most_containers=limits.containers)
    registry.register(CONTENT, pack, unpack, content_type=_CONTENT_TYPE, content_encoding="binary")


def _refuse(body: bytes) -> bytes:
    raise ValueError("compressed messages are not taken")
