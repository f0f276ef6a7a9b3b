"""Models: what is asked of them, what comes of it, and what is made of what goes wrong. No server but models' own."""
