"""What runs on each server before a change lands: on the bundled Valkey, and again on Debian's Redis.

`make test` runs all on the bundled one, `make redis` these again with `ACTS_SERVER_BINARY=redis-server`, `make nightly`
all on both.
"""

from __future__ import annotations

from typing import Final

SCRIPTS: Final = {
    "amend": "worker/test_amend",
    "amend_lane": "worker/test_amend",
    "amend_undo": "worker/test_retry",
    "background": "worker/test_background",
    "budget": "worker/test_r13_3_budget",
    "clock": "worker/test_commit_script",
    "code_came": "worker/test_r17_3_given_back",
    "commit": "worker/test_commit_script",
    "commit_claims": "worker/test_commit_script",
    "commit_holds": "worker/test_r14_people",
    "commit_leaving": "worker/test_commit_script",
    "commit_outcomes": "worker/test_commit_script",
    "commit_step": "worker/test_commit_script",
    "commit_writing": "worker/test_commit_script",
    "condition": "worker/test_commit_script",
    "decide": "worker/test_r14_people",
    "drive": "worker/test_lost_lanes",
    "delete": "worker/test_deleting",
    "due": "worker/test_sweep_script",
    "expire": "worker/test_sweep",
    "formats": "worker/test_sweep",
    "heartbeats": "worker/test_sweep_script",
    "held": "worker/test_r14_people",
    "keep_picture": "mcp/test_pictures_of_tools",
    "lane": "worker/test_runs",
    "lanes": "worker/test_commit_script",
    "loop": "worker/test_r13_1_loop",
    "names": "worker/test_sweep_script",
    "outbox": "worker/test_sweep_script",
    "outbox_end": "worker/test_background",
    "outbox_given_back": "worker/test_r17_3_given_back",
    "send": "worker/test_promises",
    "session": "mcp/test_sessions_of_runs",
    "set_status": "worker/test_control",
    "slots": "worker/test_slots",
    "status": "worker/test_run_limits",
    "traced": "worker/test_traces",
    "sweep": "worker/test_sweep_script",
    "sweep_due": "worker/test_promises",
    "sweep_judge": "worker/test_sweep_script",
    "sweep_run": "worker/test_sweep_script",
    "sweep_seen": "worker/test_sweep_script",
    "forget": "worker/test_erasure",
    "window": "worker/test_window",
    "write": "worker/test_run_writer",
}
"""Each Lua script, and the module of tests that takes its ways."""
COMMANDS: Final = {
    "worker/test_control_cli": (
        "run submit status show log explain pause resume cancel amend say send held approve reject"
    ),
    "worker/test_r14_people": "answer wait",
    "worker/test_retry": "retry fork",
    "worker/test_archive": "export import",
    "worker/test_overview": "runs",
    "worker/test_deleting": "delete",
    "worker/test_dead_letters": "dead",
    "mcp/test_tools_of_servers": "mcp",
    "worker/test_prompt_cli": "prompt",
    "worker/test_health": "health",
    "worker/test_traces": "trace traces",
    "worker/test_worker_processes": "worker",
    "worker/test_log_figures": "metrics",
    "acceptance/test_cli_doctor": "doctor",
    "acceptance/test_cli": "check",
    "acceptance/test_cli_eval": "eval",
    "ui/test_command": "ui",
}
"""Modules of tests, and the commands of `acts` that they run."""
MODULES: Final = frozenset({*SCRIPTS.values(), *COMMANDS})
