"""The catalogue: every finding there is, in one table (SPEC R6.7). From it comes the reference page, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Entry:
    """What a code stands for."""

    code: str
    name: str
    severity: str
    """`warning`: what is written can hardly be meant. `info`: worth a look. `note`: no reason to change anything."""
    rule: str
    meaning: str
    remedy: str
    """An example of what to do."""


# fmt: off
_ENTRIES: Final = (
    # Order and data flow
    ("ACT101", "unreachable", "warning", "R6.6",
     "A call can never run: the values that it reads never exist in one and the same run.",
     "Write `||` between values that exclude each other: `†state.refund || †state.order`."),
    ("ACT103", "race", "warning", "R6.4",
     "Two calls write one place, and neither waits for the other: the value of the one that ends last counts.",
     "Let one call read what the other writes."),
    ("ACT104", "depends-on-timing", "warning", "R6.1",
     "A call reads a place where a call listed after it writes. It does not wait for that, so either may be first.",
     "List the reader after the writer."),
    # Values and types
    ("ACT201", "type-misfit", "warning", "R4.1",
     "A call reads a result whose schema never fits its tool or the signature of its activity.",
     "Read another field, or change one of the two schemas."),
    ("ACT202", "value-misfit", "warning", "R4.1",
     "A call reads a value of the context that its tool does not admit.",
     "Change the value, or read another place."),
    ("ACT203", "kind-misfit", "warning", "R4.6",
     "A call writes what the schema of the kind never admits at that place.",
     "Change the path, or one of the two schemas."),
    ("ACT204", "unknown-field", "warning", "R4.6",
     "A call reads a field that the `_output` of its writer does not have, or lists others and not this one.",
     "write †state.var1.name"),
    ("ACT205", "wrong-container", "warning", "R3.5",
     "A path has an index into an object, or where nothing makes a list, or a key into a list or a scalar.",
     "write †state.var1.0.name to read the first element"),
    ("ACT206", "method-misfit", "warning", "R3.2",
     "A result can never be written by its `_outputMethod`: `assign` takes objects, `concat` lists and strings.",
     "Change the `_outputMethod`."),
    ("ACT207", "delegate-misfit", "info", "R9.2",
     "A call gives or reads what never fits the input that its delegate declares: the delegate has to make do with it.",
     "Give or read something else, or change one of the two schemas."),
    ("ACT208", "never-written", "warning", "R4.6",
     "The schema of a kind requires a property that no call writes and the context does not hold.",
     "let a call write †state.total, or do not require it"),
    ("ACT209", "signature-misfit", "warning", "R4.1a",
     "A declared tool admits a call, and the activity behind it needs another parameter or does not take one.",
     "write userId"),
    ("ACT299", "incomplete", "note", "R6.7",
     "The submission is so large that not all of it was examined.",
     "Check it in parts."),
    # Texts and slips
    ("ACT301", "forgotten-dagger", "warning", "R2.2",
     "A parameter is a text that names a known place and has no `†`, or white space before it.",
     "write †state.user.name"),
    ("ACT302", "foreign-template", "warning", "R2.2",
     "A parameter is a template of another system, such as `{{state.x}}`, `$state.x` or `#E1`: it stays a text.",
     "write †state.x"),
    ("ACT303", "misspelt-property", "warning", "R4",
     "A property has nearly the name of a meta-property, such as `_outputpath` or `output_path`, and no effect.",
     "write _outputPath"),
    ("ACT304", "foreign-property", "warning", "R4",
     "A property of another system, such as `_dependsOn` or `_if`, has no effect.",
     "a call waits for what it reads: read what the other call writes"),
    ("ACT305", "embedded-reference", "info", "R2.6",
     "A reference, or a template of another system, stands inside a longer text: only `†{…}` is read there.",
     "write Dear †{input.name}"),
    ("ACT307", "output-path-without-dagger", "warning", "R2.5",
     "An `_outputPath` without `†` begins with a kind: `state.x` leads to `†state.state.x`.",
     "write †state.x"),
    ("ACT308", "forgotten-kind", "warning", "R2.3",
     "An alternative (`||`) lacks its kind: `†var1.x` where `†state.var1.x` is known.",
     "write †state.var1.x"),
    ("ACT309", "dead-alternative", "info", "R2.3",
     "An alternative (`||`) never exists: the context does not hold it and no call writes it.",
     "leave the alternative out"),
    ("ACT310", "unknown-parameter", "info", "R4.1",
     "A parameter that the tool does not name has nearly the name of one that it names and the call leaves out.",
     "write userId"),
    # Scopes, tools, settings and messages
    ("ACT401", "misspelt-scope", "warning", "R8.1",
     "A scope has no value, and nearly the name of one that has.",
     "write †state.user"),
    ("ACT402", "scope-of-an-instance", "warning", "R8.2",
     "A scope has no value for a call without `_instance`: only instances have values there.",
     'give the call "_instance": "①"'),
    ("ACT403", "wide-scope", "note", "R8.3a",
     "A call waits for others only because all of a kind is in its `_scopes`.",
     "list the places that it needs, such as †state.user"),
    ("ACT404", "idle-property", "warning", "R4.3",
     "An `_outputMethod` without `_outputPath`, or an `_output` where code gives the result, has no effect.",
     "add an _outputPath"),
    ("ACT405", "missing-output-path", "warning", "R5.1",
     "A call has no `_outputPath`, and its tool says what that may be, or its code or its delegate gives a result.",
     "add an _outputPath, such as †state.summary"),
    ("ACT406", "wrapped-tool", "warning", "R4.1",
     "A tool has the schema of its calls under `parameters` or `input_schema`, where it has no effect.",
     "replace the declaration by what stands under parameters"),
    ("ACT407", "hidden-data", "warning", "R1.3",
     "A flat message has `title` or `description`: they describe the message and are no data.",
     'put the data under "data"'),
    ("ACT408", "dropped-wait", "note", "R8.3a",
     "A call does not wait for another one that writes in its `_scopes`, since that one waits for it.",
     "list the places that it needs, such as †state.user"),
    ("ACT409", "advisor-not-asked", "info", "R15.1",
     "An advisor is to be asked at another moment than `request`: it is kept, and not asked.",
     'write "on": "request"'),
    ("ACT411", "gathered-in-sight", "note", "R8.3b",
     "What is gathered from all instances lies where `_scopes` of instances' calls read: each sees those of others.",
     "write it to a kind of its own, such as †summary, or list narrower scopes"),
    ("ACT412", "hidden-input", "info", "R9.2",
     "A parameter of a delegate's call has the name of a value in its scoped `input`, and hides that from it.",
     'give the parameter another name, or leave †input.text out of "_scopes"'),
    ("ACT413", "unenforced", "info", "R12.6",
     "The model's provider cannot enforce a part of a tool's schema: what is written there is only validated.",
     'say "additionalProperties": false'),
    ("ACT414", "misspelt-type", "warning", "R1.1",
     "A message has an unknown type, and nearly the name of a known one: it is kept, and nothing reads it.",
     'write "type": "text"'),
    ("ACT415", "uncallable-tool", "warning", "R12.4",
     "The schema of a request's tool admits no call at all, such as `minProperties: 1` in a closed object.",
     "name the parameters that it demands"),
    # Trust
    ("ACT601", "untrusted-parameter", "warning", "R16.5",
     "A call that changes something outside is given a parameter that decides and that others may have written.",
     "let a person approve the call"),
    ("ACT602", "untrusted-choice", "warning", "R16.5",
     "What others may have written has a say in whether a call runs that changes something outside.",
     "let a person approve the call"),
    ("ACT603", "endorsement", "info", "R16.3",
     "A delegate of the operator reads what others wrote, and its answer counts as trusted.",
     "look whether a wrong answer of that delegate would do harm"),
)
# fmt: on

CATALOGUE: Final = {entry[0]: Entry(*entry) for entry in _ENTRIES}
"""Code to entry. ACT1xx: order and data flow; ACT2xx: values and types; ACT3xx: texts and slips; ACT4xx: scopes, tools,
settings and messages; ACT6xx: trust.
"""
