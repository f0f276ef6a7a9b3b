"""Black-box tests: the `acts` command as a stranger meets it, run as a subprocess and judged by its words."""
