"""What mkdocs needs to know about these pages: their menu, and how files and links are written in them.

mkdocs.yml names this module as its hook. Without a network a picture is shown as the text that it is drawn from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

DOCS: Final = Path(__file__).parents[2] / "docs"
INDEX: Final = DOCS / "README.md"
_LINKED: Final = re.compile(r"^- \[(.+?)\]\((.+?)\): (.+)$", re.MULTILINE)
_NAMED: Final = re.compile(r"^```(\w+) (\S+)$", re.MULTILINE)
_OUTSIDE: Final = re.compile(r"\[([^\]]+)\]\((?:\.\./)+((?!internals|decisions)[^)\s]*)\)")


def groups(index: str) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """The groups of the index, each with its pages: title, file and what the page is for."""
    for section in index.split("\n## ")[1:]:
        name, _, text = section.partition("\n")
        yield name, _LINKED.findall(text)


def on_config(config: Any) -> Any:
    """Make the menu from the index."""
    pages = groups(INDEX.read_text(encoding="utf-8"))
    menu: list[dict[str, Any]] = [{name: [{title: file} for title, file, _ in of]} for name, of in pages]
    config["nav"] = [{"Home": INDEX.name}, *menu]
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Write a named block with its name as title, and a link to a file of the repository as the file's name."""
    named = _NAMED.sub(
        lambda found: f"```{found[1]}" + ("" if found[1] == "mermaid" else f' title="{found[2]}"'), markdown
    )
    depth = page.file.src_uri.count("/")
    return _OUTSIDE.sub(
        lambda found: found[0] if found[0].count("../") <= depth else f"{found[1]} (`{found[2]}`)", named
    )
