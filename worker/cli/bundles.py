"""Options that belong together: a command receives them as one value."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

Command = Callable[..., int]
Decorator = Callable[[Command], Command]


def bundled(name: str, make: Callable[..., object], *options: Decorator) -> Decorator:
    """What gives a command these options, in this order; it receives them as `name`, which `make` makes of them."""

    def of(command: Command) -> Command:
        @wraps(command)
        def with_value(**given: Any) -> int:
            own = {each: given.pop(each) for each in names}
            return command(**given, **{name: make(**own)})

        before = len(getattr(with_value, "__click_params__", ()))
        decorated: Command = with_value
        for option in reversed(options):
            decorated = option(decorated)
        parameters: Any = getattr(decorated, "__click_params__", ())
        names = [parameter.name for parameter in parameters[before:]]
        return decorated

    return of
