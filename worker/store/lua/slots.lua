-- Slots: how many calls of a name may be at work at a time, over all runs and workers. A call that gets none waits; who
-- gives one back hands it on to the next. Runs take turns; within a run, who came first is first.
--
-- The key is a hash: name -> its limit. The other keys are derived from this one and share its hash tag:
--      <limits>:holders:<name>             zset   calls that hold a slot -> since when, in ms
--      <limits>:turns:<name>               list   runs that have calls waiting, the next one first
--      <limits>:waiting:<name>\31<run>     zset   those calls -> since when, in ms
-- A call is "<run>\31<lane>\31<index>".
--
-- KEYS: limits
-- USES: common
-- Request: drop (pairs of name and run: nothing of that run waits for that name any more), release (pairs of name and call),
--          acquire: {call, run, names (pairs of name and limit)}
-- Answer: granted (for each call wanted whether it holds a slot of every name it needs; else it waits for one), handed
--         (calls that waited and were given a slot: their lanes are to be published)

local handed, touched = {}, {}

local function key(what, ...)
    return table.concat({ limits, what, table.concat({ ... }, '\31') }, ':')
end

local function give_back(name, call)
    redis.call('ZREM', key('holders', name), call)
    touched[name] = true
end

local function is_free_for(name, limit, call)
    local holders = key('holders', name)
    return redis.call('ZSCORE', holders, call)
        or (redis.call('ZCARD', holders) < limit and redis.call('EXISTS', key('turns', name)) == 0)
end

-- A call holds the slots of all its names or none: one that waits takes no room.
local function acquire(wanted)
    local occupied
    for _, pair in ipairs(wanted.names) do
        redis.call('HSET', limits, pair[1], pair[2])
        if not is_free_for(pair[1], pair[2], wanted.call) then
            occupied = occupied or pair[1]
            touched[pair[1]] = true -- its limit may have been raised
        end
    end
    for _, pair in ipairs(wanted.names) do
        if occupied then
            give_back(pair[1], wanted.call)
        else
            redis.call('ZADD', key('holders', pair[1]), 'NX', now, wanted.call)
        end
    end
    if occupied then
        local waiting = key('waiting', occupied, wanted.run)
        if redis.call('EXISTS', waiting) == 0 then
            redis.call('RPUSH', key('turns', occupied), wanted.run)
        end
        redis.call('ZADD', waiting, 'NX', now, wanted.call)
    end
    return not occupied
end

local function hand_on(name)
    local holders, turns = key('holders', name), key('turns', name)
    local limit = tonumber(redis.call('HGET', limits, name) or 0)
    while redis.call('ZCARD', holders) < limit do
        local run = redis.call('LPOP', turns)
        if not run then
            break
        end
        local waiting = key('waiting', name, run)
        local call = redis.call('ZPOPMIN', waiting)[1]
        redis.call('ZADD', holders, now, call)
        handed[#handed + 1] = call
        if redis.call('EXISTS', waiting) == 1 then
            redis.call('RPUSH', turns, run)
        end
    end
    if redis.call('EXISTS', holders, turns) == 0 then
        redis.call('HDEL', limits, name)
    end
end

for _, pair in ipairs(request.drop) do
    redis.call('LREM', key('turns', pair[1]), 0, pair[2])
    redis.call('UNLINK', key('waiting', pair[1], pair[2]))
    touched[pair[1]] = true
end
for _, pair in ipairs(request.release) do
    give_back(pair[1], pair[2])
end
local granted = {}
for i, wanted in ipairs(request.acquire) do
    granted[i] = acquire(wanted)
end
for name in pairs(touched) do
    hand_on(name)
end
return cmsgpack.pack({ granted = granted, handed = handed })
