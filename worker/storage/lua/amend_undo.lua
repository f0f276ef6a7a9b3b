-- A lane of which calls that have ended are tried again, or are given outcomes by hand.
--
-- KEYS: calls state log lanes gathers backlog
-- USES: lanes
-- Request: undo    lane, undone (calls that have ended: they are tried again), detail (who has it so, msgpack), record (or ""),
--                parts (the elements that such calls have had, see commit.lua; left out where there are none),
--                given (outcomes given by hand: {call, status, detail, messages}), gathers (as above), unsettled (gather
--                calls that have something to wait for in the lane again)

local function undo()
    local last, open = read_lane(redis.call('HGET', lanes, request.lane))
    local field = request.lane .. '\31'
    local undone = {}
    for _, call in ipairs(request.undone) do
        local ended = redis.call('HGET', calls, field .. call)
        if ended == 'failed' or ended == 'skipped' then
            undone[#undone + 1] = call
            redis.call('HDEL', calls, field .. call)
            redis.call('HINCRBY', state, 'n:' .. ended, -1)
        end
    end
    for _, part in ipairs(request.parts or {}) do
        redis.call('HDEL', calls, field .. part)
    end
    local fields = { 'l', request.lane, 'p', last, 'd', request.detail }
    if #undone > 0 then
        fields[#fields + 1] = 'undone'
        fields[#fields + 1] = cmsgpack.pack(undone)
    end
    if request.record ~= '' then
        fields[#fields + 1] = 'k'
        fields[#fields + 1] = request.record
    end
    last = redis.call('XADD', log, '*', unpack(fields))
    for _, outcome in ipairs(request.given) do
        if redis.call('HSETNX', calls, field .. outcome.call, outcome.status) == 1 then
            for i = 1, math.max(#outcome.messages, 1) do
                fields = { 'l', request.lane, 'p', last, 'c', outcome.call }
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
    redis.call('HSET', lanes, request.lane, last .. ':' .. open)
    redis.call('HINCRBY', state, 'remaining', #undone)
    for _, pair in ipairs(request.gathers) do
        redis.call('HSET', gathers, pair[1], pair[2])
    end
    for _, call in ipairs(request.unsettled) do
        redis.call('HDEL', calls, field .. call)
    end
    redis.call('RPUSH', backlog, request.lane)
end
