"""The pages of runs: a web server that reads the log and steers runs (extra ui).

`api`          the HTTP API, and the server of it all
`api_models`   what it takes and answers, as OpenAPI says it
`application`  the pages, and streams that follow a run
`server`       the server, from its socket to its end
`file`         a run as one HTML file
`access`       tokens, rights and refusals
`page`         which question has which answer
`opened`       a run, opened for one question
`instances`    instances and calls
`sent`         what a call was given, and the plan
`drawing`      the plan as SVG
"""

from __future__ import annotations

from .page import Page

__all__ = ["Page"]
