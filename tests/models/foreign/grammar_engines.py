"""Engines that enforce schemas while a model writes, asked which texts they admit: python grammar_engines.py ENGINE.

Reads cases, a JSON object a line, `{"schema": …, "texts": [TEXT, …]}`; answers each with a line: a list of true and
false, or a text that says why the engine refuses the schema. Runs in an environment of its own.
"""

from __future__ import annotations

import importlib.machinery
import json
import sys
import types
from collections.abc import Callable
from typing import Any

Admits = Callable[[str], bool]


def by_llguidance(schema: str) -> Admits:
    """What vLLM, SGLang and OpenAI use."""
    import llguidance

    return _of_grammar(llguidance.LLMatcher.grammar_from_json_schema(schema))


def by_llama_cpp(schema: str) -> Admits:
    """The converter of llama.cpp, which Ollama and LM Studio use. Its grammar, in the language of either, is read by
    llguidance, with which xllamacpp may be built itself.
    """
    import xllamacpp
    from llguidance import LLMatcher
    from llguidance.gbnf_to_lark import any_to_lark

    return _of_grammar(LLMatcher.grammar_from_lark(any_to_lark(xllamacpp.json_schema_to_grammar(schema))))


def _of_grammar(grammar: Any) -> Admits:
    import llguidance

    tokenizer = llguidance.LLTokenizer("byte")

    def admits(text: str) -> bool:
        matcher = llguidance.LLMatcher(tokenizer, grammar)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        tokens = list(text.encode())
        return bool(matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting())

    return admits


def by_outlines_core(schema: str) -> Admits:
    """The regular expression that Outlines, TGI and older vLLM make of a schema."""
    import outlines_core
    import regex

    whole = regex.compile(outlines_core.json_schema.build_regex_from_schema(schema))
    return lambda text: whole.fullmatch(text) is not None


def by_xgrammar(schema: str) -> Admits:
    """What vLLM, SGLang and TensorRT-LLM use. It imports torch and transformers for what is not needed here."""
    _stand_in("torch", "torch.utils", "torch.utils.dlpack", "torch.utils.cpp_extension", "transformers")
    import xgrammar
    from xgrammar.testing import _is_grammar_accept_string

    grammar = xgrammar.Grammar.from_json_schema(schema)
    return lambda text: bool(_is_grammar_accept_string(grammar, text))


def _stand_in(*names: str) -> None:
    """Modules in which every name is a class that does nothing."""

    def attribute(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda self, *_, **__: None})

    for name in names:
        if name in sys.modules:
            continue
        module: Any = types.ModuleType(name)
        module.__getattr__ = attribute
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.__version__ = "2.5.0"
        module.cuda = types.SimpleNamespace(is_available=lambda: False)
        module.version = types.SimpleNamespace(cuda=None, hip=None)
        sys.modules[name] = module


ENGINES = {
    "llguidance": by_llguidance,
    "llama.cpp": by_llama_cpp,
    "outlines-core": by_outlines_core,
    "xgrammar": by_xgrammar,
}

if __name__ == "__main__":
    engine = ENGINES[sys.argv[1]]
    for line in sys.stdin:
        case = json.loads(line)
        try:
            admits = engine(json.dumps(case["schema"]))
            said: Any = [admits(text) for text in case["texts"]]
        except Exception as error:  # whichever an engine raises
            said = f"{type(error).__name__}: {error}"
        print(json.dumps(said), flush=True)
