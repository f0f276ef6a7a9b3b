"""What is said of each function of AgentDojo's suites, and why. It was written before anything was measured.

Three rules decided, in this order, and no task was looked at for an exception:

1. A result is untrusted if anybody but the user, and the service itself, can write into any field of it, be it by way
   of the service: whoever sends a mail, invites to a meeting, shares a file, pays with a subject, writes a review,
   enters a firm in a catalogue, names a channel, has a web page. A label is the whole result's, not a field's.
2. A function has effects if it changes something, or tells somebody something, outside of the run. Marking a mail as
   read is none: it is undone by hand and tells nobody. Getting a page is one: whoever has the address's server is told
   what the address says, and the benchmark counts such a visit as an attack.
3. A parameter decides, unless it is a text that people read and no program acts on. To whom, which one, how much, when,
   how often and under what name are decided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Said:
    """What is said of a function."""

    why: str
    sources: tuple[str, ...] = ()
    """Of its results; none: trusted."""
    effects: bool = False
    content: tuple[str, ...] = ()
    """The parameters that decide nothing, of a function with effects."""

    def to_dict(self) -> dict[str, Any]:
        """As a tool says it, beside its `properties`."""
        return {
            **({"effects": True} if self.effects else {}),
            **({"result": list(self.sources)} if self.sources else {}),
            **({"content": list(self.content)} if self.content else {}),
        }


_TRUSTED: Final = "the user's own, or the service's: nobody else writes there"
_MAIL: Final = ("mail",)
_CALENDAR: Final = ("calendar",)
_DRIVE: Final = ("drive",)
_LISTING: Final = ("listing",)
_REVIEWS: Final = ("listing", "reviews")
_CHAT: Final = ("chat",)
_WEB: Final = ("web",)

_LISTED: Final = Said("firms enter themselves in the catalogue, their names and addresses among it", _LISTING)
_REVIEWED: Final = Said("guests write reviews, and firms enter themselves", _REVIEWS)

LABELS: Final[dict[str, Said]] = {
    # Mail
    "send_email": Said("its texts are for people; to whom, and which files, decide", (), True, ("subject", "body")),
    "delete_email": Said("which one decides", (), True),
    "get_unread_emails": Said("anybody writes a mail", _MAIL),
    "get_received_emails": Said("anybody writes a mail", _MAIL),
    "search_emails": Said("anybody writes a mail", _MAIL),
    "get_sent_emails": Said("the user wrote them"),
    "get_draft_emails": Said("the user wrote them"),
    "search_contacts_by_name": Said("whoever has written a mail becomes a contact, named by the own address", _MAIL),
    "search_contacts_by_email": Said("whoever has written a mail becomes a contact", _MAIL),
    # Calendar
    "get_current_day": Said(_TRUSTED),
    "search_calendar_events": Said("others invite to meetings, and describe them", _CALENDAR),
    "get_day_calendar_events": Said("others invite to meetings, and describe them", _CALENDAR),
    "create_calendar_event": Said(
        "it mails those whom it invites; its texts are for people", (), True, ("title", "description", "location")
    ),
    "cancel_calendar_event": Said("it mails those who were invited", (), True),
    "reschedule_calendar_event": Said("it mails those who were invited; the event is others'", _CALENDAR, True),
    "add_calendar_event_participants": Said("it mails those whom it invites; the event is others'", _CALENDAR, True),
    # Drive
    "search_files_by_filename": Said("others write to shared files, and share files", _DRIVE),
    "search_files": Said("others write to shared files, and share files", _DRIVE),
    "get_file_by_id": Said("others write to shared files", _DRIVE),
    "list_files": Said("others write to shared files, and share files", _DRIVE),
    "create_file": Said("its text is for people; its name is found and opened by programs", (), True, ("content",)),
    "append_to_file": Said("its text is for people; it gives back what was there", _DRIVE, True, ("content",)),
    "delete_file": Said("which one decides; it gives back what was there", _DRIVE, True),
    "share_file": Said("all of it decides; it gives back what was there", _DRIVE, True),
    # Travel
    "get_user_information": Said(_TRUSTED),
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
    "get_iban": Said(_TRUSTED),
    "get_balance": Said("the bank counts it"),
    "get_most_recent_transactions": Said("whoever pays writes the subject", ("payers",)),
    "get_scheduled_transactions": Said("the user ordered them"),
    "read_file": Said("bills and notices are written by others", ("files",)),
    "get_user_info": Said(_TRUSTED),
    "send_money": Said("the subject is for people; to whom, how much and when decide", (), True, ("subject",)),
    "schedule_transaction": Said("as sending money, and whether it is repeated", (), True, ("subject",)),
    "update_scheduled_transaction": Said("as sending money, and which order", (), True, ("subject",)),
    "update_password": Said("the password decides", (), True),
    "update_user_info": Said("where bills and cards are sent is decided by it", (), True),
    # Chat and web
    "get_channels": Said("whoever makes a channel names it", _CHAT),
    "get_users_in_channel": Said("users name themselves, and join", _CHAT),
    "read_channel_messages": Said("anybody in the channel writes", _CHAT),
    "read_inbox": Said("anybody writes a message", _CHAT),
    "send_direct_message": Said("its text is for people; to whom decides", (), True, ("body",)),
    "send_channel_message": Said("its text is for people; where decides", (), True, ("body",)),
    "add_user_to_channel": Said("whom and where decide", (), True),
    "invite_user_to_slack": Said("whom decides", (), True),
    "remove_user_from_slack": Said("whom decides", (), True),
    "get_webpage": Said("whoever has the page writes it, and is told of the visit", _WEB, True),
    "post_webpage": Said("its text is for people; where decides", (), True, ("content",)),
}
