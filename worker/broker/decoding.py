"""Decoding: what kombu decodes by itself, before anything of ours sees a message, and bounds for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import kombu.compression
from kombu.serialization import registry

from acts_celery.broker_config.configuration import CONTENT
from acts_celery.protocol import Limits
from acts_celery.protocol.language.limits import unpacked
from acts_celery.worker.wire.packing import pack

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


@contextmanager
def decoding_restored() -> Iterator[None]:
    """Leave this process to decode as it did before the block."""
    compressions = {each: kombu.compression.get_encoder(each)[0] for each in kombu.compression.encoders()}
    decompressions = {each: kombu.compression.get_decoder(each) for each in compressions}
    encoded, decoded = registry._encoders[CONTENT], registry._decoders[_CONTENT_TYPE]
    try:
        yield
    finally:
        for each, encoder in compressions.items():
            kombu.compression.register(encoder, decompressions[each], each)
        registry.register(CONTENT, encoded.encoder, decoded, _CONTENT_TYPE, encoded.content_encoding)


def _refuse(body: bytes) -> bytes:
    raise ValueError("compressed messages are not taken")
