"""Which models there are: those of the settings, and functions registered with `@model` (SPEC R13.11).

A `config.model` names one of them, never an address. Nothing is loaded or asked for that.
"""

from __future__ import annotations

from collections.abc import Iterator

from acts_celery.broker_config import ConfiguredModel, Settings
from acts_celery.worker.registry.activities import Registry


def find_model(settings: Settings, name: str | None) -> ConfiguredModel | None:
    """The model of that name among those of the settings, as `KnownModels.find` does."""
    default = settings.default_model
    if name is None:
        return default
    if name in settings.models:
        return settings.models[name]
    return default if default is not None and name in (default.model, default.name) else None


class KnownModels:
    """The models by their names."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self._settings = settings
        self._default = settings.default_model
        self._named = settings.models
        self._registered = registry.models
        self._stand_ins = registry.stand_ins

    def find(self, name: str | None) -> ConfiguredModel | None:
        """The model of that name, by default the one of `ACTS_MODEL`; None where there is none.

        That one goes by `provider:name` and by `name`, too.
        """
        found = self.of_settings(name)
        stand_in = self._stand_ins.get(name) or self._stand_ins.get(None)
        if stand_in is None:
            return found
        model = f"{stand_in}:{name or stand_in}"
        if found is None:
            return ConfiguredModel(model=model)
        others = dict.fromkeys(("base_url", "api_key", "context_tokens", "recording"))
        return found.model_copy(update={"model": model, **others})

    def of_settings(self, name: str | None) -> ConfiguredModel | None:
        """The same, whatever stands in for it."""
        found = find_model(self._settings, name)
        return ConfiguredModel(model=f"{name}:{name}") if found is None and name in self._registered else found

    def fallbacks(self, model: ConfiguredModel) -> Iterator[ConfiguredModel]:
        """What is asked when that model does not answer."""
        yield from filter(None, map(self.find, model.fallbacks))

    def asked(self, name: str | None) -> tuple[ConfiguredModel, ...]:
        """The model of that name, and those that are asked in its stead; none where there is none."""
        found = self.find(name)
        return (found, *self.fallbacks(found)) if found is not None else ()

    def see_pictures(self, name: str | None) -> bool:
        """Whether the model of that name, and all that are asked in its stead, are shown pictures of tools."""
        asked = self.asked(name)
        return bool(asked) and all(model.sees_pictures for model in asked)

    def configured(self) -> Iterator[ConfiguredModel]:
        """Those of the settings."""
        if self._default is not None:
            yield self._default
        yield from self._named.values()

    def __iter__(self) -> Iterator[str]:
        """Every name."""
        if self._default is not None:
            yield self._default.model
        yield from (*self._named, *self._registered)
