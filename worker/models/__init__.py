"""Models: asking one, and what may come of it (SPEC R12.6, R13.3, R13.4, R13.11). Nothing here sees a log.

`request`     what a model is asked, what it answers, and the protocol of a model
`errors`      what can go wrong, each with what happens next
`scripted`    answers from a file
`script_entries` the entries of such a file
`recording`   a model whose answers are kept in such a file
`request_difference` how a request differs from those that were recorded
`registered`  functions registered with `@model`
`fake`        a model of a test
`random_answers` answers at random, for a model of a test
`known`       which models there are, by their names
`providers`   making a model from its settings
`probing`     whether a model can be had, and is there
`asking`      asking until there is an answer, or no time left
`configured`  the models of a process: asking one by its name
`sdk_model`   models behind an SDK: loading it, asking, reading what comes
`anthropic_messages` Anthropic's Messages
`openai_chat` every endpoint that speaks OpenAI's Chat Completions
`prices`      what requests cost in money
`image_tokens` how many tokens messages have at most, pictures by their providers' rules
`content_parts` pictures and documents in messages, as a provider takes them
`profiles`    what each provider takes, as data
`fitting`     a request as a provider takes it
`wire_schema` the schema as a provider enforces it
`wire_writer` writing each part of it
`wire_size`   how large a schema is by what providers limit
`unenforced`  what is not enforced, as findings
`function_fitting` its tools as functions that a provider takes
`called`      putting together the function calls of an answer as they come
`provider_data` what a provider says besides, kept for the model that said it
`anthropic_turns`  a conversation as Anthropic takes it
`http_client` what the SDKs of providers have in common: their HTTP client, their errors as ours
`wire_text`   what comes over the wire, of bounded size
`delegates`   a delegate or a latent call as one request
`tick_requests` the request of a loop's tick
`partial_answers` sending on its answer while it is written
`window`      whether a request fits the context of a model
"""
