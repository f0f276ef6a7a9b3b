"""What can be said of a valid submission without running it (SPEC R6.7, R11.2).

`simulation`  a run on made-up results: `sample_values` of the `demanded_shapes`
`cost`        how much a run takes
`drawing`     the graph as Mermaid
`visibility`  who can see what
`reach`       what a model can do by a request
`provenance`  which messages a value came from
`deployment`  which calls of runs under way will be refused by code that is to come; most by their `plain_parameters`
`analyse`     what speaks against a valid submission, as `finding`s with the codes of the `catalogue`
    order     `order` of the calls in all `worlds` of the `lane_views`: `order_races` by the `order_effects` of writes,
              and `order_switches` that keep readers apart
    values    `values` that misfit and `fields` that are not there, by `type_flow` and the algebra of schemas
    texts     `texts` and `surroundings` of the calls
    trust     `trust`: what others wrote and what would decide by it
"""
