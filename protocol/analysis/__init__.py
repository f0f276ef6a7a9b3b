"""Analysis of a valid submission without running it (SPEC R6.7, R11.2).

`findings`       a finding, and the catalogue of their codes
`order`          calls whose results depend on which ends first, and calls that never run
`order_cases`    all the ways in which the calls that a lane sees can turn out
`type_flow`      which types a reader may meet, by what its writers promise
`values`         values that a call reads or writes and a schema refuses
`lint_rules`     scopes, tools, settings and texts that have no effect, or another than they seem to have
`visibility`     which reader sees which place
`provenance`     which messages a value came from
`simulation`     a run on made-up results
`sample_values`  the simplest value that a schema admits
`deployment`     calls of runs under way that new code would refuse, and the cost of a run
"""
