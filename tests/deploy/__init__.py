"""What `deploy/` holds, run as far as it can be run without containers."""
