"""Imports point one way, and the pure core touches nothing of the world; read from the source."""

from __future__ import annotations

import ast
import gc
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
from redis import Redis

ROOT = Path(__file__).parents[2]
PACKAGES = ("protocol", "broker_config", "worker")

# Who may import which of the others.
ALLOWED_DIRECTIONS = {
    "protocol": set[str](),
    "broker_config": set[str](),
    "worker": {"protocol", "broker_config"},
}

# The standard library as far as it is pure: no clock, randomness, file, socket, process, thread or
# environment.
PURE_STANDARD_LIBRARY = {
    *(
        "__future__",
        "abc",
        "base64",
        "binascii",
        "bisect",
        "collections",
        "contextlib",
        "contextvars",
        "copy",
        "dataclasses",
    ),
    *(
        "decimal",
        "difflib",
        "enum",
        "fractions",
        "functools",
        "graphlib",
        "hashlib",
        "heapq",
        "itertools",
        "json",
    ),
    *(
        "keyword",
        "math",
        "numbers",
        "operator",
        "re",
        "reprlib",
        "string",
        "struct",
        "textwrap",
        "types",
        "typing",
    ),
    *("unicodedata", "weakref"),
}
PURE_MODULES = {"urllib.parse"}
"""Of packages that are not pure as a whole."""
PURE_LIBRARIES = {"jsonschema_rs", "msgpack"}
IMPURE_BUILTINS = {"__import__", "breakpoint", "eval", "exec", "input", "open", "print"}


@cache
def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@cache
def nodes(path: Path) -> list[ast.AST]:
    """The imports and calls in a file; of a test or an example its imports alone."""
    gc.disable()  # it would look through each tree
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    finally:
        gc.enable()
    is_ours = path.relative_to(ROOT).parts[0] in PACKAGES
    found = ast.walk(tree) if is_ours else _statements(tree.body)
    return [node for node in found if isinstance(node, ast.Import | ast.ImportFrom | ast.Call)]


def _statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield statements at any depth."""
    for statement in body:
        yield statement
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from _statements(getattr(statement, field, ()))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and module name of every import in the file, at any depth; ours from the top: `worker.app`."""
    for line, module in absolute_imports(path):
        yield line, module.removeprefix("acts_celery.")


def absolute_imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and absolute module name of every import in the file, at any depth."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.lineno, node.module or ""
        elif isinstance(node, ast.ImportFrom):
            folder = ("acts_celery", *path.relative_to(ROOT).parent.parts)
            base = ".".join(folder[: len(folder) - node.level + 1])
            names = [node.module] if node.module else [alias.name for alias in node.names]
            yield from ((node.lineno, f"{base}.{name}") for name in names)


def top_level_imports(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the place (`file:line`) and the top-level package of every import in the file."""
    for line, module in imports(path):
        yield f"{path.relative_to(ROOT)}:{line}", module.partition(".")[0]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_those_below_it(package: str) -> None:
    forbidden = {*PACKAGES, "tests", "deploy"} - ALLOWED_DIRECTIONS[package] - {package}
    found = [f"{place} imports {name}" for path in sources(package) for place, name in top_level_imports(path)]
    assert found, f"{package} is missing or imports nothing: this test would prove nothing"
    assert [line for line in found if line.rpartition(" ")[2] in forbidden] == []


def test_nothing_of_ours_is_imported_under_a_name_that_a_user_may_have() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for package in (*PACKAGES, "acts_celery", "deploy", "tests")
        for path in sources(package)
        for line, module in absolute_imports(path)
        if module.partition(".")[0] in PACKAGES
    ]
    assert found == []


def test_imports_inside_the_product_are_relative() -> None:
    """Tools that read paths then see one package; a program that is started by its path cannot."""
    found = {
        f"{path.relative_to(ROOT)}: {node.module}"
        for package in PACKAGES
        for path in sources(package)
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").startswith("acts_celery")
    }
    assert found == {"worker/recovery/sidecar_process.py: acts_celery.worker.recovery.heartbeats"}


def test_the_package_holds_links_to_the_folders_at_the_top() -> None:
    links = {path.name: path.readlink() for path in (ROOT / "acts_celery").iterdir() if path.is_symlink()}
    assert links == {package: Path("..", package) for package in PACKAGES}


def test_the_pure_core_imports_only_what_is_pure() -> None:
    allowed = PURE_STANDARD_LIBRARY | PURE_LIBRARIES | {"protocol"}
    found = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in sources("protocol")
        for line, module in imports(path)
        if module not in PURE_MODULES and module.partition(".")[0] not in allowed
    ]
    assert found == [], "if it is pure, add it to the list above with the same care as to pyproject.toml"


def test_the_pure_core_calls_no_builtin_with_an_effect() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} calls {node.func.id}"
        for path in sources("protocol")
        for node in nodes(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_BUILTINS
    ]
    assert found == []


ROOMS = (
    *("errors", "limits", "references", "paths", "messages", "templates", "schemas", "state", "calls", "plan"),
    *("trust", "run_rules", "engine", "near_misses", "requests", "analysis", "hints", "facade"),
)
"""The core's modules and folders: each imports only those before it."""
BESIDE_EACH_OTHER = {
    "near_misses": {"engine"},
    "requests": {"engine"},
    "hints": {"engine", "requests"},
}
"""Rooms that stand before a room and are none of its business."""
RULES_OF_TRUST = {"plan", "trust"}
"""The two that know each other: a check asks what may be trusted, and that follows from the graph."""


def room_of(module: str) -> str:
    """The room that holds a module of a package: its second name."""
    return (*module.split("."), "")[1]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_of_the_core_imports_only_those_before_it(room: str) -> None:
    allowed = {*ROOMS[: ROOMS.index(room) + 1]} - BESIDE_EACH_OTHER.get(room, set())
    allowed |= RULES_OF_TRUST if room in RULES_OF_TRUST else set()
    path = ROOT / "protocol" / room
    found = {
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in (sources(f"protocol/{room}") if path.is_dir() else [path.with_suffix(".py")])
        for line, module in imports(path)
        if module.partition(".")[0] == "protocol" and room_of(module) not in allowed
    }
    assert found == set()


def test_the_core_has_no_other_rooms() -> None:
    root = ROOT / "protocol"
    found = {path.stem for path in root.glob("*.py")} | {path.parent.name for path in root.glob("*/__init__.py")}
    assert found == {*ROOMS, "__init__"}


def test_importing_the_core_loads_neither_hints_nor_analysis() -> None:
    code = "import sys, acts_celery.protocol; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    parts = {name.split(".")[2] for name in loaded.stdout.split() if name.startswith("acts_celery.protocol.")}
    assert "plan" in parts
    assert parts & {"hints", "analysis"} == set()


WORKER_ROOMS = (
    *("limits", "errors", "backoff", "health_file", "process", "outages", "fairness", "broker", "logs"),
    *("store", "recovery", "registry", "runner", "client"),
    *("agent", "telemetry", "local", "embedded_worker", "actions", "pytest_plugin", "ui", "mcp", "cli"),
)
"""The worker's modules and folders: each imports only those before it, so the core none of the third line."""


@pytest.mark.parametrize("room", WORKER_ROOMS)
def test_a_room_of_the_worker_imports_only_those_before_it(room: str) -> None:
    before = {*WORKER_ROOMS[: WORKER_ROOMS.index(room) + 1]}
    path = ROOT / "worker" / room
    found = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in (sources(f"worker/{room}") if path.is_dir() else [path.with_suffix(".py")])
        for line, module in imports(path)
        if module.partition(".")[0] == "worker" and room_of(module) not in before
    ]
    assert found == []


def test_the_worker_has_no_other_rooms() -> None:
    root = ROOT / "worker"
    found = {path.stem for path in root.glob("*.py")} | {path.parent.name for path in root.glob("*/__init__.py")}
    assert found == {*WORKER_ROOMS, "__init__"}


def test_what_the_web_servers_take_is_imported_by_them_alone() -> None:
    found = {
        path.parent.name
        for package in PACKAGES
        for path in sources(package)
        for _, module in imports(path)
        if module.partition(".")[0] in ("fastapi", "starlette", "uvicorn")
    }
    assert found == {"ui", "mcp"}


CONNECTING = {
    *("Redis", "StrictRedis", "RedisCluster", "Sentinel", "ConnectionPool", "BlockingConnectionPool"),
    *("from_url", "from_pool"),
}
"""What makes a client of Redis."""


def test_every_connection_to_redis_is_made_in_one_module() -> None:
    found = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in sources(package)
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and (node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")) in CONNECTING
    }
    assert found == {"worker/store/connections.py"}


def test_the_guardian_imports_nothing_but_the_standard_library() -> None:
    guardian = ROOT / "broker_config" / "guardian.py"
    assert {name for _, name in top_level_imports(guardian)} <= sys.stdlib_module_names


def test_the_package_tells_type_checkers_that_it_is_typed() -> None:
    assert (ROOT / "acts_celery" / "py.typed").is_file()


@pytest.mark.parametrize("package", ["acts_celery", "protocol", "broker_config"])
def test_a_package_names_what_is_public(package: str) -> None:
    tree = ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8"))
    assigned = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    assert "__all__" in assigned


COMMANDS = {name for name in dir(Redis) if not name.startswith("_")} - {"close", "lock", "ping", "pubsub"}
CLIENTS = {"redis", "_redis", "pipeline"}
OF_THE_STORE = {"AsyncScript", "Keys", "Script"}


def test_only_the_store_and_the_broker_talk_to_redis() -> None:
    found = {
        name: number
        for path in sources("worker")
        if (name := str(path.relative_to(ROOT))).split("/")[1] not in ("store", "broker")
        and (number := uses_of_redis(path))
    }
    assert found == {}, "give `RunStore`, `RunList` or another class of worker/store/ a method for it"


def uses_of_redis(path: Path) -> int:
    """How many commands, keys and scripts a module makes."""
    calls = (node.func for node in nodes(path) if isinstance(node, ast.Call))
    return sum(
        called.id in OF_THE_STORE
        if isinstance(called, ast.Name)
        else isinstance(called, ast.Attribute) and called.attr in COMMANDS and last_name(called.value) in CLIENTS
        for called in calls
    )


def last_name(of: ast.expr) -> str | None:
    """`redis` of `self.redis`."""
    return of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else None
