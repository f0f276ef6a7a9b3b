"""What is shared among runs, so that a large one does not keep a small one waiting.

`fair_semaphore`   so many at a time, shared fairly among keys
`fair_scheduling`  the event loop
`lane_admission`   the places of a worker
`quarantine`       calls that their workers may have died of begin one at a time
"""
