"""The page of a run, in Chromium."""
