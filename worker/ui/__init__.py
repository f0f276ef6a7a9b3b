"""The pages of runs, live: a web server that reads the log and steers runs (extra of the same name).

It has no data of its own. What it shows are the answers of `acts_celery.worker.ui`, what it does are methods of the
client. Who enters, and what holds for every request, is in `acts_celery.worker.ui`.

- `following` one reader of the log for all who look at one run
- `streams` server-sent events for one viewer
- `deeds` what can be done to a run, and the right that it takes
- `application` the routes
- `serving` the server, from its socket to its end

`page`         which question has which answer: the one entry
`opened`       a run, opened for one question
`drawing`      the plan as SVG
`instances`    instances of a run, of a call, and one as a run of its own
`sent`         what a call was given
`access`       who enters, by which token, and what that admits
`application`  the front and its assets, the answers, what follows a run, and the deeds
`following`    one reader of the log for all who look at one run
`server`       from its socket to its end
"""

from __future__ import annotations

from acts_celery.worker.ui.page import Page

__all__ = ["Page"]
