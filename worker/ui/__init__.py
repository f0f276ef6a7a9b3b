"""The pages of runs, live: a web server that reads the log and steers runs (extra of the same name).

It has no data of its own. What it shows are the answers of `acts_celery.worker.page`, what it does are methods of the
client. Nothing outside of this folder imports starlette or uvicorn.

- `refusals` what is refused, and with which status of HTTP
- `access` who enters, by which token, and what that admits
- `guard` what holds for every request: host, origin, token, security headers
- `reading` answers, made in threads, a bounded number of them for each run
- `following` one reader of the log for all who look at one run
- `streams` server-sent events for one viewer
- `deeds` what can be done to a run, and the right that it takes
- `application` the routes
- `connections` deadlines for requests that do not come, and for clients that do not read
- `serving` the server, from its socket to its end
"""
