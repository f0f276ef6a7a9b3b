"""Loading the modules that register activities and delegates (`ACTS_ACTIVITIES`, `--activities`)."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import sysconfig
import traceback
from pathlib import Path
from types import ModuleType
from typing import Final

from ...broker_config import Settings
from ...broker_config.configuration import owner_of
from ..errors import ActivitiesError, Terminated
from .activities import Registry

loaded: Final[dict[str, ModuleType]] = {}
"""The configured modules and files that were imported, also those that register nothing."""


def load_activities(settings: Settings) -> None:
    """Import every configured module or file, once. Raises `ActivitiesError` naming the file and line."""
    for name in settings.activities:
        loaded[name] = load(name)


def load(name: str) -> ModuleType:
    """Import one module by name, or one file by its path; a file's own folder is on the path while it loads."""
    if name.endswith(".py") or "/" in name:
        return _load_file(Path(name))
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and name.split(".")[0] == error.name.split(".")[0]:
            raise ActivitiesError(f"no module {name!r}: give a module that can be imported, or a file.py") from error
        raise ActivitiesError(_load_error(name, error)) from error
    except Terminated:
        raise
    except (Exception, SystemExit) as error:
        raise ActivitiesError(_load_error(name, error)) from error


def _load_file(path: Path) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        is_folder = ": it is a folder; name a file.py in it, or a module" if path.is_dir() else ""
        raise ActivitiesError(f"no activities file at {path}{is_folder}")
    module_name = f"acts_activities_{path.stem}_{abs(hash(str(path))):x}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    specification = importlib.util.spec_from_file_location(module_name, path)
    if specification is None or specification.loader is None:
        raise ActivitiesError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[module_name] = module
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    try:
        specification.loader.exec_module(module)
    except Terminated:
        raise
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        raise ActivitiesError(_load_error(str(path), error)) from error
    return module


def _load_error(name: str, error: BaseException) -> str:
    if isinstance(error, ActivitiesError):
        return f"{_place(name, error)}{error}"
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: {error.msg}"
    frame = _frame(error) or traceback.extract_tb(error.__traceback__)[-1]
    return f"{name} cannot be loaded: {type(error).__name__}: {error} ({frame.filename}:{frame.lineno})"


def _place(name: str, error: BaseException) -> str:
    frame = _frame(error)
    return f"{frame.filename}:{frame.lineno}: " if frame is not None else f"{name}: "


def _frame(error: BaseException) -> traceback.FrameSummary | None:
    """The line of a module that has failed, or registered something wrongly: none of ours or of a library's."""
    frames, paths = traceback.extract_tb(error.__traceback__), sysconfig.get_paths()
    of_others = ("<", f"{Path(__file__).parents[2]}/", paths["stdlib"], paths["purelib"], paths["platlib"])
    return next((frame for frame in reversed(frames) if not frame.filename.startswith(of_others)), None)


def require_own_queues(registry: Registry, settings: Settings) -> None:
    """Raise `ActivitiesError` where an activity names a queue on which its calls would wait for ever."""
    for activity in registry.activities.values():
        if activity.queue is not None and (owner := owner_of(activity.queue, settings)) is not None:
            raise ActivitiesError(
                f"activity {activity.name!r}: the queue {activity.queue!r} belongs to {owner}: name another one"
            )
