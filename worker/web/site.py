"""A site: what differs between our servers where a request is let in or refused."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Site:
    """One of our servers."""

    guarded: str
    """What begins with this path takes a token."""
    url_setting: str
    """The setting that says where the server is, as clients see it."""
    how_to_enter: str
    """What to do without a token."""
    where_from: str
    """Where a token comes from."""
