"""What a page shows of runs, as JSON, and one run as one file.

`page`          which question has which answer: the one entry
`opened`        a run, opened for one question
`tally`         the log of a run, counted call by call
`overview`      a run at a glance, the list of the runs, what is held
`audit`         who did what to a run
`plan`          the calls in layers, with counts
`layers`        which layer a call is in, and where in it
`drawing`       the plan as SVG
`instances`     instances of a run, of a call, and one as a run of its own
`places`        a value: its writers, readers, and where it came from
`moments`       the log for the values of any moment
`conversation`  a loop
`sent`          what a call was given
`document`      one run as one file
`values`        how much of a value is shown
"""

from .page import Page

__all__ = ["Page"]
