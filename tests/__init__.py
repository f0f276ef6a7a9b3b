"""Tests, by layer: each folder says what it runs against."""
