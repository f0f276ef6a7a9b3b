"""The loop: a model is asked, its calls are run, their results are shown to it, it is asked again (SPEC R13).

`loop_runner`    what is done at each stage
`loop_view`      a run as its loop sees it
`loop_requests`  what the next tick asks
`loop_answers`   the steps that come of a model's answers
`ticks`          what an answer comes to, and how it is written down
`repeats`        ticks that come to the same as the one before
`loop_budget`    what a loop takes from its budget
`loop_log`       what a loop runner writes
"""
