-- A lane that is amended: calls that have not begun are skipped, and its record is another one.
--
-- KEYS: calls state log lanes gathers held backlog
-- USES: lanes condition
-- Request: skip    lane, dropped (calls to be skipped, but for those that have ended meanwhile), detail (of these outcomes,
--                msgpack)
--        lane    the same, ruling and decided (what a person has decided of the one held call that is dropped, and who it was,
--                or nil: see decide.lua), and record and shared (what becomes of the lane, and of all lanes or ""), added (how many calls),
--                gathers (pairs of a new gather call and the number of lanes in which it waits)

local function skip()
    local last, open = read_lane(redis.call('HGET', lanes, request.lane))
    local skipped = 0
    for _, call in ipairs(request.dropped) do
        local field = request.lane .. '\31' .. call
        local entry = redis.call('HGET', calls, field)
        local is_held = read_condition(entry) == 'held'
        if not entry or is_held then
            redis.call('HSET', calls, field, 'skipped')
            local fields = { 'l', request.lane, 'p', last, 'c', call, 's', 'skipped', 'd', request.detail }
            if request.ruling then
                fields[#fields + 1] = 'decided'
                fields[#fields + 1] = request.ruling
                fields[#fields + 1] = 'audit'
                fields[#fields + 1] = request.decided
            end
            last = redis.call('XADD', log, '*', unpack(fields))
            skipped = skipped + 1
        end
        if is_held then -- it had begun to wait for a person
            redis.call('ZREM', held, field)
            open = open - 1
        end
    end
    redis.call('HSET', lanes, request.lane, last .. ':' .. open)
    redis.call('HINCRBY', state, 'n:skipped', skipped)
    redis.call('HINCRBY', state, 'remaining', 0 - skipped) -- not -skipped: Redis takes -0 for no integer
    return last, open
end

local function amend_lane()
    local last, open = skip()
    local fields = { 'l', request.lane, 'p', last, 'k', request.record }
    if request.shared ~= '' then
        fields[#fields + 1] = 'amendment'
        fields[#fields + 1] = request.shared
    end
    last = redis.call('XADD', log, '*', unpack(fields))
    redis.call('HSET', lanes, request.lane, last .. ':' .. open)
    redis.call('HINCRBY', state, 'total', request.added)
    redis.call('HINCRBY', state, 'remaining', request.added)
    for _, pair in ipairs(request.gathers) do
        redis.call('HSET', gathers, pair[1], pair[2])
    end
    redis.call('RPUSH', backlog, request.lane)
end
