"""What runs on each server before a change lands: on the bundled Valkey, and again on Debian's Redis.

`make test` runs all but the slow ones on the bundled one, `make redis` these again with
`ACTS_SERVER_BINARY=redis-server`, but for slow ones outside of tests/worker, and `make nightly` all on both.
"""

from __future__ import annotations

from typing import Final

SCRIPTS: Final = {
    "amend": "worker/test_amend worker/test_retry",
    "budget": "worker/test_r9_3_children",
    "commit": "worker/test_commit_script worker/test_r14_people",
    "common": "worker/test_commit_script",
    "control": "worker/test_control worker/test_gathering worker/test_r14_people",
    "drive": "worker/test_lost_lanes",
    "keep_picture": "mcp/test_pictures_of_tools",
    "keys": "worker/test_deleting worker/test_deleting worker/test_run_writer worker/test_sweep worker/test_traces",
    "lane": "worker/test_runs",
    "loop": "worker/test_r13_1_loop",
    "outbox": "worker/test_dead_letters worker/test_r17_1_codes worker/test_sweep_script",
    "recovery": "worker/test_sweep_script",
    "reports": "worker/test_r17_1_codes worker/test_sweep_script",
    "run": "worker/test_dead_letters worker/test_run_limits worker/test_sweep",
    "session": "mcp/test_tools_of_servers",
    "slots": "worker/test_slots",
    "sweep": "worker/test_gathering worker/test_sweep_script",
}
"""Each Lua script, and the modules of tests that take its ways."""
COMMANDS: Final = {
    "contract/test_commands": (
        "run submit check status show log explain pause resume cancel amend say send held approve answer reject wait "
        "retry fork export import runs delete dead prompt eval ui worker metrics health doctor"
    ),
    "contract/test_contracts": "contracts",
    "mcp/test_tools_of_servers": "mcp",
    "worker/test_r4_11_once": "settle",
    "worker/test_r4_12_moments": "move",
    "worker/test_r16_8_rules": "rules revoke",
    "worker/test_traces": "trace traces",
    "worker/test_trust_suggestions": "trust",
}
"""Modules of tests, and the commands of `acts` that they run."""
MODULES: Final = frozenset({*" ".join(SCRIPTS.values()).split(), *COMMANDS})
