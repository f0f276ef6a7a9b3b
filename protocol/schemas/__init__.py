"""Schemas: JSON Schema, draft 2020-12, applied to values that may not be known whole (SPEC R4.1, R4.6).

`compilation`     a schema compiled once, and applied strictly, leniently or in part
`parts`           what of a schema speaks of which place
`addresses`       where references lead; `excerpts` a part made a whole, with what those lead to
`keywords`        what they mean for a value that holds expressions, or still grows: `growth`
`calls`           what they say of a call as a whole: of parameters and of meta-properties
`bounds`          keywords that cannot take for ever, counted in `steps`
`patterns`        regular expressions of ECMA-262: their `dialect`, and their `widths`
`unevaluated`     what no other keyword has spoken of
`wording`         what is said of a value that does not fit; `secrecy` of one that may not be shown
"""

from .compilation import CompiledSchema, check_references, compiled, schema_problem
from .parts import Schema, joined, referred

__all__ = ["CompiledSchema", "Schema", "check_references", "compiled", "joined", "referred", "schema_problem"]
