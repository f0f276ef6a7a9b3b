"""The product stays small enough to be read: few modules, one clear noun each, every meaning in one place.

A change that needs more raises a cap by what it adds, and says so in its message.
"""

from __future__ import annotations

import ast
import gc
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("protocol", "worker", "broker_config")
FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)

MOST_MODULES: Final = 245
MOST_LINES_OF_CODE: Final = 63_450
MOST_LINES_OF_A_MODULE: Final = 450
MOST_LINES_OF_A_FUNCTION: Final = 60
MOST_SCRIPTS: Final = 17
MOST_MODULES_THAT_NAME_CALL_ENDED: Final = 4
MOST_CLASS_NAMES_USED_TWICE: Final = 26
MOST_NUMBERS_OUTSIDE_LIMITS: Final = 59
MOST_PARAMETERS: Final = 7
MOST_PERCENT_OF_TEST_MODULES_THAT_REACH_DEEP: Final = 35
MOST_DOCSTRINGS_WITHOUT_A_HEAD: Final = 0
WITHOUT_A_HEAD: Final = re.compile(
    r"(Of|The same|These|Those|They|It|There|Likewise|Whoever|That of|As|The inverse|What is said|What comes of"
    r"|What came of|Whether it|Which of)\b"
)
"""First words of a docstring that nobody understands without the line above it."""
DEEP: Final = 3
"""Dots in the name of a module three levels in the product."""


@cache
def sources() -> dict[str, str]:
    """The modules of the product by their path."""
    return {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    }


@cache
def trees() -> dict[str, ast.Module]:
    """The syntax trees of the modules, by path."""
    gc.disable()  # it would look through all trees again and again, and they are kept
    try:
        return {path: ast.parse(text) for path, text in sources().items()}
    finally:
        gc.enable()
        gc.freeze()


@cache
def lines_of_code(path: str) -> int:
    """Count the lines that are neither blank nor of a comment or docstring."""
    documentation: set[int] = set()
    for node in ast.walk(trees()[path]):
        body = getattr(node, "body", None)
        for each in body if isinstance(body, list) else ():
            if (
                isinstance(each, ast.Expr)
                and isinstance(each.value, ast.Constant)
                and isinstance(each.value.value, str)
            ):
                documentation.update(range(each.lineno, (each.end_lineno or 0) + 1))
    code = {
        number
        for number, line in enumerate(map(str.strip, sources()[path].splitlines()), start=1)
        if line and not line.startswith("#")
    }
    return len(code - documentation)


def lines_of_asset(text: str, comment: str) -> int:
    """Lines of Lua, JavaScript, CSS or HTML that are neither blank nor of a comment."""
    text = re.sub(r"/\*.*?\*/|<!--.*?-->", "", text, flags=re.DOTALL)
    return sum(bool(line.strip()) and not line.strip().startswith(comment) for line in text.splitlines())


def test_there_are_few_modules() -> None:
    assert len(sources()) <= MOST_MODULES


def test_there_is_little_code() -> None:
    assets = {"*.lua": "--", "*.js": "//", "*.css": "//", "*.html": "//"}
    lines = sum(map(lines_of_code, sources())) + sum(
        lines_of_asset(path.read_text(encoding="utf-8"), comment)
        for pattern, comment in assets.items()
        for path in (ROOT / "worker").rglob(pattern)
    )
    assert lines <= MOST_LINES_OF_CODE


def test_no_module_is_long() -> None:
    long = {path: lines for path in sources() if (lines := lines_of_code(path)) > MOST_LINES_OF_A_MODULE}
    assert long == {}


def test_no_function_is_long() -> None:
    long = {
        f"{path}::{node.name}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, FUNCTIONS) and (node.end_lineno or 0) - node.lineno + 1 > MOST_LINES_OF_A_FUNCTION
    }
    assert long == set()


def test_there_are_few_scripts_in_lua() -> None:
    assert len([*(ROOT / "worker").rglob("*.lua")]) <= MOST_SCRIPTS


def test_the_end_of_a_call_is_read_in_few_places() -> None:
    found = {path for path, text in sources().items() if re.search(r"\bCallEnded\b", text)}
    assert len(found) <= MOST_MODULES_THAT_NAME_CALL_ENDED, sorted(found)


def test_a_class_name_means_one_class() -> None:
    names = Counter(node.name for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    twice = sorted(name for name, uses in names.items() if uses > 1)
    assert len(twice) <= MOST_CLASS_NAMES_USED_TWICE, twice


def test_numbers_are_in_the_modules_of_limits() -> None:
    found = [
        f"{path}: {ast.unparse(target)}"
        for path, tree in trees().items()
        if Path(path).name != "limits.py"
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and _is_number(node.value)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    assert len(found) <= MOST_NUMBERS_OUTSIDE_LIMITS, found


def _is_number(value: ast.expr) -> bool:
    """Whether a constant is a number, or computed of numbers alone."""
    parts = [
        node for node in ast.walk(value) if not isinstance(node, ast.operator | ast.unaryop | ast.BinOp | ast.UnaryOp)
    ]
    return all(
        isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool)
        for node in parts
    )


def test_a_docstring_can_be_read_alone() -> None:
    found = [
        f"{path}:{node.lineno}: {text[:60]}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for text in [node.value.value]
        if isinstance(text, str) and WITHOUT_A_HEAD.match(text.strip())
    ]
    assert len(found) <= MOST_DOCSTRINGS_WITHOUT_A_HEAD, "\n".join(["begin with a verb or a noun:", *found])


def test_few_modules_of_tests_reach_deep_into_the_product() -> None:
    """Most do with what users import, commands and HTTP, and import nothing such as `acts_celery.worker.store.lane`."""
    modules = sorted((ROOT / "tests").rglob("test_*.py"))
    deep = [path for path in modules if any(name.count(".") >= DEEP for name in _imported(path))]
    assert 100 * len(deep) <= MOST_PERCENT_OF_TEST_MODULES_THAT_REACH_DEEP * len(modules), (len(deep), len(modules))


def _imported(path: Path) -> Iterator[str]:
    """The modules of the product that a module imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module]
        yield from (name for name in names if name.startswith("acts_celery."))


def test_many_parameters_are_allowed_only_where_there_are_many() -> None:
    ruff = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]["lint"]
    allowed = {name for name, rules in ruff["per-file-ignores"].items() if "PLR0913" in rules}
    assert ruff["pylint"]["max-args"] == MOST_PARAMETERS
    assert {name for name in allowed if not _has_many(ROOT / name)} == set()


def _has_many(path: Path) -> bool:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return any(_parameters(node.args) > MOST_PARAMETERS for node in nodes if isinstance(node, FUNCTIONS))


def _parameters(found: ast.arguments) -> int:
    given = [each.arg for each in (*found.posonlyargs, *found.args, *found.kwonlyargs)]
    return len(given) - (given[:1] in (["self"], ["cls"]))
