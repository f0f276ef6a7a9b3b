"""The settings that bound what a submission, a run, a loop and a call may take."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import ByteSize, Field

from .addresses import TIGHTER, AddressSettings

Count = Annotated[int, Field(gt=0)]
Size = Annotated[ByteSize, Field(gt=0)]
_KIB: Final = 1024
_MIB: Final = 1024 * _KIB


class LimitSettings(AddressSettings):
    """The limits; a submission's `config` can only lower those that it names."""

    limit_submission_bytes: Size = Field(
        ByteSize(16 * _MIB), description="Size of one submission, encoded.", json_schema_extra=TIGHTER
    )
    limit_call_bytes: Size = Field(
        ByteSize(16 * _MIB),
        description="Size of the parameters and scopes of one call together, encoded.",
        json_schema_extra=TIGHTER,
    )
    limit_containers: Count = Field(
        250_000,
        description="Objects and lists in one message, in one result, or in the parameters and scopes of one call.",
        json_schema_extra=TIGHTER,
    )
    limit_message_bytes: Size = Field(
        ByteSize(_MIB), description="Size of one message, encoded.", json_schema_extra=TIGHTER
    )
    limit_file_bytes: Size = Field(
        ByteSize(8 * _MIB),
        description="Size of one file that a model is shown. A request has them in base64, so three quarters of "
        "`ACTS_LIMIT_CALL_BYTES` are the most for all of them.",
        json_schema_extra=TIGHTER,
    )
    limit_depth: Count = Field(
        64, description="Nesting of objects and lists in a submission or a result.", json_schema_extra=TIGHTER
    )
    limit_calls: Count = Field(
        1_000_000, description="Calls executed in one run, over all its instances.", json_schema_extra=TIGHTER
    )
    limit_solution_calls: Count = Field(
        1_000_000, description="Calls in one solution or plan.", json_schema_extra=TIGHTER
    )
    limit_elements: Count = Field(
        10_000, description="Elements of the list of one call with `_each`.", json_schema_extra=TIGHTER
    )
    limit_messages: Count = Field(
        1_000_000, description="Messages in one submission's context.", json_schema_extra=TIGHTER
    )
    limit_instances: Count = Field(100_000, description="Instances in one run.", json_schema_extra=TIGHTER)
    limit_schema_work: Count = Field(
        500_000_000,
        description="Work to read a submission's schemas and to apply them to its calls. 100,000 are about 1 ms.",
        json_schema_extra=TIGHTER,
    )
    limit_run_bytes: Size = Field(
        ByteSize(256 * _MIB),
        description="What may be written to the log of one run after its submission. Beyond it the run fails, and "
        "takes no messages.",
        json_schema_extra=TIGHTER,
    )
    limit_run_schema_work: Count = Field(
        5_000_000_000,
        description="Work to apply schemas to the results and parameters of one run. 100,000 are about 1 ms. "
        "Beyond it the run fails.",
        json_schema_extra=TIGHTER,
    )
    limit_run_concurrency: Count | None = Field(
        None,
        description="Calls of one run at work at a time. Its `config` can only lower it. Unset: no limit.",
        json_schema_extra=TIGHTER,
    )
    limit_child_depth: Count = Field(5, description="How deep child runs may be nested.", json_schema_extra=TIGHTER)
    limit_ticks: Count | None = Field(
        None,
        description="Ticks of one loop, with those added later. Its `config` can only lower it. Unset: what that says, "
        "or 8.",
        json_schema_extra=TIGHTER,
    )
    limit_loop_calls: Count | None = Field(
        None,
        description="Calls that one loop may start. Its `config` can only lower it. Unset: what that says, or 200.",
        json_schema_extra=TIGHTER,
    )
    limit_tokens: Count | None = Field(
        None,
        description="Tokens that one loop may use. Its `config` can only lower it. Unset: what the `config` says.",
        json_schema_extra=TIGHTER,
    )
    limit_loop_seconds: float | None = Field(
        None,
        gt=0,
        description="Seconds that one loop may run. Its `config` can only lower it. Unset: what the `config` says.",
        json_schema_extra=TIGHTER,
    )
    limit_dead_letters: Count = Field(
        10_000,
        description="Dead letters that are kept: fire-and-forget calls that failed for good. Beyond it the oldest are "
        "dropped.",
        json_schema_extra=TIGHTER,
    )
    limit_attempts: Count = Field(
        5,
        description="How often a call begins when its workers die, before it fails as `WorkerLost`. 1: just once.",
        json_schema_extra=TIGHTER,
    )


# configuration
# One request on a socket may take this long before the connection counts as dead. It has to exceed the
# blocking BRPOP of one second, and leaves room for a server that is busy writing its append-only file.
SOCKET_TIMEOUT_SECONDS = 15
SOCKET_CONNECT_TIMEOUT_SECONDS = 5

# embedded
# How much longer than the grace a guardian may take before it counts as stuck.
GUARDIAN_MARGIN_SECONDS = 10.0
# The least of what systems allow for the path of a unix socket, with its final zero (macOS: 104, Linux: 108).
SOCKET_PATH_BYTES = 104

# mcp
MCP_SHORTEST: Final = 3

# models
KEY_CHARACTERS: Final = 16

# settings
SETTINGS_SHORTEST = 3

# tokens
LEAST_CHARACTERS: Final = 16
NAME_CHARACTERS: Final = 200
SHORTEST_KEY: Final = 16
"""Bytes: a shorter one can be guessed."""
