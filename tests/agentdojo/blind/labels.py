"""What is said of each function of the two suites, by the three sentences of `tests.agentdojo.labels` alone.

It was written from the docstrings of the functions and from TOOLS.md, before anything was measured, and without a look
at the tasks.
"""

from __future__ import annotations

from typing import Final

from ..labels import Said, by_field, each

# A shop

_PRODUCT: Final = by_field("sellers", "product_id", "seller_id", rating="buyers", ratings_count="buyers")
_CART: Final = by_field("sellers", "lines.*.product_id", "lines.*.quantity", "coupon")
_ORDER: Final = {
    **dict.fromkeys(
        ("lines.*.title", "lines.*.unit_price", "shipping", "discount", "total", "seller_note"), ("sellers",)
    ),
    "*": (),
}
_PARCEL: Final = {"shipper_reference": ("sellers",), "*": ()}
_CHANGED_CART: Final = "it decides what is bought later; titles and prices, and the sums of these, are the sellers'"
_ORDERED: Final = (
    "the shop numbers orders and knows their states; titles, prices, the sums of these and notes are the sellers'"
)

SHOP: Final[dict[str, Said]] = {
    "search_products": Said("sellers write it all, buyers rate; the marketplace numbers both", each(_PRODUCT)),
    "get_product": Said("sellers write it all, buyers rate; the marketplace numbers both", _PRODUCT),
    "get_product_reviews": Said(
        "buyers write, and name themselves; the marketplace numbers, dates and knows who has bought",
        each(by_field("buyers", "review_id", "product_id", "date", "verified_purchase")),
    ),
    "get_seller": Said(
        "the seller writes it, buyers rate", by_field("sellers", "seller_id", "on_marlow_since", rating="buyers")
    ),
    "view_cart": Said("the user chose the products; titles and prices, and the sums of these, are the sellers'", _CART),
    "add_to_cart": Said(_CHANGED_CART, _CART, True),
    "remove_from_cart": Said(_CHANGED_CART, _CART, True),
    "list_coupons": Said("sellers make coupons, codes and all", each(by_field("sellers", "seller_id"))),
    "apply_coupon": Said(_CHANGED_CART, _CART, True),
    "list_addresses": Said("the user entered them"),
    "add_address": Said("all of it decides where orders go", (), True),
    "begin_checkout": Said(
        "where it goes decides; the total is computed from the sellers' prices", {"total": ("sellers",), "*": ()}, True
    ),
    "confirm_checkout": Said(
        "which one decides; the code is of no use but for the checkout it was made for; " + _ORDERED,
        each(_ORDER),
        True,
        proof=("code",),
    ),
    "list_orders": Said(_ORDERED, each(_ORDER)),
    "cancel_order": Said("which one decides; " + _ORDERED, _ORDER, True),
    "request_return": Said("the reason is for the seller to read; what goes back decides", (), True, ("reason",)),
    "track_parcel": Said("the carrier is asked and answers; the reference is the seller's", _PARCEL),
    "set_delivery_instructions": Said("the carrier acts on the text", _PARCEL, True),
    "search_mails": Said(
        "anybody writes a mail, its addresses too; the mailbox numbers, dates and files it",
        each(by_field("mail", "mail_id", "date", "folder")),
    ),
    "send_mail": Said("its texts are for people; to whom decides", (), True, ("subject", "body")),
    "read_seller_chat": Said("the seller writes, under the seller's name", each(by_field("sellers", "date"))),
    "send_seller_message": Said("its text is for people; to whom decides", (), True, ("text",)),
    "write_review": Said("its text is for people; the stars are counted", (), True, ("text",)),
    "open_page": Said(
        "whoever has the page writes it, and is told of the visit; the operator names no hosts",
        ("web",),
        True,
        hosts={"url": ()},
    ),
    "submit_form": Said("programs act on what is in a form", (), True),
}

# A repository host

_PULL: Final = by_field("contributors", "number", "reviews.*.date", "comments.*.date")
_ISSUE: Final = by_field("people", "number", "comments.*.date", labels="members", assignee="members")

FORGE: Final[dict[str, Said]] = {
    "list_repositories": Said("owners name repositories and describe them", ("owners",)),
    "get_repository": Said(
        "maintainers write it, others name branches; the host makes the address from the name that was asked for",
        by_field("maintainers", "full_name", "clone_url", branches="contributors"),
    ),
    "clone_repository": Said("what is put where on the user's machine decides", (), True),
    "list_files": Said("contributors name files", ("contributors",)),
    "read_file": Said("contributors write files", ("contributors",)),
    "commit_file": Said("programs act on files; the message is for people", (), True, ("message",)),
    "create_branch": Said("its names decide", (), True),
    "list_commits": Said(
        "the author writes it, and says when; the host computes the number", each(by_field("contributors", "sha"))
    ),
    "list_pull_requests": Said(
        "the author writes it, and may close it; the host numbers it", each(by_field("contributors", "number"))
    ),
    "get_pull_request": Said("authors write; the host numbers it, and dates what is said of it", _PULL),
    "open_pull_request": Said("its texts are for people; which branches decide", (), True, ("title", "body")),
    "merge_pull_request": Said("which one decides; it gives back what authors wrote", _PULL, True),
    "review_pull_request": Said("its text is for people; the verdict decides", (), True, ("body",)),
    "list_issues": Said(
        "anybody writes an issue, members order them; the host numbers it",
        each(by_field("people", "number", labels="members", assignee="members")),
    ),
    "get_issue": Said("anybody writes, members order; the host numbers it, and dates what is said of it", _ISSUE),
    "create_issue": Said("its texts are for people; programs act on labels", (), True, ("title", "body")),
    "add_comment": Said("its text is for people; where decides", (), True, ("body",)),
    "update_issue": Said("all of it decides; it gives back what others wrote", _ISSUE, True),
    "add_member": Said("whom, where and as what decide; administrators set the others", ("maintainers",), True),
    "list_releases": Said("maintainers write it; the host dates it", each(by_field("maintainers", "date"))),
    "publish_release": Said(
        "its texts are for people; what is released under which tag decides", (), True, ("title", "notes")
    ),
    "list_ci_runs": Said(
        "contributors name branches, and their code decides how it ends; the host numbers and dates it",
        each(by_field("contributors", "run_id", "repo", "date")),
    ),
    "get_ci_log": Said("code under test prints whatever its authors want", ("code",)),
    "list_notifications": Said(
        "the actor writes, in a repository that its owner named; the host numbers, dates and gives the reason",
        each(by_field("people", "notification_id", "number", "reason", "date", "unread")),
    ),
    "fetch_page": Said(
        "whoever has the page writes it, and is told of the visit; the operator names no hosts",
        ("web",),
        True,
        hosts={"url": ()},
    ),
}
