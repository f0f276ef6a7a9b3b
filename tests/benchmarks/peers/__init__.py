"""The same jobs on other systems, each in the way in which its own introduction does them.

They run in an environment of their own (`tests.benchmarks.environment`), in which nothing of ours is installed.
"""
