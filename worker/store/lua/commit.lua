-- One commit of a lane: append the outcomes of calls to the log, claim the calls that come next, end the run with its
-- last call. All of it or nothing, and an outcome only once, however often it is delivered. While a run is paused, outcomes
-- come in and nothing is claimed; once it is over, nothing is written any more.
--
-- USES: commit_step commit_outcomes commit_claims commit_holds commit_writing commit_leaving
-- Request: lane, seen (the id of the lane's last entry that the caller has read), status (of the run as the caller has read
--          it, where another one is news; else nil), owner (the driver; what it has claimed already it gets again: a script
--          whose answer was lost is sent twice), born (when the run was submitted that the caller has read, or nil)
-- Answer: status (of the run; "gone" where there is none, or another one has its id), last and global (the ids of the last entries of the lane and of
--         the global one), fresh (whether the caller had seen all of the lane before this commit), queued (how many lanes
--         lie in the queue with those that are woken)

return cmsgpack.pack({
    status = status,
    last = last,
    global = global_id,
    fresh = fresh,
    accepted = accepted,
    claims = claims,
    held = holds,
    failures = failed,
    repeated = repeated,
    woken = woken,
    queued = #woken > 0 and redis.call('ZCARD', published) or 0,
    due = due,
})
