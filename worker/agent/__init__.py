"""The loop of a request, and the models that it asks (SPEC R13).

`loop_runner`         the steps of a loop
`loop_log`            writing the log of a loop
`ticks`               answers as calls and errors, and as entries of the log
`room`                the functions that the core calls
`clients`             clients of providers' SDKs, and their errors
`asking`              asking a configured model, with retries and fallbacks
`model_calls`         a delegate or a latent call as one request
`fitting`             a request as its provider takes it
`wire_schema`         the schema that a provider enforces
`streamed_calls`      function calls, assembled from the pieces of a stream
`sdk_model`           models behind a provider's SDK
`dialects`            OpenAI's Chat Completions and Anthropic's Messages
`pydantic_models`     models of other providers, through pydantic-ai
`hosted_agents`       agents of other frameworks, whose steps are calls of a run
`agent_frameworks`    pydantic-ai, the OpenAI Agents SDK, LangGraph: where the steps of their agents are
`prices`              known models: limits and prices
`scripted`            models for tests: scripts, recordings, fakes
"""
