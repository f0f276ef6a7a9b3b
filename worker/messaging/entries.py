"""Entries of a queue in Redis that are no messages: whoever may add to a queue may add anything.

kombu takes an entry from its queue and reads it in one step of its event loop. What it cannot read it raises, and the
worker would end. Here such an entry is gone, with one line in the log.
"""

from __future__ import annotations

import logging
from queue import Empty
from typing import Any

from .refusals import count_refusal

logger = logging.getLogger(__name__)


def outlive_entries(channel: Any) -> None:
    """Let a channel of the Redis transport outlive what lies in its queues."""
    read = channel.handlers["BRPOP"]
    passing = (Empty, *channel.connection_errors, *channel.connection.channel_errors)

    def read_entry(**options: Any) -> bool:
        try:
            return bool(read(**options))
        except passing:
            raise
        except Exception as error:
            count_refusal("entries")
            logger.error("an entry of a queue is no message (%s) and is dropped", type(error).__name__)
            return True

    channel.handlers["BRPOP"] = read_entry
