"""What is handed in, and everything that is known of it before anything runs (SPEC R7.1, R10).

`submission`  reading it
`checking`    finding all structural errors
`layout`      what a check has found out, and the order that follows from it
`amendments`  other calls for a run under way
"""
