"""The pages of runs, live: a web server that reads the log and steers runs (extra of the same name).

It has no data of its own. What it shows are the answers of `acts_celery.worker.page`, what it does are methods of the
client. Who enters, and what holds for every request, is in `acts_celery.worker.web`.

- `following` one reader of the log for all who look at one run
- `streams` server-sent events for one viewer
- `deeds` what can be done to a run, and the right that it takes
- `application` the routes
- `serving` the server, from its socket to its end
"""
