"""Chat templates of open models, asked what a model reads of a request: python chat_templates.py.

Reads conversations, a JSON list of messages a line; answers each with a line: by the name of a template the text, or
null where it refuses. The templates are those in the package `unsloth`, which is read and not imported. Runs in an
environment of its own.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any


def templates() -> dict[str, str]:
    """The templates by their names."""
    found = importlib.util.find_spec("unsloth")
    assert found is not None
    assert found.submodule_search_locations
    source = Path(found.submodule_search_locations[0], "chat_templates.py").read_text("utf-8")
    texts: dict[str, str] = {}
    for node in ast.parse(source).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) if name.endswith("_template") and "ollama" not in name:
                try:
                    value = ast.literal_eval(node.value)
                except ValueError:  # made of others
                    continue
                if isinstance(value, str):
                    texts[name.removesuffix("_template")] = value
    return texts


def main() -> None:
    """Answer until the input ends."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Refused(Exception):
        """A template's own `raise_exception`."""

    def refuse(words: str) -> None:
        raise Refused(words)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
    environment.globals |= {
        "raise_exception": refuse,
        "strftime_now": lambda form: datetime(2026, 11, 28).strftime(form),  # noqa: DTZ001
    }
    made = {name: environment.from_string(text) for name, text in templates().items()}
    for line in sys.stdin:
        messages: Any = json.loads(line)
        read: dict[str, str | None] = {}
        for name, template in made.items():
            try:
                read[name] = template.render(
                    messages=messages, add_generation_prompt=True, bos_token="<s>", eos_token="</s>"
                )
            except Exception:  # its own refusal, or what it takes for granted is not so: a server answers with an error
                read[name] = None
        print(json.dumps(read), flush=True)


if __name__ == "__main__":
    main()
