"""Environment variables that look like settings and are none: almost always a spelling mistake."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path

from dotenv import dotenv_values

from acts_celery.broker_config.addresses import ENVIRONMENT_PREFIX
from acts_celery.broker_config.loading import ENV_FILE
from acts_celery.broker_config.server_binary import VARIABLE
from acts_celery.broker_config.settings import Settings

__all__ = ["unknown_variables"]


def unknown_variables(environment: Mapping[str, str], *, env_file: Path | str | None = ".env") -> dict[str, str | None]:
    """Return every ``ACTS_`` name in `environment` and the file that is no setting, with the one meant.

    For `acts doctor`: a misspelt ``ACTS_BROKR_URL`` would otherwise be ignored without a word.
    """
    known = [ENV_FILE, VARIABLE, *(ENVIRONMENT_PREFIX + name.upper() for name in Settings.model_fields)]
    names = set(environment)
    if env_file is not None and Path(env_file).is_file():
        names |= set(dotenv_values(env_file))
    # Names match whatever their case, as they do when settings are read.
    strangers = sorted(
        name for name in names if name.upper().startswith(ENVIRONMENT_PREFIX) and name.upper() not in known
    )
    return {name: next(iter(difflib.get_close_matches(name.upper(), known, n=1)), None) for name in strangers}
