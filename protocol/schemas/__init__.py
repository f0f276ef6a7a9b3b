"""Schemas: JSON Schema, draft 2020-12, applied to values that may not be known whole (SPEC R4.1, R4.6).

`validation`  one schema of a document applied to values, and what is said of those that do not fit
`walk`        how schemas are gone through: what they apply and refer to, each once
`algebra`     sets of values, as schemas describe them: what two have in common, and whether one covers another
`costs`       how much a schema can take at most, read off the schema and the size of a value alone
"""

from acts_celery.protocol.schemas.validation import CompiledSchema, compiled, schema_problem
from acts_celery.protocol.schemas.walk import SchemaError, excerpt

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
