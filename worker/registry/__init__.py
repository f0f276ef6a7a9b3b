"""What user code is known: activities, delegates, functions that are models.

`activities`           registering code
`docstrings`           what a function says of itself, in words
`signatures`           the schema of what a function takes
`versions`             the version of code
`loading`              loading the modules that register
`request_definitions`  delegates that are JSON files
`addresses`            which web addresses may name one
`remote_definitions`   fetching one from there
"""
