"""An agent of six tools as the documentation of agent libraries writes them: pydantic models with defaults inside of
each other, unions, dates, enums, docstrings with sections. What providers are sent of it is held against their rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Any, Final, Literal, NotRequired

from pydantic import BaseModel, Field
from typing_extensions import TypedDict  # from `typing` with Python 3.12 and later

from acts_celery import activity

ACTIVITIES: Final = __name__


class Priority(Enum):
    """How soon something has to be done."""

    LOW = "low"
    NORMAL = "normal"
    URGENT = "urgent"


class Address(BaseModel):
    """Where something is sent."""

    street: str
    city: str
    country: str = Field("DE", description="Two letters, as ISO 3166 has them.", pattern="^[A-Z]{2}$")


class Customer(BaseModel):
    """Who orders."""

    name: str
    email: str | None = None
    address: Address | None = Field(None, description="Left out where nothing is sent.")


@dataclass
class Item:
    """One line of an order."""

    sku: str
    quantity: int = 1


class Filters(TypedDict):
    """What is looked for."""

    text: str
    before: NotRequired[date]


class Card(BaseModel):
    """Paid by card."""

    kind: Literal["card"] = "card"
    number: str


class Invoice(BaseModel):
    """Paid later."""

    kind: Literal["invoice"] = "invoice"
    days: int = 14


class Order(BaseModel):
    """An order as it is kept."""

    id: str
    total: float
    delivery: date


@activity
def find_customer(name: str, filters: Filters | None = None) -> Customer:
    """Find a customer by name.

    Args:
        name: The customer's full name.
        filters: Narrows the search.
    """
    return Customer(name=name, email="ann@example.org")


@activity
def search_orders(
    customer: Customer, since: date | None = None, status: list[Literal["open", "sent", "paid"]] | None = None
) -> list[Order]:
    """List the orders of a customer, the newest first.

    Args:
        customer: Who ordered.
        since: The first day that counts.
        status: Only orders of one of these.
    """
    return [Order(id="A-7", total=30.0, delivery=date(2026, 3, 1))]


@activity
def place_order(
    customer: Customer, items: list[Item], payment: Card | Invoice, delivery: date, priority: Priority = Priority.NORMAL
) -> Order:
    """Place an order. It cannot be changed afterwards.

    Args:
        customer: Who orders.
        items: What is ordered, one line for each article.
        payment: How it is paid.
        delivery: The day of delivery.
        priority: How soon it is packed.
    """
    return Order(id="A-8", total=10.0 * sum(item.quantity for item in items), delivery=delivery)


@activity
def refund(order_id: str, amount: float | None = None, reason: str = "") -> float:
    """Refund an order, in whole or in part. Cannot be undone.

    Args:
        order_id: The order's id.
        amount: How much, in euros; the whole order where it is left out.
        reason: Shown to the customer.
    """
    return amount or 30.0


@activity
def add_note(order_id: str, note: dict[str, Any], tags: list[str] | None = None) -> None:
    """Keep a note of any shape with an order."""


@activity
def send_email(to: str, subject: str, body: str, attachments: Mapping[str, int | str] | None = None) -> bool:
    """Send an e-mail to a customer.

    Args:
        to: The address.
        subject: One line.
        body: Plain text.
        attachments: From the name of each file to its size in bytes, or its address.
    """
    return True


NAMES: Final = ("find_customer", "search_orders", "place_order", "refund", "add_note", "send_email")
REQUEST: Final[dict[str, Any]] = {
    "context": [{"type": "input", "question": "Ann Lee wants two of T-1 on March 3rd, by invoice. Tell her."}],
    "schema": {"type": "string", "description": "What is said to who asks."},
    "tools": list(NAMES),
}
"""What the agent is asked."""
CALLS: Final[list[dict[str, Any]]] = [
    {"_tool": "find_customer", "name": "Ann Lee", "_outputPath": "†state.customer"},
    {
        "_tool": "place_order",
        "customer": "†state.customer",
        "items": [{"sku": "T-1", "quantity": 2}],
        "payment": {"kind": "invoice", "days": 30},
        "delivery": "2026-03-03",
        "priority": "urgent",
        "_outputPath": "†state.order",
    },
    {"_tool": "search_orders", "customer": "†state.customer", "status": ["open"], "_outputPath": "†state.orders"},
    {"_tool": "refund", "order_id": "†state.orders.0.id", "amount": 1.5, "_outputPath": "†state.refunded"},
    {"_tool": "add_note", "order_id": "†state.order.id", "note": {"by": {"phone": True}}, "tags": ["vip"]},
    {
        "_tool": "send_email",
        "to": "†state.customer.email",
        "subject": "Your order †{state.order.id}",
        "body": "It costs †{state.order.total} EUR.",
        "attachments": {"terms.pdf": 2048},
        "_outputPath": "†state.sent",
    },
]
"""Calls of each of them, as a model would write them in one answer."""
OUTPUT: Final = "Ann has ordered †{state.order.id}."
EXPECTED: Final = "Ann has ordered A-8."
"""The output, as it was written in the tick behind those calls and as it is."""
