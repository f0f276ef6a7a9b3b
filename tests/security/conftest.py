"""No variable of ours from outside; the tests' activities registered in this process too."""

from __future__ import annotations

from tests.worker.conftest import clean_environment

__all__ = ["clean_environment"]
