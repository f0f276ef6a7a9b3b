"""Schemas: JSON Schema, draft 2020-12, applied to values that may not be known whole (SPEC R4.1, R4.6).

`compilation`     a schema compiled once, and applied strictly, leniently or in part; `excerpts` a part made a whole
`keywords`        what they mean for a value that holds expressions, or still grows: `growth`
`bounds`          keywords that cannot take for ever, counted in `steps`
`patterns`        regular expressions of ECMA-262: their `dialect`, and their `widths`
`unevaluated`     what no other keyword has spoken of
"""

from .compilation import (
    CompiledSchema,
    Schema,
    check_references,
    compiled,
    joined,
    referred,
    schema_problem,
)

__all__ = ["CompiledSchema", "Schema", "check_references", "compiled", "joined", "referred", "schema_problem"]
