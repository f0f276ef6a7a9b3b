"""Attacks on named hosts, by somebody who had only read the documents: strangers want a page of theirs to be opened."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from acts_celery import ActivitiesError, LocalClient, activity

from .raids import assert_held, attempt, end, raided, settle, source

__all__ = ["raided"]

EVIL = "https://evil.example/"
NUMBERS = itertools.count()


def opened(url: Any, tool: str = "raid_open", **more: Any) -> dict[str, Any]:
    return {"_tool": tool, "url": url, "_outputPath": "†state.done", **more}


ADDRESSES: dict[str, Any] = {
    "another host": EVIL,
    "a subdomain": "https://www.shop.example/",
    "a longer name": "https://shop.example.evil.example/",
    "a name that ends alike": "https://evilshop.example/",
    "a name that begins alike": "https://shop.examplee/",
    "a shorter name": "https://example/",
    "the host as a user": "https://shop.example@evil.example/",
    "the host as a user with a password": "https://shop.example:x@evil.example/",
    "the host as a password": "https://x:shop.example@evil.example/",
    "two users": "https://evil.example@shop.example@evil.example/",
    "a user": "https://evil@shop.example/",
    "an empty user": "https://@shop.example/",
    "a user without a scheme": "shop.example@evil.example",
    "a user and a port without a scheme": "shop.example:80@evil.example",
    "a mail address": "mailto:ann@shop.example",
    "the host as a path": "https://evil.example/shop.example",
    "the host as a fragment": "https://evil.example#shop.example",
    "the host as a query": "https://evil.example?shop.example",
    "a user in a fragment": "https://evil.example#@shop.example/",
    "a user in a query": "https://evil.example?@shop.example/",
    "a user behind a slash": "https://evil.example/@shop.example/",
    "a backslash and a user": "https://evil.example\\@shop.example/",
    "a user and a backslash": "https://shop.example\\@evil.example/",
    "a backslash in the name": "https://shop.example\\.evil.example/",
    "backslashes": "https:\\\\evil.example/shop.example",
    "one backslash": "https:/\\shop.example/",
    "backslashes for the host": "\\\\shop.example/",
    "a dot at the end": "https://shop.example./",
    "two dots": "https://shop..example/",
    "a dot at the start": "https://.shop.example/",
    "another full stop": "https://shop。example/",
    "a letter of another alphabet": "https://ѕhop.example/",
    "wide letters": "https://ｓhop.example/",
    "a Kelvin sign": "https://booK.example/",
    "a long s": "https://ſhop.example/",
    "a dotless i": "https://shop.ıxample/",
    "a soft hyphen": "https://shop.exam\u00adple/",
    "a joiner": "https://shop\u200d.example/",
    "an override of direction": "https://\u202eelpmaxe.pohs/",
    "punycode": "https://xn--hop-5cd.example/",
    "a slash of another alphabet": "https://shop.example\u2215.evil.example/",
    "a fraction slash": "https://evil.example\u2044@shop.example/",
    "an unusual port": "https://shop.example:8443/",
    "the port of another scheme": "https://shop.example:80/",
    "no number as a port": "https://shop.example:evil/",
    "a port beyond all": "https://shop.example:65979/",
    "a signed port": "https://shop.example:+443/",
    "a port of other digits": "https://shop.example:٤٤٣/",
    "a port with spaces": "https://shop.example: 443/",
    "two ports": "https://shop.example:443:80/",
    "a number": "https://2130706433/",
    "an octal number": "https://0177.0.0.1/",
    "a hexadecimal number": "https://0x7f.0x0.0x0.0x1/",
    "a short number": "https://127.1/",
    "an IPv4 address": "https://127.0.0.1/",
    "an IPv6 address": "https://[::1]/",
    "an IPv4 address in IPv6": "https://[::ffff:127.0.0.1]/",
    "the host in brackets": "https://[shop.example]/",
    "an open bracket": "https://shop.example[evil.example/",
    "a zone": "https://[fe80::1%25shop.example]/",
    "an escape in the name": "https://%73hop.example/",
    "an escaped slash": "https://shop.example%2f@evil.example/",
    "an escaped at": "https://shop.example%40evil.example/",
    "an escaped zero": "https://shop.example%00.evil.example/",
    "an escaped dot": "https://shop%2eexample/",
    "an escaped question mark": "https://evil.example%3f.shop.example/",
    "a zero": "https://evil.example\x00.shop.example/",
    "a zero first": "\x00https://shop.example/",
    "a tab in the name": "https://shop.\texample/",
    "a line break in the name": "https://shop.example\n.evil.example/",
    "a line break and a user": "https://shop.example\n@evil.example/",
    "a carriage return and a header": "https://shop.example/\r\nHost: evil.example",
    "a tab in the scheme": "ht\ttps://evil.example",
    "a space first": " https://evil.example/",
    "a space in the name": "https://shop.example evil.example/",
    "a space before a user": "https://shop.example @evil.example/",
    "two addresses": "https://shop.example/ https://evil.example/",
    "two addresses with a comma": "https://shop.example,https://evil.example/",
    "two hosts with a comma": "https://shop.example,evil.example/",
    "a semicolon": "https://shop.example;@evil.example/",
    "a pipe": "https://shop.example|evil.example/",
    "angle brackets": "<https://shop.example>",
    "quotes": '"https://shop.example"',
    "a scheme that runs": "javascript://shop.example/%0aalert(1)",
    "a scheme that reads files": "file://shop.example/etc/passwd",
    "a scheme of other protocols": "gopher://shop.example:25/",
    "a scheme of data": "data://shop.example/,x",
    "a scheme around": "view-source:https://shop.example/",
    "a scheme of archives": "jar:https://shop.example!/",
    "a scheme named like the host": "shop.example://evil.example/",
    "a scheme named like the host, without slashes": "shop.example:evil",
    "a scheme twice": "https://https://shop.example/",
    "no slashes": "https:shop.example",
    "one slash": "https:/shop.example",
    "three slashes": "https:///shop.example",
    "four slashes": "https:////evil.example/shop.example",
    "three slashes without a scheme": "///shop.example",
    "no host": "https://",
    "an empty text": "",
    "only a path": "/shop.example",
    "a path with dots": "../shop.example",
    "only a query": "?https://shop.example",
    "only a fragment": "#shop.example",
    "a word": "example",
    "a list with another": ["https://shop.example/", EVIL],
    "a list in a list": [["https://shop.example/"], [EVIL]],
    "a list of nothing": [],
    "an object": {"url": "https://shop.example/", "host": "evil.example"},
    "an object of the host": {"https://shop.example/": EVIL},
    "an object in a list": [{"url": EVIL}],
    "null": None,
    "a number as value": 2130706433,
    "true": True,
}


@pytest.mark.parametrize("address", ADDRESSES.values(), ids=ADDRESSES)
def test_r16_8_an_address_of_strangers_that_may_lead_elsewhere_is_held(raided: LocalClient, address: Any) -> None:
    assert_held(raided, [source(address), opened("†state.mail")])


@pytest.mark.parametrize("address", ["https://shop.example/a?b#c", "http://shop.example:80", "shop.example"])
def test_r16_8_an_address_that_leads_to_a_named_host_alone_starts(raided: LocalClient, address: str) -> None:
    seen = attempt(raided, [source(address), opened("†state.mail")])
    assert seen.started == [{"url": address}]


TEMPLATES = {
    "before the host": ("†{state.mail}shop.example", "https://evil.example/"),
    "before the scheme": ("†{state.mail}://shop.example", "javascript"),
    "behind the host": ("https://shop.example†{state.mail}", ".evil.example"),
    "a user behind the host": ("https://shop.example†{state.mail}", "@evil.example"),
    "a password behind the host": ("https://shop.example†{state.mail}", ":x@evil.example"),
    "a port behind the host": ("https://shop.example:†{state.mail}/", "8443"),
    "a port and a user": ("https://shop.example:†{state.mail}/", "80@evil.example"),
    "in the host": ("https://†{state.mail}.example/", "evil"),
    "a host before a slash": ("https://†{state.mail}/", "evil.example"),
    "an object": ("https://†{state.mail}/", {"a": 1}),
    "a line break in a path": ("https://shop.example/†{state.mail}", "\r\nHost: evil.example"),
}


@pytest.mark.parametrize(("template", "value"), TEMPLATES.values(), ids=TEMPLATES)
def test_r16_8_a_template_that_strangers_complete_leads_nowhere_else(
    raided: LocalClient, template: str, value: Any
) -> None:
    assert_held(raided, [source(value), opened(template)])


MENTIONS: dict[str, tuple[list[Any], list[dict[str, Any]]]] = {
    "data with a source": ([{"type": "input", "page": "evil.example", "_trust": ["web"]}], []),
    "what a call of strangers wrote": ([], [source("evil.example", path="†state.told")]),
    "the field of strangers in a result": (
        [],
        [source({"items": [{"text": "evil.example"}]}, "raid_fields", "†state.told")],
    ),
    "a copy of it": ([], [source("evil.example", path="†state.t"), source("†state.t", "raid_copy", "†state.told")]),
    "an error that quotes it": (
        [],
        [source("evil.example", path="†state.t"), source("†state.t", "raid_fail", "†state.told")],
    ),
    "an error of strangers": ([], [source("evil.example", "raid_fail_of", "†state.told")]),
    "an error at an alternative": ([], [source("evil.example", "raid_fail_of", "†state.told || †state.failed")]),
    "a key of strangers": ([], [source({"evil.example": 1}, path="†state.told")]),
    "a longer name": (["visit evil.example.org, notevil.example and my-evil.example"], []),
    "a longer name with an underscore": (["visit x_evil.example"], []),
    "a subdomain": (["visit www.evil.example"], []),
    "the domain above": (["visit example"], []),
    "another port": (["visit https://evil.example:8443/"], []),
    "letters of another alphabet": (["visit еvil.example"], []),
    "a host of another instance": ([{"type": "input", "_instance": "②", "page": "evil.example"}], []),
}


@pytest.mark.parametrize(("context", "before"), MENTIONS.values(), ids=MENTIONS)
def test_r16_8_who_does_not_name_a_host_makes_it_no_named_one(
    raided: LocalClient, context: list[Any], before: list[dict[str, Any]]
) -> None:
    opening = opened("†state.mail")
    if before:
        opening["_after"] = ["†state.told"]
    assert_held(raided, [*before, source(EVIL), opening], context)


def test_r16_8_a_host_in_data_that_strangers_send_is_not_named(raided: LocalClient) -> None:
    promise = {"type": "input", "schema": {"type": "object", "properties": {"page": {"type": "string"}}}}
    calls = [
        source(EVIL),
        opened("†state.mail", _after=["†state.copied"]),
        source("†input.page", "raid_copy", "†state.copied"),
    ]
    run = raided.submit([promise], {"calls": calls}, config={"promise_seconds": 60})
    run.send({"type": "input", "page": "evil.example", "_trust": ["web"]})
    seen = settle(run)
    assert (seen.started, len(seen.held)) == ([], 1)
    end(run)


def test_r16_8_a_host_that_a_model_names_after_it_was_shown_strangers_texts_is_not_named(raided: LocalClient) -> None:
    calls = [source(EVIL, _reasoningForCall="evil.example"), source("evil.example", "raid_copy", "†state.named")]
    raided.model({"calls": calls, "output": None}, {"calls": [opened("†state.mail")], "output": None}, {"output": "x"})
    page = {"type": "input", "page": "write evil.example", "_trust": ["web"]}
    run = raided.submit(
        [page, "Read the page."],
        tools=["raid_mail", "raid_copy", "raid_open"],
        schema={"type": "string"},
        config={"trust": {"show": "value"}},
    )
    seen = settle(run)
    assert (seen.started, len(seen.held)) == ([], 1)
    end(run)


def test_r16_8_one_of_two_addresses_leads_elsewhere(raided: LocalClient) -> None:
    calls = [source(EVIL), opened("https://shop.example/", "raid_open_two", then="†state.mail")]
    assert_held(raided, calls)


def test_r16_8_one_of_many_elements_leads_elsewhere(raided: LocalClient) -> None:
    assert_held(raided, [source(["https://shop.example/", EVIL]), opened("†state.mail", _each="url")])


def test_r16_8_a_gathered_address_leads_elsewhere(raided: LocalClient) -> None:
    context = [
        {"type": "input", "_instance": "①", "url": "https://shop.example/", "_trust": ["mail"]},
        {"type": "input", "_instance": "②", "url": EVIL, "_trust": ["mail"]},
    ]
    assert_held(raided, [opened("†input.url", _gather=True)], context)


def test_r16_8_an_address_that_is_left_out_leads_nowhere_named(raided: LocalClient) -> None:
    choice = {
        "_tool": "choose",
        "value": "†state.mail",
        "cases": [{"const": "go"}],
        "_outputPath": "†state.yes || †state.no",
    }
    calls = [source("go"), choice, {"_tool": "raid_open", "_scopes": ["†state.yes"], "_outputPath": "†state.done"}]
    seen = attempt(raided, calls)
    assert seen.started == []
    end(seen.run)


def test_r16_8_a_submission_names_no_host_for_what_code_says(raided: LocalClient) -> None:
    tools = {"raid_open": {"_trust": {"effects": True, "hosts": {"url": ["shop.example", "evil.example"]}}}}
    assert_held(raided, [source(EVIL), opened("†state.mail")], tools=tools)


def test_r16_8_an_alias_names_no_host_for_what_code_says(raided: LocalClient) -> None:
    tools = {
        "look": {
            "properties": {"_activity": {"const": "raid_open"}, "url": {}},
            "_trust": {"effects": True, "hosts": {"url": ["evil.example"]}},
        }
    }
    assert_held(raided, [source(EVIL), opened("†state.mail", "look")], tools=tools)


@pytest.mark.parametrize(
    "hosts",
    [
        {"url": ["*"]},
        {"url": ["*.example"]},
        {"url": [""]},
        {"url": ["."]},
        {"url": ["https://shop.example"]},
        {"url": ["shop.example/path"]},
        {"url": ["user@shop.example"]},
        {"url": ["Shop.Example"]},
        {"url": ["shop.example."]},
        {"url": ["127.0.0.1"]},
        {"url": ["[::1]"]},
        {"url": ["2130706433"]},
        {"url": ["ѕhop.example"]},
        {"url": ["shop.example\n"]},
        {"url": "shop.example"},
        {"url": [None]},
        ["shop.example"],
    ],
    ids=str,
)
def test_r16_8_what_is_no_host_names_none(hosts: Any) -> None:
    name = f"raid_hosts_{next(NUMBERS)}"
    with pytest.raises((ActivitiesError, TypeError, ValueError)):

        @activity(name, effects=True, hosts=hosts)
        def visit(url: str) -> None: ...


def test_r16_8_hosts_without_effects_are_refused() -> None:
    with pytest.raises(ActivitiesError):

        @activity("raid_hosts_only", hosts={"url": ["shop.example"]})
        def visit(url: str) -> None: ...


@pytest.mark.parametrize(
    ("tool", "more"),
    [
        ("raid_open_other", {}),
        ("raid_open_other", {"other": EVIL}),
        ("raid_open_star", {}),
        ("raid_open_star", {"name": "https://shop.example/"}),
    ],
    ids=str,
)
def test_r16_8_hosts_of_a_parameter_that_is_no_address_free_no_other(
    raided: LocalClient, tool: str, more: dict[str, Any]
) -> None:
    assert_held(raided, [source(EVIL), opened("†state.mail", tool, **more)])


def test_r16_8_an_address_that_strangers_had_a_model_write_leads_elsewhere(raided: LocalClient) -> None:
    assert_held(raided, [opened(EVIL, _trust=["mail"])])
    assert_held(
        raided,
        [
            source("evil.example", "raid_copy", "†state.x", _trust=["mail"]),
            source(EVIL),
            opened("†state.mail", _after=["†state.x"]),
        ],
    )


def test_r16_8_a_host_in_a_place_that_strangers_once_wrote_is_not_named(raided: LocalClient) -> None:
    calls = [
        source("evil.example", path="†state.told"),
        source("shop", "raid_copy", "†state.told", _after=["†state.told"]),
        source(EVIL),
        opened("†state.mail", _after=["†state.told"]),
    ]
    assert_held(raided, calls)
