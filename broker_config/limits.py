"""The settings that bound what a submission, a run, a loop and a call may take."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import ByteSize, Field

from .addresses import TIGHTER, AddressSettings, setting

Count = Annotated[int, Field(gt=0)]
Size = Annotated[ByteSize, Field(gt=0)]
_KIB: Final = 1024
_MIB: Final = 1024 * _KIB


class LimitSettings(AddressSettings):
    """The limits; a submission's `config` can only lower those that it names."""

    limit_submission_bytes: Size = setting(ByteSize(16 * _MIB), "Size of one submission, encoded.", TIGHTER)
    limit_call_bytes: Size = setting(
        ByteSize(16 * _MIB), "Size of the parameters and scopes of one call together, encoded.", TIGHTER
    )
    limit_containers: Count = setting(
        250_000,
        "Objects and lists in one message, in one result, or in the parameters and scopes of one call.",
        TIGHTER,
    )
    limit_message_bytes: Size = setting(ByteSize(_MIB), "Size of one message, encoded.", TIGHTER)
    limit_file_bytes: Size = setting(
        ByteSize(8 * _MIB),
        "Size of one file that a model is shown. Requests carry files in base64, so all "
        "files of one take at most three quarters of `ACTS_LIMIT_CALL_BYTES`.",
        TIGHTER,
    )
    limit_depth: Count = setting(64, "Nesting of objects and lists in a submission or a result.", TIGHTER)
    limit_calls: Count = setting(1_000_000, "Calls executed in one run, over all its instances.", TIGHTER)
    limit_solution_calls: Count = setting(1_000_000, "Calls in one solution or plan.", TIGHTER)
    limit_elements: Count = setting(10_000, "Elements of the list of one call with `_each`.", TIGHTER)
    limit_messages: Count = setting(1_000_000, "Messages in one submission's context.", TIGHTER)
    limit_instances: Count = setting(100_000, "Instances in one run.", TIGHTER)
    limit_schema_work: Count = setting(
        500_000_000,
        "Work to read a submission's schemas and to apply them to its calls. 100,000 are about 1 ms.",
        TIGHTER,
    )
    limit_run_bytes: Size = setting(
        ByteSize(256 * _MIB),
        "What may be written to the log of one run after its submission. Beyond it the run fails, and takes no "
        "messages.",
        TIGHTER,
    )
    limit_run_schema_work: Count = setting(
        5_000_000_000,
        "Work to apply schemas to the results and parameters of one run. 100,000 are about 1 ms. Beyond it the run "
        "fails.",
        TIGHTER,
    )
    limit_run_concurrency: Count | None = setting(
        None, "Calls of one run at work at a time. Its `config` can only lower it. Unset: no limit.", TIGHTER
    )
    limit_child_depth: Count = setting(5, "How deep child runs may be nested.", TIGHTER)
    limit_ticks: Count | None = setting(
        None,
        "Ticks of one loop, with those added later. Its `config` can only lower it. Unset: what that says, or 8.",
        TIGHTER,
    )
    limit_loop_calls: Count | None = setting(
        None, "Calls that one loop may start. Its `config` can only lower it. Unset: what that says, or 200.", TIGHTER
    )
    limit_tokens: Count | None = setting(
        None, "Tokens that one loop may use. Its `config` can only lower it. Unset: what the `config` says.", TIGHTER
    )
    limit_loop_seconds: float | None = setting(
        None,
        "Seconds that one loop may run. Its `config` can only lower it. Unset: what the `config` says.",
        TIGHTER,
        gt=0,
    )
    limit_dead_letters: Count = setting(
        10_000,
        "Dead letters that are kept: fire-and-forget calls that failed for good. Beyond it the oldest are dropped.",
        TIGHTER,
    )
    limit_attempts: Count = setting(
        5, "How often a call begins when its workers die, before it fails as `WorkerLost`. 1: just once.", TIGHTER
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
MINUTE_MS: Final = 60_000
MOST_A_MINUTE: Final = 100_000
"""The most requests a minute that a model's limit may name: as many moments are kept."""

# settings
SETTINGS_SHORTEST = 3

# tokens
LEAST_CHARACTERS: Final = 16
NAME_CHARACTERS: Final = 200
SHORTEST_KEY: Final = 16
"""Bytes: a shorter one can be guessed."""
