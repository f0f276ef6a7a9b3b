"""JSON Schema, draft 2020-12, for values that may not be known whole (SPEC R4.1, R4.6).

`validation`  compiled schemas, and the problems of a value
`walk`        subschemas and references, each once; patterns and older drafts
`algebra`     schemas as sets of values: intersection and inclusion
`costs`       an upper bound for the time of a validation
"""

from .validation import CompiledSchema, compiled, schema_problem
from .walk import Schema, SchemaError, conjuncts, excerpt, referred

__all__ = ["CompiledSchema", "Schema", "SchemaError", "compiled", "conjuncts", "excerpt", "referred", "schema_problem"]
