"""The Celery backend, from the Lua commit to whole runs: a real server, real workers, nothing mocked."""
