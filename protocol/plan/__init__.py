"""A checked submission, and the graph of its calls (SPEC R6, R7.1, R8.3a, R10).

`documents`   the JSON or msgpack of a file
`submission`  reading a submission
`checking`    every structural error of a submission, at once
`config`      settings of a submission
`support`     what this version of the backend cannot run
`checked_plan`  the order and the lanes that a check has found
`graph`       which call waits for which
`waits`       what a call waits for, by what the context holds
`places`      where a reader may find a value, and near misses
`lanes`       the calls of each instance
`additions`   messages and amendments for a submission that runs
"""
