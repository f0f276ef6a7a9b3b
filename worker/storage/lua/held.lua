-- What a decision on a held call does. This stands before the scripts that decide (see `scripts.read_script`).

-- Say in the log what becomes of a held call, and mark its lane as published; nothing where it is not held (any more), or
-- held by another entry than the one that was `shown`, where that is given.
--
-- keys: log, lanes, calls, held, published (see advance.lua)    ruling msgpack    due when the lane's task counts as lost, in
-- ms; 0 where it is not published since the run is paused    who msgpack, who has decided (see audit.py)
-- Returns the id of the entry, or nil.
local function decide(keys, member, ruling, who, due, shown)
    local entry = redis.call('HGET', keys.calls, member)
    if not entry or not string.find(entry, '^held:') or (shown and entry ~= 'held:0:0:' .. shown) then
        return nil
    end
    local lane, call = string.match(member, '^(.*)\31([^\31]*)$')
    local id = append_entry(keys.log, keys.lanes, lane, 'c', call, 'j', ruling, 'w', who)
    redis.call('HSET', keys.calls, member, 'decided:0:0:' .. id)
    redis.call('ZREM', keys.held, member)
    redis.call('ZADD', keys.published, due, lane)
    return id
end
