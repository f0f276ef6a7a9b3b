"""Writes a language model with random weights, 0.3 MB: python random_model.py OUT.gguf.

It writes anything that a grammar admits, so behind a server that enforces a schema by one it makes random answers that
fit the schema. Runs in an environment of its own, with `gguf` and `numpy`.
"""

from __future__ import annotations

import sys
from typing import Any

import gguf
import numpy

WIDTH, INNER, HEADS, LAYERS, CONTEXT = 64, 128, 4, 1, 32_768
WORDS = (
    " ",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    '"',
    "calls",
    "output",
    "null",
    "_tool",
    "_outputPath",
    "†state.",
    "†input.",
    "<tool_call>\n",
)
TEMPLATE = """\
{%- if tools %}{{ '<|im_start|>system\\n<tools>' }}{% for tool in tools %}{{ tool | tojson }}{% endfor %}\
{{ '</tools><|im_end|>\\n' }}{% endif %}\
{%- for message in messages %}\
{{- '<|im_start|>' + message.role + '\\n' }}{% if message.content %}{{ message.content }}{% endif %}\
{%- for call in message.tool_calls or [] %}\
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}{{ call.function.arguments | tojson }}\
{{- '}\\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\\n' }}\
{%- endfor %}\
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
"""How a conversation is written whose model calls functions; llama.cpp finds out by it how they are called."""


def write_model(path: str) -> None:
    """Write the file: a llama of one layer whose tokens are bytes, and a few words of the protocol."""
    special = [b"<unk>", b"<s>", b"</s>"]
    of_bytes = [f"<0x{byte:02X}>".encode() for byte in range(256)]
    words = [word.replace(" ", "▁").encode() for word in WORDS]
    tokens = [*special, *of_bytes, *words]
    kind = gguf.TokenType
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_file_type(0)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(
        [kind.UNKNOWN, kind.CONTROL, kind.CONTROL, *[kind.BYTE] * len(of_bytes), *[kind.NORMAL] * len(words)]
    )
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(TEMPLATE)
    for name, shape in _shapes(len(tokens)):
        writer.add_tensor(name, _weights(shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _shapes(tokens: int) -> list[tuple[str, tuple[int, ...]]]:
    """Name and shape of every tensor."""
    shapes: list[tuple[str, tuple[int, ...]]] = [
        ("token_embd.weight", (tokens, WIDTH)),
        ("output_norm.weight", (WIDTH,)),
    ]
    shapes.append(("output.weight", (tokens, WIDTH)))
    for layer in range(LAYERS):
        at = f"blk.{layer}."
        shapes += [(f"{at}attn_norm.weight", (WIDTH,)), (f"{at}ffn_norm.weight", (WIDTH,))]
        shapes += [(f"{at}attn_{part}.weight", (WIDTH, WIDTH)) for part in ("q", "k", "v", "output")]
        shapes += [(f"{at}ffn_{part}.weight", (INNER, WIDTH)) for part in ("gate", "up")]
        shapes.append((f"{at}ffn_down.weight", (WIDTH, INNER)))
    return shapes


def _weights(shape: tuple[int, ...]) -> Any:
    if len(shape) == 1:
        return numpy.ones(shape, numpy.float32)
    return (numpy.random.default_rng(len(shape)).standard_normal(shape) * 0.02).astype(numpy.float32)


if __name__ == "__main__":
    write_model(sys.argv[1])
