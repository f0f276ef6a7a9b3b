-- Slots: how many calls of a name may be at work at a time, or begin within a time, over all runs and workers. A call that
-- gets none waits; who gives one back hands it on to the next. Runs take turns; within a run, who came first is first.
--
-- A slot of a rate is held from when it is granted until its call is known to have begun, and counts for as long as the
-- window is after that: so no more begin in any window than there are slots, however long it takes until they do.
--
-- A rate may limit tokens, too. Then a call has a weight, the tokens that it may take: as many are taken from when its
-- slot is granted. When it has begun it counts with what it has taken, where that is known.
--
-- The key is a hash: name -> its limit, of a rate `<limit>/<window in ms>`, and `/<tokens>` where these are limited. The
-- other keys are derived from this one and share its hash tag:
--      <limits>:holders:<name>             zset   calls that hold a slot -> since when, in ms
--      <limits>:begun:<name>               zset   of a rate: who has begun within the window -> when at the latest, in ms;
--                                                 a member ends in `:<its tokens>` where these are limited
--      <limits>:spent:<name>               text   the sum of these tokens
--      <limits>:weights:<name>             hash   calls that hold a slot or wait -> their tokens; "" -> the sum of those that
--                                                 hold one
--      <limits>:turns:<name>               list   runs that have calls waiting, the next one first
--      <limits>:waiting:<name>\31<run>     zset   those calls -> since when, in ms
--      <limits>:due                        zset   rates for which calls wait -> when the next one may begin, in ms
--      <limits>:keys                       hash   calls that hold, or wait for, slots of a key -> the end of those names
-- A call is "<run>\31<lane>\31<index>".
--
-- KEYS: limits
-- USES: common
-- Request: drop (pairs of name and run: nothing of that run waits for that name any more), release ({name, call, has_begun,
--          tokens (that it has taken; -1 where nobody knows), ago (how many ms ago it has begun at the latest)}:
--          the call gives back a slot; a name that ends in \31 has the call's key behind it), forget (calls of which no key is to be kept), acquire: {call, run, key
--          ("" for none), lost (whether an attempt was lost that may have begun),
--          names ({name, limit as above, weight})}, due (at how many rates that are due to look)
-- Answer: granted (for each call wanted whether it holds a slot of every name it needs; else it waits for one), handed
--         (calls that waited and were given a slot: their lanes are to be published), due_ms (in how many ms the next call
--         that waits for a rate of those named here may begin; -1 where none does)

local due, keys = limits .. ':due', limits .. ':keys'
local handed, touched = {}, {}
local due_ms, noted = -1, 0

local function key(what, ...)
    return table.concat({ limits, what, table.concat({ ... }, '\31') }, ':')
end

-- The limit of a name: the slots, the window of a rate, else 0, and how many tokens may be taken in it, 0 for any number.
local function limit_of(name)
    local most, window, tokens = string.match(redis.call('HGET', limits, name) or '0', '^(%d+)/?(%d*)/?(%d*)$')
    return { most = tonumber(most or 0), window = tonumber(window or '') or 0, tokens = tonumber(tokens or '') or 0 }
end

-- The tokens of one that has begun.
local function tokens_of(member)
    return tonumber(string.match(member, ':(%d+)$') or 0)
end

local function weight_of(name, call)
    return tonumber(redis.call('HGET', key('weights', name), call) or 0)
end

-- Count a call in or out of the tokens of those that hold a slot.
local function weigh(name, tokens)
    redis.call('HINCRBY', key('weights', name), '', as_text(tokens))
end

-- How many tokens of a rate are free, where those that are `gone` have just left its window, and some are in it still.
local function count_free_tokens(name, limit, recent, gone)
    local spent, tokens = key('spent', name), 0
    for _, member in ipairs(gone) do
        tokens = tokens + tokens_of(member)
    end
    if recent == 0 then
        redis.call('DEL', spent)
    elseif tokens > 0 then
        redis.call('DECRBY', spent, as_text(tokens))
    end
    return limit.tokens - weight_of(name, '') - tonumber(redis.call('GET', spent) or 0)
end

-- How many slots of a name are free, how many calls have begun within the window, and how many tokens are free.
local function count_free(name, limit)
    local free, window = limit.most - redis.call('ZCARD', key('holders', name)), limit.window
    if window == 0 then
        return free, 0, 0
    end
    local begun = key('begun', name)
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', begun, '(' .. as_text(now), '+inf')) do
        redis.call('ZADD', begun, now, member) -- noted before the clock was set back
    end
    local over = '(' .. as_text(now - window)
    local gone = limit.tokens > 0 and redis.call('ZRANGEBYSCORE', begun, '-inf', over) or {}
    redis.call('ZREMRANGEBYSCORE', begun, '-inf', over)
    local recent = redis.call('ZCARD', begun)
    return free - recent, recent, limit.tokens > 0 and count_free_tokens(name, limit, recent, gone) or 0
end

local function give_back(name, call, has_begun, tokens, ago)
    local was_held, limit = redis.call('ZREM', key('holders', name), call) == 1, limit_of(name)
    touched[name] = true
    local weight = was_held and limit.tokens > 0 and weight_of(name, call) or 0
    if weight > 0 then
        redis.call('HDEL', key('weights', name), call)
        weigh(name, -weight)
    end
    if not (was_held and limit.window > 0 and has_begun) then
        return
    end
    noted = noted + 1
    local begun, member = key('begun', name), table.concat({ clock[1], clock[2], noted }, '.')
    if limit.tokens > 0 then
        local spent = key('spent', name)
        tokens = as_text((tokens or -1) >= 0 and tokens or weight)
        member = member .. ':' .. tokens
        redis.call('INCRBY', spent, tokens)
        redis.call('PEXPIRE', spent, limit.window + 1000)
    end
    redis.call('ZADD', begun, as_text(now - (ago or 0)), member)
    redis.call('PEXPIRE', begun, limit.window + 1000)
end

local function is_free_for(name, limit, call, weight)
    if redis.call('ZSCORE', key('holders', name), call) then
        return true
    end
    if redis.call('EXISTS', key('turns', name)) == 1 then
        return false
    end
    local free, _, free_tokens = count_free(name, limit)
    return free > 0 and (limit.tokens == 0 or weight <= free_tokens)
end

-- A call holds the slots of all its names or none: one that waits takes no room.
local function acquire(wanted)
    local occupied
    for _, named in ipairs(wanted.names) do
        local name, limit, weight = unpack(named)
        redis.call('HSET', limits, name, limit)
        if wanted.lost then -- the next attempt needs a slot of its own
            give_back(name, wanted.call, true)
        end
        if not is_free_for(name, limit_of(name), wanted.call, weight) then
            occupied = occupied or name
            touched[name] = true -- its limit may have been raised
        end
    end
    if wanted.key ~= '' then
        redis.call('HSET', keys, wanted.call, wanted.key)
    end
    for _, named in ipairs(wanted.names) do
        local name, _, weight = unpack(named)
        if occupied then
            give_back(name, wanted.call, false)
        elseif redis.call('ZADD', key('holders', name), 'NX', now, wanted.call) == 1 and weight > 0 then
            redis.call('HSET', key('weights', name), wanted.call, as_text(weight))
            weigh(name, weight)
        end
        if occupied == name and weight > 0 then
            redis.call('HSET', key('weights', name), wanted.call, as_text(weight))
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

-- The place of the one that has begun whose leaving gives back so many tokens with those before; nil where too few have.
-- Of many that have begun the first are looked at, and the others when these have left.
local function place_of_tokens(name, missing)
    local first = redis.call('ZRANGE', key('begun', name), 0, 99)
    for place, member in ipairs(first) do
        missing = missing - tokens_of(member)
        if missing <= 0 then
            return place - 1
        end
    end
    return #first == 100 and 99 or nil
end

-- Note when the next call may begin that waits for a rate of which no slot is free, or too few tokens: the oldest of those
-- begun make room then. Where too few have begun, one that holds a slot is waited for.
local function note_due(name, limit, free, recent, missing)
    local place = math.max(0, 0 - free) -- -0 would be no index
    if missing > 0 then
        local of_tokens = place_of_tokens(name, missing)
        place = of_tokens and (free > 0 and of_tokens or math.max(place, of_tokens)) or recent
    end
    if limit.window == 0 or redis.call('EXISTS', key('turns', name)) == 0 or recent <= place then
        redis.call('ZREM', due, name)
        return
    end
    local makes_room = redis.call('ZRANGE', key('begun', name), place, place, 'WITHSCORES')[2]
    local at = tonumber(makes_room) + limit.window + 1
    redis.call('ZADD', due, at, name)
    due_ms = due_ms < 0 and at - now or math.min(due_ms, at - now)
end

-- How many tokens the first that waits for a name lacks; one that can never have enough lacks none: it is refused.
local function lacking(name, run, limit, free_tokens)
    if limit.tokens == 0 then
        return 0, 0
    end
    local weight = weight_of(name, redis.call('ZRANGE', key('waiting', name, run), 0, 0)[1])
    return weight <= limit.tokens and math.max(0, weight - free_tokens) or 0, weight
end

local function hand_on(name)
    local holders, turns = key('holders', name), key('turns', name)
    local limit = limit_of(name)
    local free, recent, free_tokens = count_free(name, limit)
    local missing = 0
    while true do
        local run, weight = redis.call('LINDEX', turns, 0)
        if run then
            missing, weight = lacking(name, run, limit, free_tokens)
        end
        if not run or free <= 0 or missing > 0 then
            break
        end
        redis.call('LPOP', turns)
        local waiting = key('waiting', name, run)
        local call = redis.call('ZPOPMIN', waiting)[1]
        redis.call('ZADD', holders, now, call)
        if limit.tokens > 0 then
            weigh(name, weight)
            free_tokens = free_tokens - weight
        end
        handed[#handed + 1] = call
        free = free - 1
        if redis.call('EXISTS', waiting) == 1 then
            redis.call('RPUSH', turns, run)
        end
    end
    note_due(name, limit, free, recent, missing)
    if redis.call('EXISTS', holders, turns) == 0 then
        redis.call('HDEL', limits, name)
        redis.call('UNLINK', key('weights', name))
    end
end

for _, pair in ipairs(request.drop) do
    local waiting = key('waiting', pair[1], pair[2])
    redis.call('LREM', key('turns', pair[1]), 0, pair[2])
    for _, call in ipairs(redis.call('ZRANGE', waiting, 0, -1)) do
        redis.call('HDEL', keys, call)
        redis.call('HDEL', key('weights', pair[1]), call)
    end
    redis.call('UNLINK', waiting)
    touched[pair[1]] = true
end
for _, released in ipairs(request.release) do
    local name, call, has_begun, tokens, ago = unpack(released)
    if string.sub(name, -1) == '\31' then
        name = name .. (redis.call('HGET', keys, call) or '')
    end
    give_back(name, call, has_begun, tokens, ago)
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
