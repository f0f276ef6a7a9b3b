"""Schemas: JSON Schema, draft 2020-12, applied to values that may not be known whole (SPEC R4.1, R4.6).

`compilation`   a schema compiled once, and applied to values, to values with expressions, and at paths
`validation`    one schema of a document applied to values, and what is said of those that do not fit
`leniency`      what is wrong for certain while expressions stand for values
`calls`         what a tool's schema says of a call as a whole: of parameters and of meta-properties
`addresses`     where references lead
`dialects`      schemas of older drafts
`walk`          how schemas are gone through: what they apply and refer to, each once
`parts`         what of a schema speaks of which place, and such a part as a schema of its own
`patterns`      regular expressions of ECMA-262, and what they cost
`algebra`       sets of values, as schemas describe them: what two have in common, and whether one covers another
`elsewhere`     checks that are too heavy for the process that asks, and what came of them in another one
`work`          how much a schema can take, read off before it is applied
"""

from .compilation import CompiledSchema, compiled, schema_problem
from .parts import SchemaError, excerpt
from .walk import Schema, conjuncts, referred

__all__ = [
    "CompiledSchema",
    "Schema",
    "SchemaError",
    "compiled",
    "conjuncts",
    "excerpt",
    "referred",
    "schema_problem",
]
