"""The functions of `runner.rooms.Agent`, which the core calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .asking import lacks_key, missing_settings, most_tools, unenforced, verify_models, writes_nulls, writes_texts
from .loop_runner import LoopRunner as make_driver
from .model_calls import ModelCalls as make_models
from .model_calls import estimate
from .prices import price_of

if TYPE_CHECKING:
    from ..runner.rooms import Agent
    from . import room

    has_all: Agent = room

__all__ = [
    "estimate",
    "lacks_key",
    "make_driver",
    "make_models",
    "missing_settings",
    "most_tools",
    "price_of",
    "unenforced",
    "verify_models",
    "writes_nulls",
    "writes_texts",
]
