"""The loop: a model is asked, its calls are run, their results are shown to it, it is asked again (SPEC R13).

`loop_runner`         what is done at each stage
`loop_view`           a run as its loop sees it
`ticks`               what an answer comes to, and how it is written down
`loop_log`            what a loop runner writes
`scripted`            answers from a file
`asking`              asking until there is an answer, or no time left
`sdk_model`           models behind an SDK: loading it, asking, reading what comes
`anthropic_messages`  Anthropic's Messages
`openai_chat`         every endpoint that speaks OpenAI's Chat Completions
`prices`              what requests cost in money
`fitting`             a request as a provider takes it
`wire_schema`         the schema as a provider enforces it
`called`              putting together the function calls of an answer as they come
`model_calls`         A delegate without tools, or a latent call, as one request: its messages, its schema, its answer
`models`              what a model is asked, what it answers, and what a model is
"""

from __future__ import annotations
