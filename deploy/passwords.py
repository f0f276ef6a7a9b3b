"""Make the passwords that the topologies ask for: ``python deploy/passwords.py`` writes them into ``deploy/.env``.

There is one for each user of Redis (``redis/users.acl``) and one each for people to look at Flower and Grafana. Compose
reads that file by itself, and so does ``up.py``. What the file already holds stays; only this machine's user can read
it.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from dotenv import dotenv_values

FILE = Path(__file__).with_name(".env")
ROLES = ("INSTANCES", "DELEGATES", "BACKGROUND", "CLIENTS", "FLOWER", "METRICS")
NAMES = (*(f"REDIS_PASSWORD_{role}" for role in ROLES), "FLOWER_PASSWORD", "GRAFANA_PASSWORD")


def main() -> None:
    """Add to the file what is missing in it."""
    known = dotenv_values(FILE) if FILE.exists() else {}
    missing = [name for name in NAMES if not known.get(name)]
    descriptor = os.open(FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.fchmod(descriptor, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.writelines(f"{name}={secrets.token_urlsafe(32)}\n" for name in missing)
    print(f"{FILE}: {len(missing)} passwords added, {len(NAMES) - len(missing)} were there")


if __name__ == "__main__":
    main()
