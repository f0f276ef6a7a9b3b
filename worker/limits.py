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
    """What an operator allows a loop to spend, by the keys of `config`; null is no limit (SPEC R13.3)."""
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
"""The most by which the wait that a provider asks for is stretched, at random."""
USUAL_BYTES: Final = 4
"""The bytes of a token in a request as the engine writes it; it may have a fifth more tokens."""
ASKING_MOST_BYTES: Final = 16
"""The most bytes of a token, rows of one character left out."""
ASKING_PAUSE_SECONDS: Final = 0.1
"""The least time between two parts of an output."""
ASKING_SHARE: Final = 32
"""A part of an output has this fraction more text than the one before: one in 32."""
ASKING_SECONDS: Final = 10.0
"""The longest that probing a model waits for an answer."""
ASKING_SHOWN: Final = 5
"""The most models of an endpoint that a message names."""

# agent/streamed_calls
BODY_SHOWN_BYTES: Final = 200
"""The bytes of an unreadable answer that an error quotes."""
LONGEST_BEFORE: Final = 100
"""The most characters of a function's arguments before an output that is passed on while it is written."""

# agent/clients
CLIENTS_CONNECT_SECONDS: Final = 10.0
"""The longest that connecting to a provider may take."""
CLIENTS_LONGEST_TEXT: Final = 2_000
"""The most characters of a provider's text that an error quotes."""
SERVERS_FAULT: Final = 500
"""The first status of HTTP with which a server says that the fault is its own."""

# agent/fitting
MOST_STRICT: Final = 20
"""The most functions that Anthropic enforces in one request."""
MOST_REMEMBERED: Final = 1_000
"""The most schemas of which a process remembers how a provider takes them."""
FITTING_MOST_NAMED: Final = 10
"""The most unenforced places that a finding names."""

# agent/loop_log
LOOP_LOG_SMALL_BYTES: Final = 10_000
"""The size of an answer that takes some milliseconds to read, and is read on the event loop."""
LOG_BYTES_PER_BYTE: Final = 20
"""The bytes of a log that take as long to fold as a byte of an answer takes to read."""

# agent/model_calls
SHOWN_CHARACTERS: Final = 500
"""The characters of an unreadable answer that the process's log has."""
MODEL_CALLS_LONGEST_ERROR: Final = 900
"""The most characters of an error of a tick's answer."""

# agent/scripted
AROUND: Final = 60
"""The characters that are shown before and behind the place where two texts part."""
SCRIPTED_COMPARED: Final = 4_000
"""The characters of a message by which the most similar request is found."""
SCRIPTED_MOST_BYTES: Final = 1_000_000
"""The most bytes of the file in which processes count uses of answers."""
ODDS_OF_REFERENCE: Final = 0.1
"""The odds that a random parameter is a reference to an earlier result."""
SCRIPTED_MOST_CALLS: Final = 3
"""The most calls of a random answer."""
SCRIPTED_TRIES: Final = 20
"""The random values that are drawn before a plain one is taken."""
SCRIPTED_DEPTH: Final = 8
"""The deepest level of a random value that is not plain."""

# agent/sdk_model
MAY_PASS: Final = 500
"""The status with which gateways fail for a moment now and then, and some servers on every schema they cannot use."""
ORIGIN_DIGITS: Final = 16
"""The hexadecimal digits of the name under which the log has a model's own data."""
OWN_SHARE: Final = 4
"""The provider's own data may have this fraction of a message's size: a fourth."""
SDK_MODEL_LONGEST_REASON: Final = 300
"""The characters of a refusal that a finding quotes."""
SDK_MODEL_LONGEST_NAME: Final = 200
"""The longest name that a model may give itself."""

# agent/ticks
MOST_SHOWN: Final = 3
"""The most errors of its last tick that the reason of a loop's end names."""

# agent/wire_schema
WIRE_SCHEMA_MANY: Final = 250
"""The most values of an enum whose characters are not counted by themselves."""

# backoff
MOST_DOUBLINGS: Final = 64

# broker/attempts
ATTEMPTS_SAMPLED: Final = 1
ATTEMPTS_CHARACTERS: Final = 32
"""Of a token: 128 bits in hexadecimal."""
LONGEST_AGAIN: Final = 16
"""Digits."""
ATTEMPTS_RUNS_KEPT: Final = 64
"""The seals of so many runs are made once."""

# broker/consumer
CONSUMER_MOST_BYTES: Final = 48 * 2**20
"""Of a queue of which a worker has so much in hand it takes nothing more."""
LARGE_BYTES: Final = 2**16
"""Smaller messages are not counted."""
LONGEST_LANE: Final = 2_000
"""Bytes of a lane's task that shares are kept of; it may be longer."""
CONSUMER_ANSWER_SECONDS: Final = 0.005
EVENTS_SECONDS: Final = 0.1
"""How long a task event may wait for others: each message of them costs as much as a hundred events more."""
CONSUMER_BATCH: Final = 500
CONSUMER_MOST_KEPT: Final = 10_000
"""How many tasks are kept in memory while the broker is away."""
MOST_KEPT_BYTES: Final = 64 * 2**20
"""How many bytes those have at most."""
AWAY_SECONDS: Final = 1.0
"""A broker that takes nothing for so long counts as away."""

# broker/messages
BESIDE_BYTES: Final = 64 * 1024
"""What a message may hold beside what is limited in itself: ids, names, msgpack's own bytes."""
MESSAGES: Final = 1
"""The format of our messages. Who raises it writes the header, and reads the one before."""
MOST_PARTS: Final = 100
"""How many tasks are taken from one message."""
MOST_TOGETHER_BYTES: Final = 192 * 1024
"""How many bytes those may have, with what is shown of them."""
MESSAGES_LONGEST_NAME: Final = 1_000
"""Characters of a model's name."""
MESSAGES_LONGEST_DELAY_SECONDS: Final = 366 * 86_400.0
"""Until another attempt."""
LONGEST_TYPE: Final = 100
"""Characters of an error's type."""
LONGEST_WHY: Final = 300
"""Characters of what a report says of a request that was not answered."""
SHORTEST_SECONDS: Final = 1.0
MESSAGES_LONGEST_SECONDS: Final = 30.0
MESSAGES_LONGEST_REASON: Final = 1_000
"""Characters."""

# broker/remote_control
REMOTE_CONTROL_MOST: Final = 10_000

# broker/transport
TRANSPORT_LONGEST_WAIT_SECONDS: Final = 5
ENVELOPE_BYTES: Final = 1024 * 1024
"""What Celery may add to a message of ours."""
LONGEST_ID: Final = 200
MOST_BUFFERED: Final = 300
"""How many events are published together at most."""
TRANSPORT_MOST: Final = 20
"""How many tasks share a message at most."""
TRANSPORT_MOST_BYTES: Final = 64 * 1024
"""How many bytes they may have together."""
SHARES_OF_CALLS: Final = 4
TRANSPORT_TRIES: Final = 120

# cli/check
MOST_NAMED: Final = 5
"""Instances that a line names."""
MOST_TOLD: Final = 20
"""Warnings that are printed; `acts check` prints all."""
MOST_PROMISED: Final = 100
MOST_READERS: Final = 100_000
"""So many readers of branches are listed, over all branches: where many read what many write there may be millions."""

# cli/control
CONTROL_MANY: Final = 100
"""So many calls are not given up on a terminal without a question."""
CONTROL_MOST_NAMED: Final = 20
"""How many stale calls are named at a terminal; --json has all."""

# cli/evaluating
QUIET_SECONDS: Final = 15.0

# cli/inspect
INSPECT_WIDTH: Final = 400
"""Characters of one message."""

# cli/options
NOBODY_READS: Final = 141
OPTIONS_SHOWN: Final = 20
"""Runs that are listed before something is deleted."""

# cli/output
LONGEST_LINE: Final = 1_000
"""Characters of one error line on stderr; machine output is never cut."""
INLINE_WIDTH: Final = 88
"""A list of scalars that is not longer stays on one line."""
SHOWN_INSTANCES: Final = 20
"""Instances of a simulation that are shown."""

# cli/progress
LOOK_SECONDS: Final = 1.0
PROGRESS_SHOWN: Final = 60
"""So many characters are shown of a text that is being written."""
PROGRESS_MOST: Final = 10
"""Kinds of failures that are shown where no limit is given."""
PROGRESS_MOST_WAITING: Final = 5
"""Likewise instances."""

# cli/run
RUN_QUIET_SECONDS: Final = 3.0
RUN_ANSWER_SECONDS: Final = 1.5

# cli/runs
RUNS_MOST: Final = 20
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

# cli/supervisor
LASTING_SECONDS: Final = 60.0
"""A process that ran as long is started again after the first delay."""

# cli/worker
WORKER_LIKENESS: Final = 0.8
LOCAL_POLL_SECONDS: Final = 0.02

# client/absence
MOST_WRITERS: Final = 20
"""Writers that are named, those of what they lack included."""
ABSENCE_MOST_INSTANCES: Final = 20
"""Instances that are looked into."""
ABSENCE_LIKENESS: Final = 0.7

# client/amendment
AMENDMENT_AT_ONCE: Final = 200
DROPPED_AT_ONCE: Final = 250
"""How many calls one script skips: the server does nothing else meanwhile."""

# client/archive
AT_ONCE: Final = 500
LONGEST_PATH: Final = 200

# client/async_client
ASYNC_CLIENT_AT_ONCE: Final = 100
"""How many values of an iterator are read in a thread at a time."""

# client/call_results
CALL_RESULTS_LONGEST_SECONDS: Final = 600.0
"""How long is waited where no deadline is given: a call without a time limit might never end."""
CALL_RESULTS_QUIET_SECONDS: Final = 3.0
CALL_RESULTS_LONGEST_WAIT_SECONDS: Final = 10.0
"""Less than a connection waits for an answer."""
CALL_RESULTS_MOST_LANES: Final = 5
"""Lanes that wait and are read."""

# client/deleting
DELETING_AT_ONCE: Final = 20
"""Runs in one step: few enough for the server to answer others in between."""
LOOKED_AT: Final = 1_000
DELETING_KEPT_SECONDS: Final = 86_400
"""For so long a log stays that was written anew in part, by a client that died."""

# client/deployments
DEPLOYMENTS_MOST_LOOKED_AT: Final = 100_000
DEPLOYMENTS_SURE: Final = 8
"""Characters from which on the beginning of an id is one, whatever runs are called."""

# client/dispatcher
DISPATCHER_WINDOWS: Final = 10
"""So many windows of calls of a submission are published at once: what others send stands behind no more of them. The
lanes beyond follow by the window, as all others do.
"""
DISPATCHER_MOST_BYTES: Final = 2**24
"""Of their tasks."""
DISPATCHER_AT_ONCE: Final = 250
"""How many calls are decided before what they hold is counted."""

# client/people
SHOWN: Final = 500
PEOPLE_NAMED: Final = 5
"""The most calls that an error names."""
PEOPLE_DIGEST: Final = 16
"""Characters of a digest: it tells the plans of one run apart."""

# client/progress
PROGRESS_AT_ONCE: Final = 200
LOOK_MS: Final = 500
CLIENT_PROGRESS_MOST: Final = 1_000
"""So many are read at a time."""
PROGRESS_BLOCK_MS: Final = 5_000
FAILOVER_SECONDS: Final = 60
"""Sentinels replace a master that is silent for 30 seconds, unless they are told otherwise."""

# client/results
MOST_ROWS: Final = 20
MOST_CHARACTERS: Final = 200
RESULTS_MOST_INSTANCES: Final = 1_000

# client/retrying
RETRYING_MOST_NAMED: Final = 100
"""How many calls the audit trail names."""
UNDONE_AT_ONCE: Final = 250
"""How many calls one script undoes: the server does nothing else meanwhile."""

# client/run
RUN_MOST: Final = 60
"""Calls that are drawn of one run; instances of one call are one node."""

# client/submitting
CLAIM_SECONDS: Final = 120
SUBMITTING_LOOK_SECONDS: Final = 0.05
SUBMITTING_MADE: Final = 200_000
"""After so many objects more than were freed the young ones are searched through."""
HELD_SECONDS: Final = 120
"""So long a client that dies keeps others of its owner waiting."""
SUBMITTING_WAIT_SECONDS: Final = 60
DAY_MS: Final = 86_400_000

# client/tables
TABLES_INSTANCES_AT_ONCE: Final = 1_000

# errors
ERRORS_NAMED: Final = 10
"""The most instances that an error names."""

# fairness
TURN_SECONDS: Final = 0.02
"""How long the lanes of a run may work before others have their turn."""
FAIRNESS_ALONE_SECONDS: Final = 0.2
"""How long they may where no other run has done anything lately: so long one that comes waits."""
FAIRNESS_LATELY_SECONDS: Final = 0.5
FAIRNESS_AT_ONCE: Final = 32
"""How many lanes go on when a turn begins; each that has made its step lets the next one in."""
FAIRNESS_SHARE: Final = 8
"""A key may hold so many times the places that are left free."""
FAIRNESS_FEW: Final = 16
"""Of fewer places none is kept free."""
STUCK_SECONDS: Final = 0.5
"""So long a lane stands aside before what is behind it is taken."""
MOST_ASIDE: Final = 5_000
WORKER_FAIRNESS_ALONE_SECONDS: Final = 30.0
"""For how long a call keeps the next one from beginning."""
FAIRNESS_HARMLESS: Final = 1
"""After so many deaths a call begins again beside others."""

# local
READY_SECONDS: Final = 30.0
LOCAL_LONGEST_WAIT_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.02
LOCAL_GRACE_SECONDS: Final = 2.0
LOCAL_MOST_STARTS: Final = 100
SWEEP_INTERVAL_SECONDS: Final = 0.2
"""Often, over a socket of this machine: a command that waits for what was sent and not awaited waits for a sweep."""
TOLD_LINES: Final = 3

# logs
LOGS_LONGEST: Final = 2_000

# mcp/documents
DOCUMENTS_SMALL_BYTES: Final = 16_000
"""The largest message that runs in the server itself, in some tens of milliseconds."""
DOCUMENTS_PROCESSES: Final = 2
"""The processes for large documents."""
DOCUMENTS_MOST_BYTES: Final = 2**30
"""The memory that a process for documents may take."""
DOCUMENTS_MOST_SECONDS: Final = 60
"""The processor time of one call: a document as large as one may be takes less."""
DOCUMENTS_NICENESS: Final = 5
"""The niceness of a process for documents."""
SPENT_SECONDS: Final = 60.0
"""The time that a visitor's calls may take in a row, before `DOCUMENTS_SHARE` holds."""
DOCUMENTS_SHARE: Final = 0.5
"""The share of the time that a visitor's calls may take in the long run."""
DOCUMENTS_MOST_WAITING: Final = 8
"""The most calls of a visitor under way, all but one of which wait."""
DOCUMENTS_MOST_ANSWERED: Final = 2**24
"""The most bytes of an answer of a process for documents."""

# mcp/reading
READING_MOST_BYTES: Final = 500_000
"""The most bytes of a value that a client can ask for."""
READING_LONGEST_WAIT_SECONDS: Final = 600
"""The longest that a client can wait for a run in one call."""
READING_LOOK_SECONDS: Final = 2.0
"""The time between two looks at a run that a client waits for."""
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
"""The descriptor of standard input."""
SERVER_AT_ONCE: Final = 65_536
"""The bytes that are read from standard input at once."""

# mcp/tools
TOOLS_MOST_LOOKED_AT: Final = 5_000
"""The most runs that are searched for one that is named by less than its id."""

# outages
OUTAGES_SILENT_SECONDS: Final = 30.0
"""What has not succeeded for so long is a problem of the process."""
OUTAGES_INTERVAL_SECONDS: Final = 0.5
OUTAGES_ANSWER_SECONDS: Final = 2.0
SLOW_SECONDS: Final = 0.2
"""How much later than on a new connection an answer may come on an old one."""
OUTAGES_MOST: Final = 100
OUTAGES_MOST_BYTES: Final = 2**20

# process
MOST_NAMES: Final = 200
"""How many names a process gives out, unless another number is given."""

# recovery/heartbeats
OUTDATED_SECONDS: Final = 600
"""A report of calls at work is of no use when it is that old: a broker that can drops it."""
HEARTBEATS_PAGE: Final = 100
"""How many reports are read at a time."""
LONGEST_INTERVAL_SECONDS: Final = 1.0
HEARTBEATS_MOST_UNANSWERED: Final = 100
"""Of how many requests to models a report says that they were not answered; more are like these."""
HEARTBEATS_MOST_BYTES: Final = 32 * 1024
"""What a report may say of errors: more is said in another one."""
NOTICE_SECONDS: Final = 1.0
"""After so long at most it is known here that a run was cancelled."""
HEARTBEATS_MOST_NAMED: Final = 10
MOST_WRITTEN: Final = 200
"""Remote calls that the log is told of, for people."""

# recovery/overdue
TELLING_SECONDS: Final = 30.0
"""After so long a sweep takes what was handed to a process and not told by it."""
OVERDUE_TIMEOUT_SECONDS: Final = 10.0
HOOKS_AT_ONCE: Final = 8
"""Requests at a time."""
OVERDUE_MOST_WAITING: Final = 200
"""So many calls a process takes upon itself."""
FIRST_DELAY_SECONDS: Final = 2.0
OVERDUE_LONGEST_DELAY_SECONDS: Final = 3_600.0
SENT_AT_ONCE: Final = 200
SUBMITTING_SECONDS: Final = 600.0
"""How long a client may write at a run before it counts as dead, and what it has written is removed."""
OVERDUE_MOST_NAMED: Final = 10
BROKEN_MS: Final = 60_000
"""How long a run whose keys are broken is left alone."""

# recovery/sidecar
MORE_SLOTS: Final = 64
"""Calls that may be at work beside those that `concurrency` counts."""
AWAKE_SECONDS: Final = 2.0
"""How long after a silence messages may arrive that were taken during it: a blocking read of the broker takes 1 s."""

# recovery/sweep
LATE_MS: Final = 2_000
"""A probe that has not come out for so long may be lost, and another is sent; the wait doubles."""
AHEAD_MS: Final = 10_000
"""The clocks of a cluster's nodes may differ by so much."""
REPORTS_AT_ONCE: Final = 500
"""Of so many calls a script takes note without holding up the server."""
MOST_AWAITING: Final = 10_000
"""In so many runs, the newest, calls are tried again when a worker has begun; in others when their time has come."""
SWEEP_RUNS_AT_ONCE: Final = 100
SWEEP_ROUND: Final = 20
"""How many of all runs each sweep looks at, whatever is due."""
IDLE_TURNS: Final = 60
"""While there is no run, the reports are read in one of so many turns: workers that begin send some."""
BROKER_SECONDS: Final = 5.0
SWEEP_NEVER: Final = -1
"""Redis' answer for a key that does not expire."""
LONGEST_TURNS: Final = 10
"""A turn that is said to last so many intervals was taken by a clock that has been set back since."""

# registry/activities
LONGEST_VERSION: Final = 100
"""The most characters of a version of code."""

# registry/mcp_connections
LISTED_SECONDS: Final = 30.0
"""The age at which the list of a server's tools is read again."""
OPENING_SECONDS: Final = 30.0
"""The longest that opening a session may take."""
LISTING_SECONDS: Final = 10.0
"""The longest that reading the list of a server's tools may take."""
PROGRESS_SECONDS: Final = 1.0
"""The least time between two lines of a call's progress in the process's log."""
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
"""The rounds without any session after which a process ends its registration."""
MOST_SEEN: Final = 10_000
"""The ids of messages that a process remembers, since a message may come twice."""

# registry/mcp_tools
VERSION_DIGITS: Final = 12
"""The digits of a tool's digest that are its version."""
SHOWN_TEXT: Final = 100
"""The characters of an annotation that a note quotes."""

# registry/mcp_transports
MCP_TRANSPORTS_GRACE_SECONDS: Final = 2.0
"""The time in which a server may end when its input is closed, and once more after SIGTERM."""
LAST_WORDS_SECONDS: Final = 1.0
"""The time that standard error of a server is waited for when it has closed its output."""
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
"""The most bytes of the operator's file of trust, which goes with every run."""

# runner/calls
MOST_LEFT_BEHIND: Final = 256
"""So many threads may be at work on what nobody waits for."""
CALLS_SMALL: Final = 2**63
CALLS_LONGEST_TEXT: Final = 10_000
CALLS_MOST_SHOWN: Final = 1_000

# runner/checking
MOST_DEATHS: Final = 3
"""Of the process over one check; then the check counts as one that takes too much."""
CHECKING_MOST_ANSWERED: Final = 2**28
PATIENCE_SECONDS: Final = 120.0
"""How long a thread waits for a heavy check: many times what the checks before it take, where the process lives."""

# runner/lane_runner
MOST_FAILED: Final = 10
"""How many failed calls the end of a lane's task can name."""

# runner/remote
MOST_RETRIES: Final = 1_000
"""Of a call whose code is not known here: a request to a model, an activity that another worker has."""

# runner/runtime
RUNTIME_CLOSING_SECONDS: Final = 5.0
RUNTIME_MADE: Final = 10_000
"""After so many objects more than were freed the young ones are searched through: that takes some milliseconds."""
RUNTIME_INTERVAL_SECONDS: Final = 2.0
RUNTIME_LATELY_SECONDS: Final = 60.0
RUNTIME_MOST_STARTS: Final = 3

# runner/scheduler
MOST_LEFT: Final = 256
MOST_LEFT_BYTES: Final = 64 * 2**20
LEFT_SECONDS: Final = 60.0
LONGEST_SHOWN: Final = 300
"""Characters of what a message says of its arguments."""
MOST_TIMES: Final = 80
"""After so many a task has been on its way for about a minute."""
SCHEDULER_MOST_KEPT: Final = 10_000
"""How many wait in memory; more go back at once."""

# runner/starting
STARTING_WAIT_SECONDS: Final = 0.5
"""How long a request waits for others to give back what they have reserved and not needed."""
HEAVY_BYTES: Final = 2**16
"""What is as large as this takes one of the process's few places for it, in which runs take turns."""
UNAVAILABLE_SECONDS: Final = 1.0

# runner/step
STEP_MOST: Final = 250
"""How many outcomes, and how many claims, go into one commit: its script holds up the server for as long as it runs."""
STEP_MOST_BYTES: Final = 2**20
"""A commit that holds so much takes nothing more along."""
CLOCKS_DIFFER_SECONDS: Final = 0.005
"""A call that is due by our clock should be so by the server's."""
HEAVY_AT_ONCE: Final = 1
"""How many large commits, with what they send, one process has under way: what is large goes out one by one anyway."""
RUNNER_STEP_MOST: Final = 64
RUNNER_STEP_MOST_BYTES: Final = 64 * 2**20

# runner/validating
VALIDATING_MOST_BYTES: Final = 2**30
"""Of memory: beyond, it ends. What it keeps of schemas goes with it."""
VALIDATING_MOST_SECONDS: Final = 10
"""Of processor time for one check: many times what any may take by the estimate."""
VALIDATING_NICENESS: Final = 5
"""What does not wait for a heavy check goes first where processors are scarce."""

# store/commits
MOST_PAID: Final = 2**53
WAITS_ALONE: Final = -1
"""What the script answers of a claim that was not granted: its workers may have died of the call."""
PUBLISHED_SECONDS: Final = 5.0
"""How long a published task may not have begun, though its queue is empty, before it counts as lost."""
SENT_MS: Final = 1_000
"""How long what was sent and forgotten may lie in the outbox before it is looked after: most is done by then."""
TAKEN_MS: Final = 10_000
"""After so long another sweep looks at what was taken by one that died."""

# store/connections
CONNECTIONS: Final = 32
CONNECTIONS_SILENT_SECONDS: Final = 30
"""How long a server may owe an answer: longer than any of our blocking reads."""
CONNECTIONS_PIPELINES: Final = 2
"""How many pipelines are under way at a time; what is asked for meanwhile waits, and goes out together."""
CONNECTIONS_BYTES: Final = 32

# store/definition
DEFINITION_MOST_KEPT: Final = 64
KEPT_BYTES: Final = 64 * 2**10
"""A definition that is larger is read anew for each run."""

# store/held_calls
HELD_CALLS_AT_ONCE: Final = 200
HELD_CALLS_DIGEST: Final = 20
"""Characters of a digest. It covers the run, the call and its entry, so nobody can choose what has the same one."""

# store/living
SHOWN_MS: Final = 15_000
"""How old a report may be that people are shown."""
LIVING_SAMPLE: Final = 10
LIVING_INTERVAL_SECONDS: Final = 5.0
LIVING_LATEST: Final = 10**12
"""No time in seconds is later."""
MOST_TASKS: Final = 100
"""How many tasks are believed to be in one message."""
LEASE_SECONDS: Final = 10.0
LIVING_WAIT_SECONDS: Final = 5
LIVING_KEPT_SECONDS: Final = 3_600
"""So long messages are kept that nobody takes."""

# store/log
NO_LIMIT: Final = 2**53
LOG_PAGE: Final = 500
FEWEST_DRIVES: Final = 2
"""How often a lane that was lost is driven at least: its worker may have died of another one."""
PAGE_BYTES: Final = 2**20
"""Of a lane it reads no more once it has so many bytes."""
LOG_INSTANCES_AT_ONCE: Final = 5_000
"""How many names of instances one command reads."""
HISTORY_PAGE: Final = 200
"""How many entries one command reads; some may be large."""
CALLS_AT_ONCE: Final = 500
LOG_LANES_AT_ONCE: Final = 20

# store/loop_view
LOOP_VIEW_DIGEST: Final = 16
"""Characters of a plan's digest: it tells the plans of one run apart."""

# store/run_list
MOST_OWNED_AT_ONCE: Final = 20
RUN_LIST_DEEPEST: Final = 100
RUN_LIST_AT_ONCE: Final = 200
LOOKED_AFTER: Final = 20

# store/run_writer
RUN_WRITER_AT_ONCE: Final = 1_000
"""How many values, or pairs of a name and a value, one command takes."""
PART_WORDS: Final = 10_000
RUN_WRITER_PART_BYTES: Final = 2**20
"""A part that has so many words, or so many bytes, gets no further command: the server does nothing else meanwhile."""

# store/scripts
SCRIPTS_RUNS_KEPT: Final = 512
"""For so many scripts and runs the keys are made once."""
SCRIPTS_ASKED_SECONDS: Final = 10.0
"""So long the server is not asked again: clocks hardly drift in that time."""
MOST_CODES: Final = 1_000

# store/slots
UNCLAIMED_MS: Final = 5_000
"""How long a call may hold a slot and not have begun before its lane is published again."""
SLOTS_AT_ONCE: Final = 1_000
"""How many calls or lanes in one command: the server does nothing else meanwhile."""

# store/waiting
WAITING_MOST: Final = 200
"""Calls that are looked at."""
WAITING_RUNS_AT_ONCE: Final = 50
LIES_MS: Final = 5_000
"""A message that lies in its queue for so long is told of."""
WAITING_MOST_UNANSWERED: Final = 100

# telemetry/metrics
MOST_READ: Final = 10_000
METRICS_SECONDS: Final = 3.0
"""How long a reading of runs may take; the next one goes on."""
QUEUE_SECONDS: Final = 2.0
"""How long a reading may take; the next one goes on."""
BYTES_AT_ONCE: Final = 2 * 2**20
MOST_AT_ONCE: Final = 500
METRICS_END: Final = 50
"""How many messages at the right end are looked at each time."""
QUEUE_FRESH_SECONDS: Final = 30.0
"""A note that is older says nothing of now."""
FRESH_SECONDS: Final = 1.0

# telemetry/process_metrics
MOST_MODELS: Final = 50
PROCESS_METRICS_AT_ONCE: Final = 1_000

# telemetry/sending
SENDING_MOST_BYTES: Final = 2**22
"""Of the texts in one batch."""
SENDING_BATCH: Final = 512
DELAY_MS: Final = 5_000
SENDING_NS: Final = 1_000_000
WRITING_MS: Final = 60_000
"""A run is listed from the time of its submission, by the clock of who has submitted it, some time later."""

# telemetry/spans
SPANS_LONGEST: Final = 1_000
"""Characters of what an error says."""

# ui/access
ACCESS_THREADS: Final = 16
OF_ONE_RUN: Final = 4
REFUSED_AGAIN_SECONDS: Final = 2
WINDOW_SECONDS: Final = 60.0
WRONG_TOKENS: Final = 20
"""So many different wrong tokens may come from one address in that time; then others are not even called wrong until
the time is over. The same one counts once: a page that was left open goes on asking with the token that it had."""
LEAST_SHARE: Final = 2
ACCESS_ADDRESSES: Final = 10_000
ACCESS_SUBNET: Final = 64
BODY_SECONDS: Final = 30.0
"""How long the body of a request may take to come."""
ACCESS_SMALL_BYTES: Final = 64_000

# ui/application
APPLICATION_NAMED: Final = 100
"""How many calls of each kind an answer names; it counts all."""
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
"""When calls are folded, so many boxes are drawn, and a sentence says how many more there are."""
MOST_ARROWS: Final = 1_500
MOST_LABELS: Final = 60
"""Where there are more arrows, a place stands in the arrow's title only."""
DRAWING_ACROSS: Final = 8
"""Boxes side by side: a layer of more has several rows."""
DRAWING_HEIGHT: Final = 72.0
DRAWING_LOW: Final = 44.0
"""Of a box without counts."""
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
"""So often a run is looked at without an entry of its log: it may be gone."""
CANCEL_SECONDS: Final = 0.5
HEARTBEAT_SECONDS: Final = 15.0

# ui/instances
INSTANCES_AT_ONCE: Final = 50
UI_INSTANCES_AT_ONCE: Final = 200
INSTANCES_MOST_CALLS: Final = 400
"""Calls of one instance that are shown."""
INSTANCES_PART_BYTES: Final = 2_000
"""Of an error in the list of a call's instances."""
CALL_BYTES: Final = 8_000
"""Of the parameters, and of the error, of a call of an instance."""
INSTANCES_MOST_LISTED: Final = 100
PLACE_PART_BYTES: Final = 2_000
"""Of a value that stands in a list."""

# ui/opened
MOST_GROUPS: Final = 100
"""Kinds of errors of one call that are told apart."""
OPENED_MOST_CALLS: Final = 5_000
"""Calls whose text is kept; those beyond are counted together."""
MOST_RECORDS: Final = 20
"""Different lanes of one tick that are kept as examples."""
OPENED_NAMED: Final = 5
LONGEST_TALLY: Final = 300
SHOW_BYTES: Final = 20_000
"""Of a value that has more bytes, as JSON, the large parts are cut."""
LIST_BYTES: Final = 500_000
"""Of a list in an answer."""
OPENED_LEAST_BYTES: Final = 120
"""What has many parts, of each of which less could be shown, is cut as a whole."""
OPENED_DEEPEST: Final = 8
OPENED_AT_ONCE: Final = 50
OPENED_ENTRIES: Final = 200
OPENED_SECONDS: Final = 0.5
MOMENTS_AT_ONCE: Final = 500
VALUES_BYTES: Final = 100_000
"""Of the values in one answer: moments beyond have none, and are asked for one by one."""

# ui/page
PAGE_RUNS_AT_ONCE: Final = 50
MOST_HELD: Final = 200
PAGE_MOST_LOOKED_AT: Final = 5_000
"""Runs that are looked at for one answer, where few are what is searched for."""
MOST_ORDERS: Final = 10
PAGE_KEPT: Final = 16
"""Runs whose counts are kept."""
PAGE_MOST_LANES: Final = 300_000
"""Of these together: those that were looked at before others are counted anew then."""
READING_SECONDS: Final = 1.0

# ui/sent
SENT_MOST_LISTED: Final = 1_000
"""Calls of an answer; the drawing folds what is more than it shows."""
MOST_EDGES: Final = 2_000
MOST_PLACES: Final = 20
SENT_LONGEST: Final = 200
"""Characters of a place."""
ALL_BYTES: Final = 600_000
"""Of the texts of all ticks together: of many ticks, less is shown of each."""
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
