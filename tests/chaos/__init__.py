"""Chaos: real processes, a real server, faults between and under them, and an audit of what is left behind.

`workload` writes submissions and knows what must come of them; `site` holds the server, the proxy and the workers;
`faults` are what goes wrong; `auditor` compares what the log holds with what it must hold; `report` counts.
`rounds` puts them together: a round is one site's workload under some faults, and the audit after it.
"""
