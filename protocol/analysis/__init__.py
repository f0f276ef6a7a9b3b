"""What can be said of a valid submission without running it (SPEC R6.7, R11.2).

`simulation`     a run on made-up results: `sample_values` of the `demanded_shapes`
`visibility`     who can see what
`provenance`     which messages a value came from
`deployment`     which calls of runs under way will be refused by code that is to come; most by their
                 `plain_parameters`
`analyse`        what speaks against a valid submission, as `finding`s with the codes of the `catalogue` order `order`
                 of the calls in all `worlds` of the `lane_views`: `order_races` by the `order_effects` of writes, and
                 `order_switches` that keep readers apart values `values` that misfit and `fields` that are not there,
                 by `type_flow` and the algebra of schemas texts `texts` and `surroundings` of the calls trust
                 `trust`: what others wrote and what would decide by it
`findings`       what is worth knowing of a valid submission and is no error
`order`          what comes out differently, or never, by how calls are ordered
`sample_values`  the simplest value that a JSON Schema describes, always the same one
`surroundings`   scopes, tools, settings, messages and output paths that do not do what they seem to
`type_flow`      what may stand at a place for one reader, by what its writers promise
`values`         what a call reads and its tool can never take, or writes and a kind never admits
`worlds`         all the ways in which the calls that a lane sees can turn out
"""
