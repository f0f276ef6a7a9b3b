"""How many examples the properties get: enough to find things, few enough for every day.

`pytest --hypothesis-profile=thorough tests/protocol` looks harder.
"""

from hypothesis import HealthCheck, settings

_UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])

settings.register_profile("everyday", _UNHURRIED, max_examples=100)
settings.register_profile("thorough", _UNHURRIED, max_examples=1_500)
if settings.get_current_profile_name() in ("default", "ci"):
    settings.load_profile("everyday")
