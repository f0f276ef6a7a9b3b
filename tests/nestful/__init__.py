"""NESTFUL as real input: 254 call sequences written for another project, run as one submission.

`source` reads the data, `convert` makes the submission, `tools` registers its activities (what they answer
is in `answers`), `evaluator` says independently what must come out, and `test_nestful` compares. The data
is not part of this repository.
"""
