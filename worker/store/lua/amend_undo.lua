-- A lane of which calls are carried out again, or are given outcomes by hand, and of which others are stale (SPEC R11.8).
--
-- KEYS: calls state log lanes gathers backlog held pending_webhooks
-- USES: lanes condition background
-- Request: undo    lane, undone (calls that have ended, or are held), keeping (those of them of which only the elements that
--                failed are carried out again, or nil), stale (calls, or nil), detail (who has it so, msgpack), record (or
--                ""), parts (the elements to be carried out again, see commit.lua, or nil), withdrawn (those of all
--                these that were sent and forgotten, but for calls whose elements were), given (outcomes given by hand:
--                {call, status, detail, messages}), unsettled (gather calls that have something to wait for in the lane
--                again; see `guard` in amend.lua)

local function among(calls)
    local found = {}
    for _, call in ipairs(calls or {}) do
        found[call] = true
    end
    return found
end

-- Have a call count as one that has not ended; says whether it does, and how many more calls are open then.
local function undo_call(member, keeps)
    local entry = redis.call('HGET', calls, member)
    if read_condition(entry) == 'held' then
        redis.call('HDEL', calls, member)
        redis.call('ZREM', held, member)
        redis.call('ZREM', pending_webhooks, member)
        return true, -1
    end
    if not has_ended(entry) then
        return false, 0
    end
    redis.call('HINCRBY', state, 'n:' .. entry, -1)
    redis.call('HINCRBY', state, 'remaining', 1)
    if not keeps then
        redis.call('HDEL', calls, member)
        return true, 0
    end
    redis.call('HSET', calls, member, condition('each', 1, 0))
    redis.call('HINCRBY', state, 'running', 1)
    return true, 1
end

-- Append the outcomes given by hand; returns the lane's last entry.
local function give(outcomes, last)
    for _, outcome in ipairs(outcomes) do
        if redis.call('HSETNX', calls, request.lane .. '\31' .. outcome.call, outcome.status) == 1 then
            for i = 1, math.max(#outcome.messages, 1) do
                local fields = { 'l', request.lane, 'p', last, 'c', outcome.call }
                if i >= #outcome.messages then
                    for _, value in ipairs({ 's', outcome.status, 'd', outcome.detail }) do
                        fields[#fields + 1] = value
                    end
                end
                if outcome.messages[i] then
                    fields[#fields + 1] = 'm'
                    fields[#fields + 1] = outcome.messages[i]
                end
                last = redis.call('XADD', log, '*', unpack(fields))
            end
            redis.call('HINCRBY', state, 'n:' .. outcome.status, 1)
            redis.call('HINCRBY', state, 'remaining', -1)
        end
    end
    return last
end

local function undo()
    local last, open = read_lane(redis.call('HGET', lanes, request.lane))
    local field = request.lane .. '\31'
    local keeps, undone, keeping = among(request.keeping), {}, {}
    for _, one in ipairs(request.withdrawn or {}) do
        if redis.call('HGET', calls, field .. one) == 'sent' then
            withdraw_from_background(field .. one)
        end
    end
    for _, call in ipairs(request.undone) do
        local is_undone, opened = undo_call(field .. call, keeps[call])
        open = open + opened
        if is_undone then
            undone[#undone + 1] = call
            keeping[#keeping + 1] = keeps[call] and call
        end
    end
    for _, part in ipairs(request.parts or {}) do
        redis.call('HDEL', calls, field .. part)
    end
    local fields = { 'l', request.lane, 'p', last, 'd', request.detail, 'undone', cmsgpack.pack(undone) }
    for name, list in pairs({ keeping = keeping, stale = request.stale or {} }) do
        if #list > 0 then
            fields[#fields + 1] = name
            fields[#fields + 1] = cmsgpack.pack(list)
        end
    end
    if request.record ~= '' then
        fields[#fields + 1] = 'k'
        fields[#fields + 1] = request.record
    end
    last = redis.call('XADD', log, '*', unpack(fields))
    redis.call('HSET', state, 'retried:' .. request.lane, last)
    last = give(request.given, last)
    redis.call('HSET', lanes, request.lane, last .. ':' .. open)
    for _, call in ipairs(request.unsettled) do
        if redis.call('HDEL', calls, field .. call) == 1 then
            redis.call('HINCRBY', gathers, call, 1)
        end
    end
    redis.call('RPUSH', backlog, request.lane)
end
