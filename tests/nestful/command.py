"""The `acts` command as a subprocess, with the tools of NESTFUL."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.environment import without_settings

from .source import find_data

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(__file__).with_name("tools.py")
DEADLINE_SECONDS = 300.0


@dataclass(frozen=True)
class Ended:
    """A command that ended: its exit code and what it printed."""

    code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        """The whole of stdout as one JSON document."""
        try:
            return json.loads(self.stdout)
        except json.JSONDecodeError as error:
            raise AssertionError(f"exit {self.code}, not JSON: {self.stdout[-1000:]}\n{self.stderr[-3000:]}") from error


def acts(command: str, folder: Path, *options: str, models: object = None) -> Ended:
    """Run one command on the folder's `submission.json`, with no `.env` and no settings of acts but `models`."""
    environment = without_settings()
    environment["ACTS_MODELS"] = json.dumps(models or {})
    environment["ACTS_NESTFUL"] = str(find_data())
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    ended = subprocess.run(
        [sys.executable, "-m", "acts_celery", command, "submission.json", *options, "--activities", str(TOOLS)],
        capture_output=True,
        cwd=folder,
        env=environment,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout.decode("utf-8"), ended.stderr.decode("utf-8"))
