"""Who waits for whom (SPEC R6, R8.3a, R10).

`graph`       the waits of the calls of one lane
`places`      where readers may find anything, and which place a misspelt one was meant to be
`waits`       what calls wait for, by what the context holds
`lanes`       the calls of a submission, by instance
`submission`  reading it
`config`      its settings
`checking`    finding all structural errors: `reading_calls`, then all calls together
`layout`      what a check has found out, and the order that follows from it
`support`     what of it a backend of this version cannot do yet
`additions`   data messages for one
"""

from __future__ import annotations
