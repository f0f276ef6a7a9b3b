"""Reading the settings: arguments, environment, `.env`, defaults; each problem is one line."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from dotenv import dotenv_values
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from .addresses import ENVIRONMENT_PREFIX
from .embedded import VARIABLE
from .errors import SettingsError
from .models import MODEL_PATTERN, NAME_PATTERN, PREFIX_PATTERN, VISIBLE_PATTERN
from .settings import Settings

ENV_FILE = "ACTS_ENV_FILE"
"""The variable that names a file of settings, as `--env-file` does."""
FOUND = Path(".env")
"""The file of settings that is read where none is named."""


def load(*, env_file: Path | str | None = FOUND, **overrides: object) -> Settings:
    """Return the settings in effect, with `overrides` (a None is "not given") before everything else.

    A `.env` that is not named, but found in the current folder, gives only settings that are marked so (see
    `addresses.FOUND`): all others count only in one that is given as `env_file`, or by `ACTS_ENV_FILE`.

    Raises `SettingsError`, one line for each bad value, naming its variable; TypeError for an override that
    is no setting.
    """
    if unknown := sorted(set(overrides) - set(Settings.model_fields)):
        raise TypeError(f"no such setting: {', '.join(unknown)}")
    given = {name: value for name, value in overrides.items() if value is not None}
    construct: Callable[..., Settings] = Settings
    named = os.environ.get(ENV_FILE)
    if env_file is FOUND and named:
        env_file = Path(named)
        if not env_file.is_file():
            raise SettingsError([f"{named}: there is no such file ({ENV_FILE}, --env-file)"])
    try:
        defaults: dict[str, object] = {}
        if env_file is FOUND:
            fields = Settings.model_fields
            defaults = {name: fields[name].get_default(call_default_factory=True) for name in left_out(os.environ)}
        return construct(_env_file=env_file, **(defaults | given))
    except ValidationError as error:
        # Values stay out of the chained text as well: hide_input_in_errors.
        raise SettingsError([_problem(detail) for detail in error.errors()]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError([f"{env_file}: cannot be read as settings: {error}"]) from error


def left_out(environment: Mapping[str, str]) -> list[str]:
    """Return the settings that a found `.env` (see `addresses.FOUND`) has and may not set."""
    if environment.get(ENV_FILE) or not FOUND.is_file():
        return []
    set_elsewhere = {name.upper() for name in environment}
    given = {name.upper(): value for name, value in dotenv_values(FOUND).items() if value}
    return [
        name
        for name, field in Settings.model_fields.items()
        if (variable := ENVIRONMENT_PREFIX + name.upper()) in given
        and variable not in set_elsewhere
        and not _may_be_found(field, given[variable])
    ]


def _may_be_found(field: FieldInfo, text: str) -> bool:
    """Return whether a found `.env` (see `addresses.FOUND`) may give a setting this value."""
    match mark(field, "found"):
        case "any":
            return True
        case "lower":
            if field.default is None:
                return True
            kind: Any = field.annotation
            try:
                return bool(TypeAdapter(kind).validate_python(text) <= field.default)
            except ValidationError:
                return True  # the check of all settings reports it
    return False


def mark(field: FieldInfo, name: str) -> object:
    """Return one mark of a setting's metadata, or None."""
    return field.json_schema_extra.get(name) if isinstance(field.json_schema_extra, dict) else None


def _problem(detail: ErrorDetails) -> str:
    """Return one line for one of pydantic's errors, with the offending value unless it may be secret."""
    message = _worded(detail)
    if not detail["loc"]:
        return message
    name, *inside = map(str, detail["loc"])
    value = "" if _may_hold_a_secret(name) else f" (it is {detail['input']!r:.80})"
    where = "".join(f"{part}: " for part in inside)
    return f"{ENVIRONMENT_PREFIX}{name.upper()}: {where}{message}{value}"


def _may_hold_a_secret(name: str) -> bool:
    field = Settings.model_fields.get(name)
    return name.endswith("_url") or (field is not None and mark(field, "secret") is True)


# Environment variables that look like settings and are none: almost always a spelling mistake.


def unknown_variables(environment: Mapping[str, str], *, env_file: Path | str | None = ".env") -> dict[str, str | None]:
    """Return every ``ACTS_`` name in `environment` and the file that is no setting, with the one meant.

    For `acts doctor`: a misspelt ``ACTS_BROKR_URL`` would otherwise be ignored without a word.
    """
    known = [ENV_FILE, VARIABLE, *(ENVIRONMENT_PREFIX + name.upper() for name in Settings.model_fields)]
    names = set(environment)
    if env_file is not None and Path(env_file).is_file():
        names |= set(dotenv_values(env_file))
    # Names match whatever their case, as they do when settings are read.
    unknown = sorted(
        name for name in names if name.upper().startswith(ENVIRONMENT_PREFIX) and name.upper() not in known
    )
    return {name: next(iter(difflib.get_close_matches(name.upper(), known, n=1)), None) for name in unknown}


_SHAPES: Final = {
    MODEL_PATTERN: "should be PROVIDER:NAME, such as openai:gpt-4o, or scripted:FILE.json",
    NAME_PATTERN: "should be of letters, digits, hyphens, dots and _",
    PREFIX_PATTERN: "should be of letters, digits, hyphens, dots, colons and _",
    VISIBLE_PATTERN: "should hold no control characters",
}
"""The shape of a value, by the pattern of its setting."""
_TYPES: Final = {
    "int_parsing": "should be a whole number",
    "int_type": "should be a whole number",
    "float_parsing": "should be a number",
    "bool_parsing": "should be true or false",
    "byte_size": "should be a size, such as 1048576 or 64MiB",
    "byte_size_unit": "should be a size, such as 1048576 or 64MiB",
}
"""The right kind of value, by pydantic's name of the error."""


def _worded(detail: ErrorDetails) -> str:
    """Say what is wrong with a value, and what it should be."""
    if detail["type"] == "string_pattern_mismatch" and (shape := _SHAPES.get(detail["ctx"]["pattern"])) is not None:
        return shape
    message = " ".join(detail["msg"].removeprefix("Value error, ").removeprefix("Input ").split())
    return _TYPES.get(detail["type"], message)
