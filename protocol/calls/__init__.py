"""A call: its tool, who runs it, where its result goes, and what a delegate is given (SPEC R4, R5, R9, R14.1).

`call`          one use of a tool
`tools`         what their schemas admit and pin; `output_pins` how an output path may be spelt
`declarations`  those that a document declares
`outputs`       where a result goes, and what message it becomes; `partial_values` what a kind's schema says of it
`trust`         what a tool says of who may decide on it; `operator_trust` what the operator says besides
`delegates`     the context of an isolated sub-request
"""
