"""What an error says beyond the fact that something is wrong (SPEC R7.1).

`explanations`  adds hints to problems
`remedies`      what is to be added where nothing brings a value
"""
