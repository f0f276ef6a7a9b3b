"""What one can write: references and expressions, messages, paths through values; limits, and errors (SPEC R1, R2).

`errors`      what can go wrong, as one small tree
`references`  the grammar of `†state.user.id || †input.id`
`templates`   texts with values in them: `Dear †{state.user.name}`
`paths`       walking values along a path
`messages`    what a message carries
`files`       the parts of chat messages that name a file
`limits`      how large a submission may be
`visible`     characters that cannot be seen, as escapes
`spelling`    the known name that an unknown one was probably meant to be
"""
