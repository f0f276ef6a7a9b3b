"""Everything that touches the world: the Celery application, the log, the client, the command line.

What users import is named in `acts_celery`.
"""
