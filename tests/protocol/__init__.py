"""The pure core: each rule of SPEC.md has tests that cite it, the laws are property-tested, and a naive evaluator of
its own is the judge of whole runs."""
