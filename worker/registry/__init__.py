"""What user code is known: activities, delegates, functions that are models.

`activities`           registering code
`docstrings`           what a function says of itself, in words
`signatures`           the schema of what a function takes
`trust`                what a tool says of who may decide
`operator_trust`       what the operator says besides, in a file
`versions`             the version of code
`loading`              loading the modules that register
`request_definitions`  delegates that are JSON files
`addresses`            which web addresses may name one
`remote_definitions`   fetching one from there
"""
