"""The loop of a request, and the models that it asks (SPEC R13).

`loop_runner`         what happens at each stage of a loop
`loop_log`            what a loop writes
`ticks`               what an answer means, and how it is logged
`room`                what this room does for the core
`clients`             clients of providers' SDKs, and their errors
`asking`              asking a configured model, with retries and fallbacks
`model_calls`         a delegate or a latent call as one request
`fitting`             a request as its provider takes it
`wire_schema`         the schema that a provider enforces
`streamed_calls`      function calls, assembled from the pieces of a stream
`sdk_model`           models behind a provider's SDK
`dialects`            OpenAI's Chat Completions and Anthropic's Messages
`prices`              known models: limits and prices
`scripted`            models for tests: scripts, recordings, fakes
"""
