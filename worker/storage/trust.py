"""Trust: what a definition holds of what tools and code say of who may decide (SPEC R16.1)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from acts_celery.protocol.calls.trust import ToolTrust

Trusts = Mapping[str, ToolTrust]
"""What is said of tools and code, by name."""


def pack_trust(said: Trusts) -> dict[str, Any]:
    """Its field, where anything is said."""
    return {"trust": {name: one.to_dict() for name, one in said.items()}} if said else {}


def unpack_trust(fields: Mapping[str, Any]) -> Trusts:
    """What `pack_trust` has written, and a version before it under `effects`."""
    acting = dict.fromkeys(fields.get("effects", ()), ToolTrust(effects=True))
    return {**acting, **{name: ToolTrust.read(said) for name, said in fields.get("trust", {}).items()}}


def both(before: Trusts, added: Trusts, defined: Collection[str] = ()) -> Trusts:
    """What is said by a run and by an amendment of it: each can only add. A delegate that the amendment has `defined`
    endorses only if it says so: another definition may have answered before.
    """
    before = {name: replace(said, endorses=said.endorses and name not in defined) for name, said in before.items()}
    names = (*before, *(name for name in added if name not in before))
    return {name: ToolTrust.together(said[name] for said in (before, added) if name in said) for name in names}
