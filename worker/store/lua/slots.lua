-- Slots: how many calls of a name may be at work at a time, or begin within a time, over all runs and workers. A call that
-- gets none waits; who gives one back hands it on to the next. Runs take turns; within a run, who came first is first.
--
-- A slot of a rate is held from when it is granted until its call is known to have begun, and counts for as long as the
-- window is after that: so no more begin in any window than there are slots, however long it takes until they do.
--
-- The key is a hash: name -> its limit, of a rate `<limit>/<window in ms>`. The other keys are derived from this one and
-- share its hash tag:
--      <limits>:holders:<name>             zset   calls that hold a slot -> since when, in ms
--      <limits>:begun:<name>               zset   of a rate: who has begun within the window -> when at the latest, in ms
--      <limits>:turns:<name>               list   runs that have calls waiting, the next one first
--      <limits>:waiting:<name>\31<run>     zset   those calls -> since when, in ms
--      <limits>:due                        zset   rates for which calls wait -> when the next one may begin, in ms
--      <limits>:keys                       hash   calls that hold, or wait for, slots of a key -> the end of those names
-- A call is "<run>\31<lane>\31<index>".
--
-- KEYS: limits
-- USES: common
-- Request: drop (pairs of name and run: nothing of that run waits for that name any more), release ({name, call, has_begun}:
--          the call gives back a slot; a name that ends in \31 has the call's key behind it), forget (calls of which no key is to be kept), acquire: {call, run, key
--          ("" for none), names ({name, limit, window; 0 where it is no rate})}, due (at how many rates that are due to look)
-- Answer: granted (for each call wanted whether it holds a slot of every name it needs; else it waits for one), handed
--         (calls that waited and were given a slot: their lanes are to be published), due_ms (in how many ms the next call
--         that waits for a rate of those named here may begin; -1 where none does)

local due, keys = limits .. ':due', limits .. ':keys'
local handed, touched = {}, {}
local due_ms, noted = -1, 0

local function key(what, ...)
    return table.concat({ limits, what, table.concat({ ... }, '\31') }, ':')
end

-- The limit of a name, and the window of a rate, else 0.
local function limit_of(name)
    local most, window = string.match(redis.call('HGET', limits, name) or '0', '^(%d+)/?(%d*)$')
    return tonumber(most or 0), tonumber(window or '') or 0
end

-- How many slots of a name are free, and how many calls have begun within the window.
local function count_free(name, most, window)
    local free = most - redis.call('ZCARD', key('holders', name))
    if window == 0 then
        return free, 0
    end
    local begun = key('begun', name)
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', begun, '(' .. as_text(now), '+inf')) do
        redis.call('ZADD', begun, now, member) -- noted before the clock was set back
    end
    redis.call('ZREMRANGEBYSCORE', begun, '-inf', '(' .. as_text(now - window))
    local recent = redis.call('ZCARD', begun)
    return free - recent, recent
end

local function give_back(name, call, has_begun)
    local was_held = redis.call('ZREM', key('holders', name), call) == 1
    local _, window = limit_of(name)
    touched[name] = true
    if was_held and window > 0 and has_begun then
        local begun = key('begun', name)
        noted = noted + 1
        redis.call('ZADD', begun, now, table.concat({ clock[1], clock[2], noted }, '.'))
        redis.call('PEXPIRE', begun, window + 1000)
    end
end

local function is_free_for(name, most, window, call)
    return redis.call('ZSCORE', key('holders', name), call)
        or (redis.call('EXISTS', key('turns', name)) == 0 and count_free(name, most, window) > 0)
end

-- A call holds the slots of all its names or none: one that waits takes no room.
local function acquire(wanted)
    local occupied
    for _, named in ipairs(wanted.names) do
        local name, most, window = unpack(named)
        redis.call('HSET', limits, name, window > 0 and most .. '/' .. window or most)
        if not is_free_for(name, most, window, wanted.call) then
            occupied = occupied or name
            touched[name] = true -- its limit may have been raised
        end
    end
    if wanted.key ~= '' then
        redis.call('HSET', keys, wanted.call, wanted.key)
    end
    for _, named in ipairs(wanted.names) do
        if occupied then
            give_back(named[1], wanted.call, false)
        else
            redis.call('ZADD', key('holders', named[1]), 'NX', now, wanted.call)
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

-- Note when the next call may begin that waits for a rate of which no slot is free: the oldest of those begun make room
-- then. Where too few have begun, one that holds a slot is waited for.
local function note_due(name, window, free, recent)
    local place = 0 - free -- -0 would be no index
    if window == 0 or redis.call('EXISTS', key('turns', name)) == 0 or recent <= place then
        redis.call('ZREM', due, name)
        return
    end
    local makes_room = redis.call('ZRANGE', key('begun', name), place, place, 'WITHSCORES')[2]
    local at = tonumber(makes_room) + window + 1
    redis.call('ZADD', due, at, name)
    due_ms = due_ms < 0 and at - now or math.min(due_ms, at - now)
end

local function hand_on(name)
    local holders, turns = key('holders', name), key('turns', name)
    local most, window = limit_of(name)
    local free, recent = count_free(name, most, window)
    while free > 0 do
        local run = redis.call('LPOP', turns)
        if not run then
            break
        end
        local waiting = key('waiting', name, run)
        local call = redis.call('ZPOPMIN', waiting)[1]
        redis.call('ZADD', holders, now, call)
        handed[#handed + 1] = call
        free = free - 1
        if redis.call('EXISTS', waiting) == 1 then
            redis.call('RPUSH', turns, run)
        end
    end
    note_due(name, window, free, recent)
    if redis.call('EXISTS', holders, turns) == 0 then
        redis.call('HDEL', limits, name)
    end
end

for _, pair in ipairs(request.drop) do
    local waiting = key('waiting', pair[1], pair[2])
    redis.call('LREM', key('turns', pair[1]), 0, pair[2])
    for _, call in ipairs(redis.call('ZRANGE', waiting, 0, -1)) do
        redis.call('HDEL', keys, call)
    end
    redis.call('UNLINK', waiting)
    touched[pair[1]] = true
end
for _, released in ipairs(request.release) do
    local name, call, has_begun = unpack(released)
    if string.sub(name, -1) == '\31' then
        name = name .. (redis.call('HGET', keys, call) or '')
    end
    give_back(name, call, has_begun)
end
for _, call in ipairs(request.forget) do
    redis.call('HDEL', keys, call)
end
local granted = {}
for i, wanted in ipairs(request.acquire) do
    granted[i] = acquire(wanted)
end
if request.due > 0 then
    for _, name in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, request.due)) do
        touched[name] = true
    end
end
for name in pairs(touched) do
    hand_on(name)
end
return cmsgpack.pack({ granted = granted, handed = handed, due_ms = due_ms })
