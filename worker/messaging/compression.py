"""Compression of messages, which kombu undoes by itself and no setting forbids."""

from __future__ import annotations

import kombu.compression


def refuse_compression() -> None:
    """Take no compressed message: nothing bounds what a few bytes unfold to. None of ours is. May be repeated."""
    for content_type in kombu.compression.encoders():
        encoder, _ = kombu.compression.get_encoder(content_type)
        kombu.compression.register(encoder, _refuse, content_type)


def _refuse(body: bytes) -> bytes:
    raise ValueError("compressed messages are not taken")
