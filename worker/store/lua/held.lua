-- What a decision on a held call does.
--
-- KEYS: calls held published
-- USES: lanes condition

-- Say in the log what becomes of a held call, and mark its lane as published; nothing where it is not held (any more), or
-- held by another entry than the one that was `shown`, where that is given.
--
-- ruling msgpack    who msgpack, who has decided (see audit.py)    due when the lane's task counts as lost, in ms; 0 where
-- it is not published since the run is paused
-- Returns the id of the entry, or nil.
local function decide(member, ruling, who, due, shown)
    local kind, attempt, failures, snapshot = read_condition(redis.call('HGET', calls, member))
    if kind ~= 'held' or (shown and snapshot ~= shown) then
        return nil
    end
    local lane, call = string.match(member, '^(.*)\31([^\31]*)$')
    local id = append_entry(lane, 'c', call, 'decided', ruling, 'audit', who)
    redis.call('HSET', calls, member, condition('decided', attempt, failures, id))
    redis.call('ZREM', held, member)
    redis.call('ZADD', published, due, lane)
    return id
end
