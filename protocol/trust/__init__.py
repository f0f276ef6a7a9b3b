"""Trust: what others wrote decides nothing that has an effect (SPEC R16).

`flow` says which sources the values that a call reads, and what it writes, came from; `effects` what keeps a call from
starting; `proof` finds both for a plan before it runs.
"""
