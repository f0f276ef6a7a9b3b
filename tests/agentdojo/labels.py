"""What is said of each function of AgentDojo's suites, and why. It was written before anything was measured.

Three sentences decided, in this order, by which any other suite can be labelled as well. No task was looked at for an
exception, and where a sentence leaves a doubt, the label stays.

1. *Who writes.* A field of a result has as sources all who can write what it holds, except the user and the service
   that is asked: directly, by a copy, or by what the service computes from what they entered; so an id, a moment of the
   service's clock and what only the user decides have none, while names, addresses and choices that others make are
   theirs, and a text in which several fields are joined, or keyed by others' names, is theirs as a whole.
2. *What acts.* A function has effects if it changes something, or tells somebody something, outside of the run (a mark
   that the user has seen something is none; a mere visit of a page is one where neither the operator nor the user's
   prompt names its host), and each of its parameters decides, except a text that people read and no program acts on
   (content), and a code that can only complete a call that was itself decided (proof).
3. *What may be chosen.* A reader's answer is endorsed where it is yes or no to a question of the user's, one of the few
   values that the prompt or the operator lists, or one of the values that a field without sources held in the result of
   a call; any other answer is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

Sources = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Said:
    """What is said of a function."""

    why: str
    result: Sources | Mapping[str, Sources] = ()
    """Who writes its results: names, or names by the path of a field. None: trusted."""
    effects: bool = False
    content: Sources = ()
    """The parameters that decide nothing, of a function with effects."""
    proof: Sources = ()
    """The parameters that only complete a call."""
    hosts: Mapping[str, Sources] = field(default_factory=dict)
    """The parameters that are addresses, of a function with no other effect than a visit, and the operator's hosts."""

    def to_dict(self) -> dict[str, Any]:
        """As a tool says it, beside its `properties`."""
        by_field = isinstance(self.result, Mapping) and {path: list(names) for path, names in self.result.items()}
        return {
            **({"effects": True} if self.effects else {}),
            **({"result": by_field or list(self.result)} if self.result else {}),
            **({"content": list(self.content)} if self.content else {}),
            **({"proof": list(self.proof)} if self.proof else {}),
            **({"hosts": {name: list(hosts) for name, hosts in self.hosts.items()}} if self.hosts else {}),
        }


def by_field(others: str, *own: str, **more: str) -> dict[str, Sources]:
    """A result that others write, except these fields of it; the first name of a path is that of a field."""
    return {**dict.fromkeys(own, ()), **{path: (names,) for path, names in more.items()}, "*": (others,)}


def each(fields: Mapping[str, Sources]) -> dict[str, Sources]:
    """The same of each element of a list."""
    return {f"*.{path}" if path != "*" else path: names for path, names in fields.items()}


_OWN: Final = "the user's own, or the service's: nobody else writes there"
_MAIL: Final = each(by_field("mail", "id_", "status", "read", "timestamp"))
_SENT: Final = each(by_field("mail", "id_", "status", "read", "timestamp", "sender"))
_EVENT: Final = by_field("calendar", "id_")
_FILE: Final = by_field("drive", "id_", "last_modified")
_LISTING: Final = ("listing",)
_REVIEWS: Final = ("listing", "reviews")
_CHAT: Final = ("chat",)

_WRITTEN: Final = (
    "anybody writes a mail, its addresses and attachments too; the mailbox numbers it, and knows when it came"
)
_INVITED: Final = "others invite to meetings, and say when and with whom; the calendar numbers them"
_SHARED: Final = (
    "others name, write and share files, which says the size as well; the drive numbers them, and keeps time"
)
_LISTED: Final = Said(
    "firms enter themselves in the catalogue, their names among it, and results are keyed by names", _LISTING
)
_REVIEWED: Final = Said("guests write reviews, firms enter themselves, and both are joined in a text", _REVIEWS)

LABELS: Final[dict[str, Said]] = {
    # Mail
    "send_email": Said("its texts are for people; to whom, and which files, decide", (), True, ("subject", "body")),
    "delete_email": Said("which one decides", (), True),
    "get_unread_emails": Said(_WRITTEN, _MAIL),
    "get_received_emails": Said(_WRITTEN, _MAIL),
    "search_emails": Said(_WRITTEN, _MAIL),
    "get_sent_emails": Said(
        "texts that were sent quote others, and a cancelled meeting is mailed to its guests", _SENT
    ),
    "get_draft_emails": Said("the user wrote them"),
    "search_contacts_by_name": Said(
        "whoever has written a mail becomes a contact, named by the own address", ("mail",)
    ),
    "search_contacts_by_email": Said("whoever has written a mail becomes a contact", ("mail",)),
    # Calendar
    "get_current_day": Said(_OWN),
    "search_calendar_events": Said(_INVITED, each(_EVENT)),
    "get_day_calendar_events": Said(_INVITED, each(_EVENT)),
    "create_calendar_event": Said(
        "it mails those whom it invites; its texts are for people", (), True, ("title", "description", "location")
    ),
    "cancel_calendar_event": Said("it mails those who were invited", (), True),
    "reschedule_calendar_event": Said(
        "it mails those who were invited; of the event its new beginning is the user's",
        by_field("calendar", "id_", "start_time"),
        True,
    ),
    "add_calendar_event_participants": Said("it mails those whom it invites; the event is others'", _EVENT, True),
    # Drive
    "search_files_by_filename": Said(_SHARED, each(_FILE)),
    "search_files": Said(_SHARED, each(_FILE)),
    "get_file_by_id": Said(_SHARED, _FILE),
    "list_files": Said(_SHARED, each(_FILE)),
    "create_file": Said("its text is for people; its name is found and opened by programs", (), True, ("content",)),
    "append_to_file": Said("its text is for people; it gives back what was there", _FILE, True, ("content",)),
    "delete_file": Said("which one decides; it gives back what was there", _FILE, True),
    "share_file": Said("all of it decides; it gives back what was there", _FILE, True),
    # Travel
    "get_user_information": Said(_OWN),
    "get_all_hotels_in_city": _LISTED,
    "get_hotels_prices": _LISTED,
    "get_hotels_address": _LISTED,
    "get_rating_reviews_for_hotels": _REVIEWED,
    "get_all_restaurants_in_city": _LISTED,
    "get_cuisine_type_for_restaurants": _LISTED,
    "get_restaurants_address": _LISTED,
    "get_rating_reviews_for_restaurants": _REVIEWED,
    "get_dietary_restrictions_for_all_restaurants": _LISTED,
    "get_contact_information_for_restaurants": _LISTED,
    "get_price_for_restaurants": _LISTED,
    "check_restaurant_opening_hours": _LISTED,
    "get_all_car_rental_companies_in_city": _LISTED,
    "get_car_types_available": _LISTED,
    "get_rating_reviews_for_car_rental": _REVIEWED,
    "get_car_fuel_options": _LISTED,
    "get_car_rental_address": _LISTED,
    "get_car_price_per_day": _LISTED,
    "get_flight_information": _LISTED,
    "reserve_hotel": Said("where and when decide", (), True),
    "reserve_restaurant": Said("where and when decide", (), True),
    "reserve_car_rental": Said("where and when decide", (), True),
    # Bank
    "get_iban": Said(_OWN),
    "get_balance": Said("the bank computes it, also from what others pay in", ("payers",)),
    "get_most_recent_transactions": Said(
        "whoever pays says from where, how much, when and why; the bank numbers it, and it goes to the user, or to "
        "whom the user has paid",
        each(by_field("payers", "id", "recipient")),
    ),
    "get_scheduled_transactions": Said(
        "the user ordered them, but the subject is a text that may quote others", {"*.subject": ("payers",), "*": ()}
    ),
    "read_file": Said("bills and notices are written by others", ("files",)),
    "get_user_info": Said(_OWN),
    "send_money": Said("the subject is for people; to whom, how much and when decide", (), True, ("subject",)),
    "schedule_transaction": Said("as sending money, and whether it is repeated", (), True, ("subject",)),
    "update_scheduled_transaction": Said("as sending money, and which order", (), True, ("subject",)),
    "update_password": Said("the password decides", (), True),
    "update_user_info": Said("where bills and cards are sent is decided by it", (), True),
    # Chat and web
    "get_channels": Said("whoever makes a channel names it", _CHAT),
    "get_users_in_channel": Said("users name themselves, and join", _CHAT),
    "read_channel_messages": Said("anybody in the channel writes, under a name of the own choice", _CHAT),
    "read_inbox": Said("anybody writes a message, under a name of the own choice", _CHAT),
    "send_direct_message": Said("its text is for people; to whom decides", (), True, ("body",)),
    "send_channel_message": Said("its text is for people; where decides", (), True, ("body",)),
    "add_user_to_channel": Said("whom and where decide", (), True),
    "invite_user_to_slack": Said("whom decides", (), True),
    "remove_user_from_slack": Said("whom decides", (), True),
    "get_webpage": Said(
        "whoever has the page writes it, and is told of the visit; the operator names no hosts",
        ("web",),
        True,
        hosts={"url": ()},
    ),
    "post_webpage": Said("its text is for people; where decides", (), True, ("content",)),
}


def list_hosts(*hosts: str) -> None:
    """Let the operator list hosts, for each parameter that is an address."""
    LABELS.update({name: replace(said, hosts=dict.fromkeys(said.hosts, hosts)) for name, said in LABELS.items()})
