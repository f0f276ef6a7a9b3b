"""What an error says beyond the fact that something is wrong (SPEC R7.1).

`explanations`     adds hints to problems
`suggestions`      the nearest place that a reader sees
`views`            what a reader may come to see
`missing_dagger`   paths that lack their dagger
"""
