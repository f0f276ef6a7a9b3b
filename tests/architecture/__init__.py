"""The pure rules of who may import whom."""
