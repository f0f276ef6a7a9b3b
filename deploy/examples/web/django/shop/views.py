import json
from collections.abc import Callable
from functools import cache

from django.db import transaction
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_POST

from acts_celery import Client, InfrastructureError, Rejected

from .models import Order

PLAN = {
    "calls": [
        {"_tool": "price", "order": "†input.order", "_outputPath": "†state.price"},
        {"_tool": "write_letter", "order": "†input.order", "euros": "†state.price", "_outputPath": "†state.written"},
    ]
}


@cache
def client() -> Client:  # one for the process, made after a server such as gunicorn has forked; threads may share it
    return Client()


class OrderForm(ModelForm):
    class Meta:
        model = Order
        fields = ("name", "item")


@require_POST
def place(request: HttpRequest) -> JsonResponse:
    form = OrderForm(json.loads(request.body))
    if not form.is_valid():
        return JsonResponse({"errors": form.errors}, status=400)
    with transaction.atomic():
        order = form.save()
        transaction.on_commit(lambda: submit(order))  # a worker may look for the row at once
    return JsonResponse({"order": order.pk}, status=202)


def submit(order: Order) -> None:
    client().submit([{"type": "input", "input": {"order": order.pk}}], PLAN, id=order.run, name="order")


def look(_: HttpRequest, number: int) -> JsonResponse:
    order = get_object_or_404(Order, pk=number)
    return JsonResponse({"order": number, "letter": order.letter, "status": client().run(order.run).status()["status"]})


class Refusals:
    """Answers what acts-celery refuses."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, _: HttpRequest, error: Exception) -> HttpResponse | None:
        if isinstance(error, Rejected):
            errors = [{"pointer": one.pointer, "message": one.message} for one in error.errors]
            return JsonResponse({"title": "This order cannot run", "status": 422, "errors": errors}, status=422)
        if isinstance(error, InfrastructureError):
            return JsonResponse({"title": "Try again soon"}, status=503, headers={"Retry-After": "2"})
        return None
