"""deploy/drill.md: its commands deploy under load, break each part, restore a backup and explain one call."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from .pages import ROOT, run_page


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_the_drill_comes_to_what_it_says(tmp_path: Path) -> None:
    page, folder = (ROOT / "deploy" / "drill.md").read_text(encoding="utf-8"), tmp_path / "page"
    folder.mkdir()
    with ExitStack() as taken:
        for port in ("6390", "9190", "9191"):
            one = taken.enter_context(socket.socket())
            one.bind(("127.0.0.1", 0))
            page = page.replace(port, str(one.getsockname()[1]))
    try:
        run_page(page, folder, is_forked=False)
    finally:
        for started in folder.glob("*.pid"):
            with suppress(OSError):  # most have ended, and their numbers may be others' now
                pid = int(started.read_text(encoding="utf-8"))
                if Path(f"/proc/{pid}/cwd").resolve() == folder.resolve():
                    os.kill(pid, signal.SIGKILL)
