"""Settings, Celery configuration and the servers: real processes, real Redis, real Celery objects."""
