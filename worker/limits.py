"""Sizes, counts and times of the worker, and the operator's limits as the pure core takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..broker_config import Settings
    from ..protocol import Limits


def limits_of(settings: Settings) -> Limits:
    """The limits that submissions and results are held against."""
    from ..protocol import Limits

    return Limits(
        depth=settings.limit_depth,
        message_bytes=int(settings.limit_message_bytes),
        calls=settings.limit_calls,
        solution_calls=settings.limit_solution_calls,
        submission_bytes=int(settings.limit_submission_bytes),
        call_bytes=int(settings.limit_call_bytes),
        containers=settings.limit_containers,
        elements=settings.limit_elements,
        messages=settings.limit_messages,
        instances=settings.limit_instances,
        schema_work=settings.limit_schema_work,
    )


def most_of(settings: Settings) -> dict[str, float | None]:
    """The operator's limits for a loop, by the keys of `config`; null is no limit (SPEC R13.3)."""
    return {
        "ticks": settings.limit_ticks,
        "calls": settings.limit_loop_calls,
        "tokens": settings.limit_tokens,
        "seconds": settings.limit_loop_seconds,
    }


# agent/dialects
ANTHROPIC_OUTPUT_TOKENS: Final = 8_192
"""The most tokens of an answer that are asked for where nothing is set: Anthropic's Messages demand a number."""

# agent/asking
ASKING_SPREAD: Final = 1.1
"""A server's `Retry-After` is stretched by up to this factor, so that not all come back at once."""
USUAL_BYTES: Final = 4
"""Bytes of a usual token: a request as the engine writes it has that many tokens, or a fifth more."""
ASKING_MOST_BYTES: Final = 16
"""Bytes of the longest token, rows of one character left out."""
ASKING_PAUSE_SECONDS: Final = 0.1
"""The least time between two parts of an answer that are sent while it is written."""
ASKING_SHARE: Final = 32
"""A part of an answer is sent when its text has grown by this share (1/32)."""
ASKING_SECONDS: Final = 10.0
"""The longest that probing a model waits for an answer."""
MODELS_NAMED: Final = 5

# agent/streamed_calls
BODY_SHOWN_BYTES: Final = 200
"""The bytes of an unreadable answer that an error quotes."""
LONGEST_BEFORE: Final = 100
"""Characters before a call's JSON after which it is not told any more while it is written."""

# agent/clients
CLIENTS_CONNECT_SECONDS: Final = 10.0
"""The longest that connecting to a provider may take."""
CLIENTS_LONGEST_TEXT: Final = 2_000
"""Characters of an error text of a model's server."""
SERVERS_FAULT: Final = 500
"""The first HTTP status that is the server's fault. Gateways send it for a moment, and some servers for each schema
that they reject.
"""

# agent/fitting
MOST_STRICT: Final = 20
"""Functions that Anthropic enforces in one request."""
MOST_REMEMBERED: Final = 1_000
"""The most schemas of which a process remembers how a provider takes them."""
FITTING_MOST_NAMED: Final = 10
"""Places of a schema that a message names as not enforced."""

# agent/loop_log
LOOP_LOG_SMALL_BYTES: Final = 10_000
"""Bytes of an answer up to which it is read on the event loop, in some milliseconds."""

# agent/model_calls
SHOWN_CHARACTERS: Final = 500
"""Characters that an error shows of an answer."""
MODEL_CALLS_LONGEST_ERROR: Final = 900
"""Characters of what an error says of an answer that does not fit."""

# agent/scripted
AROUND: Final = 60
"""Characters that are shown before and behind the place where two texts part."""
SCRIPTED_COMPARED: Final = 4_000
"""Characters of a message by which the most similar recorded request is found."""
SCRIPTED_MOST_BYTES: Final = 1_000_000
"""The most bytes of the file in which processes count uses of answers."""
ODDS_OF_REFERENCE: Final = 0.1
"""How often a generated parameter is a reference, from 0 to 1."""
SCRIPTED_MOST_CALLS: Final = 3
"""The most calls of a random answer."""
SCRIPTED_TRIES: Final = 20
"""The random values that are drawn before a plain one is taken."""
SCRIPTED_DEPTH: Final = 8
"""The deepest level of a random value that is not plain."""

# agent/sdk_model
ORIGIN_DIGITS: Final = 16
"""The hexadecimal digits of the name under which the log has a model's own data."""
OWN_SHARE: Final = 4
"""The share (1/4) of a message's size that is kept of what a model sends besides its answer."""
SDK_MODEL_LONGEST_REASON: Final = 300
"""The characters of a refusal that a finding quotes."""
SDK_MODEL_LONGEST_NAME: Final = 200
"""The longest name that a model may give itself."""

# agent/hosted_agents
HOSTED_STEPS: Final = 1_000
"""The steps of a hosted agent, unless its request names another number."""

# agent/ticks
MOST_SHOWN: Final = 3
"""Reasons that are named: errors of a loop's last tick, requests that a model has not answered."""

# agent/wire_schema
WIRE_SCHEMA_MANY: Final = 250
"""Values of an enum up to which the characters are not counted separately."""

# backoff
MOST_DOUBLINGS: Final = 64

# broker/attempts
SAMPLED_FLAG: Final = 1
"""The bit of a `traceparent` that says that the trace is recorded."""
TOKEN_CHARACTERS: Final = 32
"""Characters of a token: 128 bits in hexadecimal."""
MOST_DIGITS_OF_AGAIN: Final = 16
"""Digits of how often a call was run again, in a token."""
SEALS_KEPT: Final = 64
"""Runs whose seals are computed once."""

# broker/consumer
MOST_BYTES_IN_HAND: Final = 48 * 2**20
"""Bytes in hand from one queue after which a worker takes nothing more of it."""
LARGE_BYTES: Final = 2**16
"""Bytes of the smallest message that counts for `MOST_BYTES_IN_HAND`."""
LONGEST_LANE: Final = 2_000
"""Bytes of a lane's task up to which its place in the queue is shared fairly; it may be longer."""
FAIR_TURN_SECONDS: Final = 0.005
EVENTS_SECONDS: Final = 0.1
"""How long a task event may wait for others: each message of them costs as much as a hundred events more."""
PUBLISHED_AT_ONCE: Final = 500
MOST_TASKS_KEPT: Final = 10_000
"""Tasks that are kept in memory while the broker is away."""
MOST_KEPT_BYTES: Final = 64 * 2**20
"""Bytes of the tasks that are kept in memory while the broker is away."""
AWAY_SECONDS: Final = 1.0
"""How long a broker that takes nothing counts as slow; after that it counts as away."""

# broker/messages
BESIDE_BYTES: Final = 64 * 1024
"""Bytes of a message beyond what is limited by itself: ids, names, msgpack's own bytes."""
MESSAGE_VERSION: Final = 1
"""The format of messages. A change that raises it writes the header, and reads the format before."""
MOST_PARTS: Final = 100
"""Tasks that are taken from one message."""
MOST_TOGETHER_BYTES: Final = 192 * 1024
"""Bytes that the tasks of one message may have, with what is shown of them."""
NAME_CHARACTERS: Final = 1_000
"""Characters of the name of a queue, or a model, in a message."""
LONGEST_RETRY_DELAY_SECONDS: Final = 366 * 86_400.0
LONGEST_TYPE: Final = 100
"""Characters of an error's type."""
LONGEST_WHY: Final = 300
"""Characters that a report has for why a model has not answered."""
SHORTEST_REST_SECONDS: Final = 1.0
"""The shortest rest of a call that was given back."""
LONGEST_REST_SECONDS: Final = 30.0
"""The longest rest of a call that was given back."""
LONGEST_GIVE_BACK_REASON: Final = 1_000

# broker/remote_control
CANCELLED_RUNS_KEPT: Final = 10_000

# broker/transport
BROKER_WAIT_SECONDS: Final = 5
ENVELOPE_BYTES: Final = 1024 * 1024
"""Bytes that Celery may add to a message."""
LONGEST_ID: Final = 200
EVENTS_AT_ONCE: Final = 300
"""Events that are published together."""
TASKS_IN_A_MESSAGE: Final = 20
"""Tasks that share a message."""
BYTES_IN_A_MESSAGE: Final = 64 * 1024
"""Bytes of the tasks that share a message."""
SHARES_OF_CALLS: Final = 4
"""A message takes up to 1/4 of the tasks that lie in its queue, so that other workers find some."""
PUBLISHING_TRIES: Final = 120

# cli/check
MOST_NAMED: Final = 5
"""Instances, or failed calls, that a line names."""
MOST_TOLD: Final = 20
"""Warnings, reasons to wait, or stale calls that are printed; `acts check` prints all warnings, --json all calls."""
MOST_PROMISED: Final = 100
MOST_READERS: Final = 100_000
"""Readers of branches that are listed, over all branches: where many read what many write there may be millions."""

# cli/control
CONTROL_MANY: Final = 100
"""Calls that are given up at a terminal without a question."""

# cli/evaluating
QUIET_SECONDS: Final = 15.0

# cli/inspect
INSPECT_WIDTH: Final = 400
"""Characters of one message."""

# cli/options
NOBODY_READS: Final = 141
"""The exit code where nothing reads the output any more (SIGPIPE)."""
OPTIONS_SHOWN: Final = 20
"""Runs that are listed before something is deleted."""

# cli/output
LONGEST_LINE: Final = 1_000
"""Characters of one error line on stderr; machine output is never cut."""
INLINE_WIDTH: Final = 88
"""Characters of a list of scalars that stays on one line."""
SHOWN_INSTANCES: Final = 20
"""Instances of a simulation that are shown."""

# cli/progress
LOOK_SECONDS: Final = 1.0
PROGRESS_SHOWN: Final = 60
"""Characters that are shown of a text that is being written."""
PROGRESS_MOST: Final = 10
"""Kinds of failures, and of instances, that are shown where no limit is given: of more instances none is."""
PROGRESS_MOST_WAITING: Final = 5
"""Waiting instances that are shown where no limit is given."""

# cli/rows
ROWS_PART: Final = 2_000
"""Rows that are one run, where each is on its own: checked, submitted and read back in less than a second."""
ROWS_PART_BYTES: Final = 4 * 1024 * 1024
"""Characters of the rows of one run, which a submission has room for, with its plan."""
ROWS_AHEAD: Final = 3
"""Parts that are under way at a time, so that workers never wait for the next one."""

# cli/run
RUN_QUIET_SECONDS: Final = 3.0
RUN_ANSWER_SECONDS: Final = 1.5

# cli/runs
RUNS_MOST: Final = 20
"""Runs that `acts runs` lists where no limit is given."""
LONGEST: Final = 100
"""Characters of a value on one line; --json prints all of it."""
OLD_SECONDS: Final = 30.0

# cli/serving
SERVING_ASKED_SECONDS: Final = 3.0
SERVING_ANSWER_SECONDS: Final = 5.0
"""How long a server may owe an answer: Prometheus waits ten seconds for all."""

# cli/source
SOURCE_CHUNK_BYTES: Final = 1024 * 1024
SOURCE_OWN: Final = 0o600
"""The mode of a file that its owner alone may read."""

# cli/supervisor
LASTING_SECONDS: Final = 60.0
"""How long a process has to run to be started again after the first delay."""

# cli/worker
WORKER_LIKENESS: Final = 0.8
LOCAL_POLL_SECONDS: Final = 0.1
"""The time between two looks of a worker at the queues of an embedded server; it acts on a signal between two looks."""

# client/explanations
MOST_WRITERS: Final = 20
"""Writers that are named, with those of what they lack."""
ABSENCE_MOST_INSTANCES: Final = 20
"""The most instances that are examined."""
ABSENCE_LIKENESS: Final = 0.7

# client/amendment
AMENDMENT_AT_ONCE: Final = 200
DROPPED_AT_ONCE: Final = 250
"""Calls that one script skips: the server does nothing else meanwhile."""

# client/archive
AT_ONCE: Final = 500
LONGEST_PATH: Final = 200

# client/async_client
ASYNC_CLIENT_AT_ONCE: Final = 100
"""Values of an iterator that are read in a thread at a time."""

# client/deleting
DELETING_AT_ONCE: Final = 20
"""Runs that one step deletes: few enough for the server to answer others in between."""
LOOKED_AT: Final = 1_000
DELETING_KEPT_SECONDS: Final = 86_400
"""How long a log stays that was written anew in part, by a client that died."""

# client/deployments
DEPLOYMENTS_MOST_LOOKED_AT: Final = 100_000
DEPLOYMENTS_SURE: Final = 8
"""The characters from which on the beginning of an id is taken for an id, even where a run has that name."""

# client/dispatcher
DISPATCHER_WINDOWS: Final = 10
"""Windows of calls that a submission publishes at once: tasks of others wait behind no more of them. Later lanes follow
by the window, as all others do.
"""
DISPATCHER_MOST_BYTES: Final = 2**24
"""Bytes of the tasks that a submission publishes at once."""
DISPATCHER_AT_ONCE: Final = 250
"""Calls that are decided before what they hold is counted."""

# client/people
SHOWN: Final = 500
"""Characters of a text that an error shows."""
PEOPLE_NAMED: Final = 5
"""Calls that an error names."""
PEOPLE_DIGEST: Final = 16
"""Characters of a plan's digest: it tells the plans of one run apart."""

# client/progress
PROGRESS_AT_ONCE: Final = 200
LOOK_MS: Final = 500
PROGRESS_ENTRIES_AT_ONCE: Final = 1_000
"""Entries that are read at a time."""
PROGRESS_BLOCK_MS: Final = 5_000
FAILOVER_SECONDS: Final = 60
"""How long a failover may take: Sentinels replace a master that is silent for 30 seconds, unless they are configured
otherwise.
"""

# client/results
MOST_ROWS: Final = 20
MOST_CHARACTERS: Final = 200
RESULTS_MOST_INSTANCES: Final = 1_000
FAILURES_TOLD: Final = 3
"""Failures that the error of a run names, and instances of each."""

# client/retrying
RETRYING_MOST_NAMED: Final = 100
"""Calls that the audit trail names."""
UNDONE_AT_ONCE: Final = 250
"""Calls that one script undoes: the server does nothing else meanwhile."""

# client/run
RUN_MOST: Final = 60
"""Calls that are drawn of one run; instances of one call are one node."""

# client/submitting
CLAIM_SECONDS: Final = 120
SUBMITTING_LOOK_SECONDS: Final = 0.05
SUBMITTING_MADE: Final = 200_000
"""Objects made and not freed after which the young ones are collected."""
HELD_SECONDS: Final = 120
"""How long a client that dies keeps others of its owner waiting."""
SUBMITTING_WAIT_SECONDS: Final = 60
DAY_MS: Final = 86_400_000

# client/tables
TABLES_INSTANCES_AT_ONCE: Final = 1_000

# errors
INSTANCES_NAMED: Final = 10
"""Instances that an error names."""

# fairness
TURN_SECONDS: Final = 0.02
"""How long the lanes of a run may work before others have their turn."""
TURN_ALONE_SECONDS: Final = 0.2
"""How long the lanes of a run may work where no other run has done anything lately; one that comes waits so long."""
LATELY_SECONDS: Final = 0.5
LANES_AT_A_TURN: Final = 32
"""Lanes that go on when a turn begins; each that has made its step lets the next one in."""
SHARE_OF_FREE_PLACES: Final = 8
"""A key may hold this many times the places that are left free."""
FEW_PLACES: Final = 16
"""Places below which none is kept free."""
STUCK_SECONDS: Final = 0.5
"""How long a lane yields before the lanes behind it are taken."""
LANES_ASIDE: Final = 5_000
QUARANTINE_SECONDS: Final = 30.0
"""How long a call in the quarantine keeps the next one from beginning."""
HARMLESS_DEATHS: Final = 1
"""Deaths after which a call begins again together with others."""

# local
READY_SECONDS: Final = 30.0
LOCAL_LONGEST_WAIT_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.02
LOCAL_GRACE_SECONDS: Final = 2.0
LOCAL_MOST_STARTS: Final = 100
LOCAL_SWEEP_SECONDS: Final = 0.2
"""The time between two sweeps of an embedded backend: a command that waits for what was sent and not awaited waits for
a sweep.
"""
LAST_LOG_LINES: Final = 3

# logs
LONGEST_LOG_VALUE: Final = 2_000

# mcp/documents
DOCUMENTS_SMALL_BYTES: Final = 16_000
"""Bytes of a message that is handled in the server itself, in some tens of milliseconds."""
DOCUMENTS_PROCESSES: Final = 2
"""The processes for large documents."""
DOCUMENTS_MOST_BYTES: Final = 2**30
"""Bytes of memory that a process for documents may take."""
DOCUMENTS_MOST_SECONDS: Final = 60
"""Seconds of processor time for one call: a document of the largest size takes less."""
DOCUMENTS_NICENESS: Final = 5
"""The niceness of a process for documents."""
SPENT_SECONDS: Final = 60.0
"""Seconds that a visitor's calls may take in a row; after that they may take `DOCUMENTS_SHARE` of the time."""
DOCUMENTS_SHARE: Final = 0.5
"""The share of the time that a visitor's calls may take in the long run."""
DOCUMENTS_MOST_WAITING: Final = 8
"""Calls of a visitor that are under way, all but one of which wait."""
DOCUMENTS_MOST_ANSWERED: Final = 2**24
"""The most bytes of an answer of a process for documents, and of a run whose whole result is one answer."""

# mcp/reading
READING_MOST_BYTES: Final = 500_000
"""Bytes of a value that an answer may be asked to hold."""
READING_LONGEST_WAIT_SECONDS: Final = 600
"""The longest that a client can wait for a run in one call."""
READING_LOOK_SECONDS: Final = 2.0
"""The time between two looks at a run that is waited for."""
MOST_ERRORS: Final = 100
"""The most errors of a submission in one answer."""
PLAN_BYTES: Final = 60_000
"""The most bytes of a plan in an answer."""
CALLS_BYTES: Final = 20_000
"""The most bytes of the calls in an answer."""
FINDINGS_BYTES: Final = 20_000
"""The most bytes of the findings in an answer."""
MOST_PROBLEMS: Final = 5
"""The most faults of a delegate's arguments that an error names."""
LONGEST_NAME: Final = 128
"""The longest name of a tool."""

# mcp/server
MOST_CONNECTIONS: Final = 200
"""The most connections, and requests under way, of the server over HTTP."""
SERVER_INPUT: Final = 0
"""The file descriptor of standard input."""
SERVER_AT_ONCE: Final = 65_536
"""The bytes that are read from standard input at once."""

# mcp/tools
TOOLS_MOST_LOOKED_AT: Final = 5_000
"""The most runs that are searched for one that is not named by its whole id."""

# outages
OUTAGES_SILENT_SECONDS: Final = 30.0
"""How long a duty may fail before it is a problem of the process."""
PING_INTERVAL_SECONDS: Final = 0.5
SERVER_AWAY_SECONDS: Final = 1.0
"""How long a worker keeps a task of a run whose server is away, before it gives it back."""
PING_ANSWER_SECONDS: Final = 2.0
SLOW_SECONDS: Final = 0.2
"""How much later than on a new connection an answer may come on an old one."""
BATCH_ITEMS: Final = 100
BATCH_BYTES: Final = 2**20

# process
MOST_NAMES: Final = 200
"""Names that a process gives out, unless another number is given."""

# recovery/heartbeats
OUTDATED_SECONDS: Final = 600
"""The age at which a report of calls at work is of no use: a broker that can drops it."""
REPORTS_A_PAGE: Final = 100
"""Reports that are read at a time."""
LONGEST_REPORT_INTERVAL_SECONDS: Final = 1.0
UNANSWERED_IN_A_REPORT: Final = 100
"""Requests of which a report says that a model has not answered; more would say the same."""
ERROR_BYTES_IN_A_REPORT: Final = 32 * 1024
"""Bytes of errors in a report: others go into the next one."""
NOTICE_SECONDS: Final = 1.0
"""How long it takes at most until a process knows that a run was cancelled."""
SILENT_CALLS_NAMED: Final = 10
SILENT_CALLS_WRITTEN: Final = 200
"""Remote calls of a silent process that are written into the log, for people."""

# recovery/overdue
POSTING_SECONDS: Final = 30.0
"""The time after which a sweep takes a held call again that a process was to post and has not."""
WEBHOOK_TIMEOUT_SECONDS: Final = 10.0
WEBHOOKS_AT_ONCE: Final = 8
WEBHOOKS_WAITING: Final = 200
"""Held calls that a process takes upon itself to post."""
WEBHOOK_FIRST_DELAY_SECONDS: Final = 2.0
WEBHOOK_LONGEST_DELAY_SECONDS: Final = 3_600.0
OUTBOX_AT_ONCE: Final = 200
SUBMITTING_SECONDS: Final = 600.0
"""How long a client may write at a run before it counts as dead, and what it has written is removed."""
LOST_CALLS_NAMED: Final = 10
BROKEN_MS: Final = 60_000
"""How long a run whose keys are broken is left alone."""

# recovery/sidecar
MORE_SLOTS: Final = 64
"""Calls that may be at work beyond those that `concurrency` counts."""
AWAKE_SECONDS: Final = 2.0
"""How long after a silence messages may arrive that were taken during it: a blocking read of the broker takes 1 s."""

# recovery/sweep
LATE_MS: Final = 2_000
"""The time after which a probe that has not come out may be lost, and another one is sent; it doubles."""
AHEAD_MS: Final = 10_000
"""The difference that the clocks of a cluster's nodes may have."""
REPORTED_CALLS_AT_ONCE: Final = 500
"""Reported calls that a script notes without holding up the server."""
RUNS_AWAITING_CODE: Final = 10_000
"""Runs, the newest, in which calls are tried again when a worker begins; in others when their time has come."""
SWEEP_RUNS_AT_ONCE: Final = 100
RUNS_A_SWEEP_VISITS: Final = 20
"""Runs that each sweep looks at in turn, whatever is due."""
IDLE_TURNS: Final = 60
"""Turns without a run of which the first reads the reports (workers that begin send some) and takes back slots."""
QUEUE_NOTES_TIMEOUT_SECONDS: Final = 5.0
NEVER_EXPIRES: Final = -1
"""Redis' answer for a key that does not expire."""
LONGEST_TURNS: Final = 10
"""Intervals after which a turn cannot end: a clock took it that has been set back since."""

# registry/activities
MOST_A_RATE: Final = 10_000
"""The most calls of a rate: as many moments are kept."""
LONGEST_VERSION: Final = 100
"""Characters of a version of code."""

# registry/mcp_connections
LISTED_SECONDS: Final = 30.0
"""The age at which the list of a server's tools is read again."""
OPENING_SECONDS: Final = 30.0
"""The longest that opening a session may take."""
LISTING_SECONDS: Final = 10.0
"""The longest that reading the list of a server's tools may take."""
PROGRESS_SECONDS: Final = 1.0
"""The least time between two reports of a call's progress."""
MCP_CONNECTIONS_CLOSING_SECONDS: Final = 10.0
"""The longest that closing a session is waited for, before and after its task is cancelled."""
LONGEST_ERROR: Final = 2_000
"""The most characters of a server's text that an error quotes."""
LAST_LINES: Final = 5
"""The lines of a server's standard error that an error quotes."""
MOST_PAGES: Final = 100
"""The most pages of a server's list of tools."""
MOST_TOOLS: Final = 1_000
"""The most tools of a server."""

# registry/mcp_sessions
KEEP_SECONDS: Final = 1.0
"""The time between two rounds in which a process renews its registration, and closes sessions."""
MCP_SESSIONS_MARGIN_SECONDS: Final = 2.0
"""The time before the end of its lease at which a process does not rely on it any more."""
IDLE_ROUNDS: Final = 30
"""Rounds without anything to tend after which a process says no more that it lives."""
MOST_SEEN: Final = 10_000
"""The ids of messages that a process remembers, since a message may come twice."""

# registry/mcp_tools
VERSION_DIGITS: Final = 12
"""The digits of a tool's digest that are its version."""
SHOWN_TEXT: Final = 100
"""The characters of an annotation that a note quotes."""

# registry/mcp_transports
MCP_TRANSPORTS_GRACE_SECONDS: Final = 2.0
"""How long a server has to end when its input is closed, and again after SIGTERM."""
LAST_WORDS_SECONDS: Final = 1.0
"""How long a server's standard error is read after it has closed its output."""
MCP_TRANSPORTS_MARGIN_SECONDS: Final = 5.0
"""The time that a server's guardian may take in addition to end it."""
MCP_TRANSPORTS_CHUNK_BYTES: Final = 4_096
"""The bytes of standard error that are read at once."""
MCP_TRANSPORTS_CONNECT_SECONDS: Final = 30.0
"""The longest that connecting to a server at an address may take."""

# registry/request_definitions
REQUEST_DEFINITIONS_TIMEOUT_SECONDS: Final = 10.0
"""The longest that fetching a definition may take."""
PIECE_BYTES: Final = 65_536
"""The bytes of a definition that are read at once."""
TRUST_FILE_BYTES: Final = 64 * 1024
"""Bytes of a file of trust, which goes with every run."""

# runner/calls
THREADS_LEFT_BEHIND: Final = 256
"""Threads that may be at work on functions that outlived their calls."""
SMALL_INTEGER: Final = 2**63
"""Integers below this, and above its negative, need no further check."""
LONGEST_ERROR_TEXT: Final = 10_000
TRACEBACKS_REMEMBERED: Final = 1_000

# runner/checking
VALIDATOR_DEATHS: Final = 3
"""Deaths of the validator's process over one check after which the check counts as one that takes too much."""
VALIDATOR_ANSWER_BYTES: Final = 2**28
PATIENCE_SECONDS: Final = 120.0
"""How long a thread waits for a heavy check: many times what the checks before it take, where the process lives."""

# runner/lane_runner
FAILED_CALLS_KEPT: Final = 10
"""Failed calls that the end of a lane's task can name."""

# runner/remote
MOST_RETRIES: Final = 1_000
"""Retries of a call whose code is not known here: a request to a model, an activity of another worker."""

# runner/runtime
RUNTIME_CLOSING_SECONDS: Final = 5.0
YOUNG_OBJECTS: Final = 10_000
"""Objects made and not freed after which the young ones are collected, which takes some milliseconds."""
HEALTH_INTERVAL_SECONDS: Final = 2.0
STARTS_COUNTED_SECONDS: Final = 60.0
STARTS_BEFORE_A_PROBLEM: Final = 3

# runner/scheduler
LANES_KEPT: Final = 256
"""Views of lanes that are kept after their runners have left."""
LANES_KEPT_BYTES: Final = 64 * 2**20
LANES_KEPT_SECONDS: Final = 60.0
LONGEST_SHOWN: Final = 300
"""Characters of what a message says of its arguments."""
MOST_RETURNS: Final = 80
"""Times that a task is given back: after so many it has been on its way for about a minute."""
RETURNS_WAITING: Final = 10_000
"""Tasks that wait in memory to be given back; more go back at once."""

# runner/starting
STARTING_WAIT_SECONDS: Final = 0.5
"""How long a request waits for others to give back what they have reserved and not needed."""
HEAVY_BYTES: Final = 2**16
"""The bytes from which on a commit takes one of the process's few places for large commits, where runs take turns."""
CHILD_RETRY_SECONDS: Final = 1.0
"""How long a call rests whose child run could not be started."""

# runner/step
OUTCOMES_A_STEP: Final = 250
"""Outcomes, and claims, of one commit: its script holds up the server for as long as it runs."""
BYTES_A_STEP: Final = 2**20
"""Bytes of a commit after which nothing more is added."""
CLOCKS_DIFFER_SECONDS: Final = 0.005
"""The time by which a process's clock may be behind the server's when a call is due."""
HEAVY_AT_ONCE: Final = 1
"""Large commits, with the tasks that they send, that one process has under way: large ones go out one by one anyway."""
RUNS_KEPT: Final = 64
"""Views of runs that a process keeps."""
RUNS_KEPT_BYTES: Final = 64 * 2**20

# runner/validating
VALIDATOR_MEMORY_BYTES: Final = 2**30
"""Bytes of memory beyond which the validator's process ends, with the schemas that it keeps."""
VALIDATOR_SECONDS: Final = 10
"""Seconds of processor time for one check: many times what any may take by the estimate."""
VALIDATOR_NICENESS: Final = 5
"""The niceness of the validator: what waits for no heavy check goes first where processors are scarce."""

# store/commits
LARGEST_COUNT: Final = 2**53
"""The largest number that Redis' scripts keep whole."""
WAITS_ALONE: Final = -1
"""The answer of the script for a claim that was not granted since its workers may have died of the call."""
PUBLISHED_SECONDS: Final = 5.0
"""How long a published task may not have begun, though its queue is empty, before it counts as lost."""
SENT_MS: Final = 1_000
"""How long a fire-and-forget call may be in the outbox before the sweep checks it: most are done by then."""
TAKEN_MS: Final = 10_000
"""How long a sweep may have taken a run before another one looks at it: the first may have died."""

# store/connections
REDIS_CONNECTIONS: Final = 32
REDIS_ANSWER_SECONDS: Final = 30
"""How long a server may owe an answer: longer than any blocking read."""
PIPELINES: Final = 2
"""Pipelines that are under way at a time; what is asked for meanwhile waits, and goes out together."""
SECRET_BYTES: Final = 32

# store/definition
PLANS_KEPT: Final = 64
KEPT_PLAN_BYTES: Final = 64 * 2**10
"""Bytes of the largest stored plan that is kept; a larger one is read anew for each run."""

# store/held_calls
HELD_CALLS_AT_ONCE: Final = 200
HELD_CALL_DIGEST_CHARACTERS: Final = 20
"""Characters of a digest. It covers the run, the call and its entry, so nobody can choose what has the same one."""

# store/living
SILENCE_SHOWN_MS: Final = 15_000
"""The age up to which a report of a silent process is shown to people."""
QUEUE_SAMPLE: Final = 10
QUEUE_NOTES_SECONDS: Final = 5.0
LATEST_SECOND: Final = 10**12
"""A time in seconds that no clock shows."""
MOST_TASKS: Final = 100
"""Tasks that are believed to be in one message."""
LEASE_SECONDS: Final = 10.0
SESSION_WAIT_SECONDS: Final = 5
SESSION_MESSAGES_SECONDS: Final = 3_600
"""How long messages are kept that nobody takes."""

# store/log
NO_LIMIT: Final = 2**53
LOG_PAGE: Final = 500
FEWEST_DRIVES: Final = 2
"""Times that a lane that was lost is driven at least: its worker may have died of another one."""
PAGE_BYTES: Final = 2**20
"""Bytes of a lane after which a page ends."""
LOG_INSTANCES_AT_ONCE: Final = 5_000
"""Names of instances that one command reads."""
HISTORY_PAGE: Final = 200
"""Entries that one command reads; some may be large."""
CALLS_AT_ONCE: Final = 500
LOG_LANES_AT_ONCE: Final = 20

# store/loop_view
LOOP_PLAN_DIGEST_CHARACTERS: Final = 16
"""Characters of a plan's digest: it tells the plans of one run apart."""

# store/run_list
RUNS_CHECKED: Final = 20
DEEPEST_CHILD: Final = 100
RUNS_AT_ONCE: Final = 200

# store/run_writer
VALUES_A_COMMAND: Final = 1_000
"""Values, or pairs of a name and a value, that one command takes."""
PART_WORDS: Final = 10_000
"""Words of a part after which it gets no further command: the server does nothing else meanwhile."""
PART_BYTES: Final = 2**20
"""Bytes of a part after which it gets no further command."""

# store/scripts
SCRIPT_KEYS_KEPT: Final = 512
"""Pairs of a script and a run whose keys are computed once."""
CLOCK_REFRESH_SECONDS: Final = 10.0
"""How long the server's clock is not asked again: clocks hardly drift in that time."""
MOST_CODES: Final = 1_000

# store/slots
UNCLAIMED_MS: Final = 5_000
"""How long a call may hold a slot and not have begun before its lane is published again."""
SLOTS_AT_ONCE: Final = 1_000
"""Calls, lanes or rates in one command: the server does nothing else meanwhile."""
DUE_TICK_SECONDS: Final = 0.01
"""How long a process lets what is due of rates wait, so as to look at what is due soon after in the same command."""

# store/waiting
BACKGROUND_SECONDS: Final = 600.0
"""The longest wait for calls that were sent and not awaited, where no deadline is set."""
BACKGROUND_QUIET_SECONDS: Final = 3.0
"""How long nothing is said while such calls are waited for."""
BACKGROUND_LOOK_SECONDS: Final = 10.0
"""The longest wait of one command: less than a connection waits for an answer."""
WAITING_MOST_LANES: Final = 5
"""How many lanes are read for calls that wait for promised values."""
CALLS_LOOKED_AT: Final = 200
"""The most calls, or runs, that are examined."""
WAITING_RUNS_AT_ONCE: Final = 50
LONG_IN_QUEUE_MS: Final = 5_000
"""The time after which a message is reported as waiting in its queue."""
UNANSWERED_OF_A_RUN: Final = 100

# telemetry/metrics
MOST_READ: Final = 10_000
METRICS_SECONDS: Final = 3.0
"""How long a reading of runs may take; the next one goes on."""
QUEUE_SECONDS: Final = 2.0
"""How long a reading of a queue may take; the next one goes on."""
BYTES_AT_ONCE: Final = 2 * 2**20
MOST_AT_ONCE: Final = 500
METRICS_END: Final = 50
"""The number of messages at the right end that are read each time."""
QUEUE_FRESH_SECONDS: Final = 30.0
"""The age at which a note of a queue says nothing of now."""
FRESH_SECONDS: Final = 1.0

# telemetry/process_metrics
MOST_MODELS: Final = 50
PROCESS_METRICS_AT_ONCE: Final = 1_000

# telemetry/sending
SENDING_MOST_BYTES: Final = 2**22
"""Bytes of the texts in one batch of spans."""
SENDING_BATCH: Final = 512
DELAY_MS: Final = 5_000
SENDING_NS: Final = 1_000_000
WRITING_MS: Final = 60_000
"""How long after the time of its submission a run may be listed, by the clock of the client that has submitted it."""

# telemetry/spans
SPANS_LONGEST: Final = 1_000
"""Characters of what an error says."""

# ui/access
ACCESS_THREADS: Final = 16
OF_ONE_RUN: Final = 4
REFUSED_AGAIN_SECONDS: Final = 2
WINDOW_SECONDS: Final = 60.0
WRONG_TOKENS: Final = 20
"""Different wrong tokens from one address in that time after which others are not even called wrong until it is over.
The same one counts once: a page that was left open goes on asking with the token that it had.
"""
LEAST_SHARE: Final = 2
ACCESS_ADDRESSES: Final = 10_000
ACCESS_SUBNET: Final = 64
BODY_SECONDS: Final = 30.0
"""How long the body of a request may take to come."""
ACCESS_SMALL_BYTES: Final = 64_000

# ui/application
APPLICATION_NAMED: Final = 100
"""Calls of each kind that an answer names; it counts all."""
ACTION_THREADS: Final = 8
BESIDE_VIEWERS: Final = 200

# ui/drawing
DRAWING_PASSES: Final = 6
MOST_BENDS: Final = 3_000
DRAWING_GAP: Final = 28.0
BEND_GAP: Final = 8.0
BEND_WIDTH: Final = 4.0
MOST_DRAWN: Final = 240
MOST_BOXES: Final = 400
"""Boxes that are drawn when calls are folded; a sentence says how many more there are."""
MOST_ARROWS: Final = 1_500
MOST_LABELS: Final = 60
"""The most arrows that are labelled with their places; with more, only an arrow's title has its place."""
DRAWING_ACROSS: Final = 8
"""Boxes side by side: a layer of more has several rows."""
DRAWING_HEIGHT: Final = 72.0
DRAWING_LOW: Final = 44.0
"""The height of a box without counts."""
DRAWING_BETWEEN: Final = 56.0
DRAWING_MARGIN: Final = 16.0
DRAWING_LETTER: Final = 7.2
"""The width of a letter of a tool's name."""
SMALL_LETTER: Final = 6.4
LEAST_WIDTH: Final = 132.0
DRAWING_LONGEST_NAME: Final = 34
LONGEST_LABEL: Final = 26

# ui/following
FOLLOWING_PAUSE_SECONDS: Final = 0.5
"""The least time between two overviews of a run."""
FOLLOWING_BLOCK_MS: Final = 5_000
"""The time after which a run is checked without a new entry of its log: it may be gone."""
CANCEL_SECONDS: Final = 0.5
HEARTBEAT_SECONDS: Final = 15.0

# ui/instances
INSTANCES_AT_ONCE: Final = 50
UI_INSTANCES_AT_ONCE: Final = 200
INSTANCES_MOST_CALLS: Final = 400
"""Calls of one instance that are shown."""
INSTANCES_PART_BYTES: Final = 2_000
"""Bytes of an error in the list of a call's instances."""
CALL_BYTES: Final = 8_000
"""Bytes of the parameters, and of the error, of a call of an instance."""
INSTANCES_MOST_LISTED: Final = 100
PLACE_PART_BYTES: Final = 2_000
"""Bytes of a value in a list."""

# ui/opened
MOST_GROUPS: Final = 100
"""Kinds of errors of one call that are distinguished."""
OPENED_MOST_CALLS: Final = 5_000
"""Calls whose text is kept; those beyond are counted together."""
MOST_RECORDS: Final = 20
"""Different lanes of one tick that are kept as examples."""
OPENED_NAMED: Final = 5
LONGEST_TALLY: Final = 300
SHOW_BYTES: Final = 20_000
"""Bytes of a value, as JSON, from which on its large parts are cut."""
LIST_BYTES: Final = 500_000
"""Bytes of a list in an answer."""
OPENED_LEAST_BYTES: Final = 120
"""Bytes of a part below which a value of many parts is cut as a whole."""
OPENED_DEEPEST: Final = 8
OPENED_AT_ONCE: Final = 50
OPENED_ENTRIES: Final = 200
OPENED_SECONDS: Final = 0.5
MOMENTS_AT_ONCE: Final = 500
VALUES_BYTES: Final = 100_000
"""Bytes of the values in one answer: moments beyond have none, and are asked for one by one."""

# ui/page
PAGE_RUNS_AT_ONCE: Final = 50
MOST_HELD: Final = 200
MOST_WAITS: Final = 1_000
"""Calls that wait for a moment and are looked through for an index, the soonest first."""
PAGE_MOST_LOOKED_AT: Final = 5_000
MOST_DEFINITIONS: Final = 10_000
"""The most files of a folder of definitions that are read for a list of them."""
"""The most runs that are searched for one answer."""
MOST_ORDERS: Final = 10
PAGE_KEPT: Final = 16
"""Runs whose counts are kept."""
PAGE_MOST_LANES: Final = 300_000
"""The most lanes, of all runs, whose counts are kept: beyond it, the runs read longest ago are counted again."""
READING_SECONDS: Final = 1.0

# ui/sent
SENT_MOST_LISTED: Final = 1_000
"""Calls of an answer; the drawing folds what is more than it shows."""
MOST_EDGES: Final = 2_000
MOST_PLACES: Final = 20
SENT_LONGEST: Final = 200
"""Characters of a place."""
ALL_BYTES: Final = 600_000
"""Bytes of the texts of all ticks together: of many ticks, less is shown of each."""
SENT_LEAST_BYTES: Final = 400
SENT_MOST_CALLS: Final = 100

# ui/server
REQUEST_SECONDS: Final = 10.0
"""How long the head of a request may take to come."""
READ_SECONDS: Final = 20.0
"""How long a client may take to read anything of what waits for it."""
STOP_SECONDS: Final = 3
"""How long answers under way may take when the server is to stop."""
HEAD_BYTES: Final = 16_384
SERVER_MOST_BYTES: Final = 5_000_000
SERVER_MOST_INSTANCES: Final = 200
MOST_SENT: Final = 100

# registry/contracts
CONTRACTS_FORMAT: Final = 1
"""The format of the documents that are written, and the newest that is read."""
CONTRACTS_ANSWER_SECONDS: Final = 1.0
"""How long all workers are waited for: how many there are is not known."""
CONTRACTS_WAIT_SECONDS: Final = 5.0
"""How long the broker, and workers that are known, are waited for."""
CONTRACTS_KEPT_SECONDS: Final = 60.0
"""After which the workers are asked again before a submission is checked."""
CONTRACTS_FRESH_SECONDS: Final = 2.0
"""After which they are asked again before a submission is refused."""
