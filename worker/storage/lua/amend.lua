-- The steps of an amendment (see worker/client/amendment.py). From `begin` to `end` the run is paused and cannot be resumed, and
-- `remaining` counts one more than there are calls, so that it does not end with those that are at work.
--
-- `state` has amending (who is at it), amending:by (which amendment, once it is known to fit), amending:since (the last id
-- before it), amending:resumes ("1": the run was running), amended (for each amendment the last id before it and its own last,
-- joined by colons).
--
-- KEYS: calls published backlog parked gathers held *
-- USES: status lanes condition
-- Request: step, who, and for the step
--        begin   adds: it adds calls, also to a run that has ended (SPEC R11.7)
--        plan    adds, by: this amendment is about to be written; deed: who does it (see audit.py)
--        skip    lane, dropped (calls to be skipped, but for those that have ended meanwhile), detail (of these outcomes,
--                msgpack)
--        lane    the same, ruling and decided (what a person has decided of the one held call that is dropped, and who it was,
--                or nil: see decide.lua), and record and shared (what becomes of the lane, and of all lanes or ""), added (how many calls),
--                gathers (pairs of a new gather call and the number of lanes in which it waits)
--        undo    lane, undone (calls that have ended: they are tried again), detail (who has it so, msgpack), record (or ""),
--                parts (the elements that such calls have had, see commit.lua; left out where there are none),
--                given (outcomes given by hand: {call, status, detail, messages}), gathers (as above), unsettled (gather
--                calls that have something to wait for in the lane again)
--        drop    it does not fit: all as before, unless another attempt has been written in part
--        end
-- Answer: status (of the run; "gone" where there is none), is_ours (whether who is at it still), by, resumes,
--          is_streaming (refused, since a model is writing calls of it)

local run = redis.call('HMGET', state, 'status', 'amending')
local status, amending = run[1], run[2]

local function last_id()
    return redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1][1]
end

local function change(to)
    status = to
    change_status(to)
end

local is_reopened = request.adds and (status == 'completed' or status == 'failed')
    and redis.call('HEXISTS', state, 'exceeded') == 0

local function begin()
    if not amending then
        redis.call('HSET', state, 'amending:resumes', (status == 'running' or is_reopened) and '1' or '0')
        redis.call('HINCRBY', state, 'remaining', 1)
    end
    redis.call('HSET', state, 'amending', request.who)
    if is_reopened then
        for _, key in ipairs(KEYS) do
            redis.call('PERSIST', key)
        end
        redis.call('HDEL', state, 'finished')
    end
    if status == 'running' or is_reopened then
        change('paused')
    end
end

local function plan()
    if redis.call('HGET', state, 'amending:by') ~= request.by then
        if not request.adds then -- whatever has something left to do gets into the backlog anew
            redis.call('UNLINK', published, backlog, parked)
        end
        redis.call('HSETNX', state, 'amending:since', last_id())
        redis.call('XADD', log, '*', 'w', request.deed)
    end
    redis.call('HSET', state, 'amending:by', request.by)
end

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
                fields[#fields + 1] = 'j'
                fields[#fields + 1] = request.ruling
                fields[#fields + 1] = 'w'
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
        fields[#fields + 1] = 'a'
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
        fields[#fields + 1] = 'u'
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

local function finish()
    local since = redis.call('HGET', state, 'amending:since')
    if since then
        local amended = redis.call('HGET', state, 'amended') or ''
        redis.call('HSET', state, 'amended', amended .. since .. ':' .. last_id() .. ' ')
    end
    local promise_ms = tonumber(redis.call('HGET', state, 'promise_ms') or nil)
    if promise_ms then
        redis.call('HSET', state, 'promises_due', as_text(now + promise_ms))
    end
    redis.call('HDEL', state, 'amending', 'amending:by', 'amending:since', 'amending:resumes')
    local loop = redis.call('HGET', state, 'loop:lane')
    if loop then -- nothing but the loop may be left
        redis.call('RPUSH', backlog, loop)
    end
    if redis.call('HINCRBY', state, 'remaining', -1) == 0 then
        change(end_status())
    end
end

if not status then
    return cmsgpack.pack({ status = 'gone' })
end
local stage = redis.call('HGET', state, 'loop')
local is_streaming = request.step == 'begin' and stage and string.find(stage, '^open:') and not is_over(status)
local is_ours = (amending == request.who or request.step == 'begin') and (is_reopened or not is_over(status)) and not is_streaming
local by = redis.call('HGET', state, 'amending:by')
if is_ours then
    if request.step == 'begin' then
        begin()
    elseif request.step == 'plan' then
        plan()
    elseif request.step == 'skip' then
        skip()
    elseif request.step == 'undo' then
        undo()
    elseif request.step == 'lane' then
        amend_lane()
    elseif request.step == 'end' or not by then
        finish()
    end
end
return cmsgpack.pack({
    status = status,
    is_ours = is_ours,
    by = by or '',
    resumes = redis.call('HGET', state, 'amending:resumes') == '1',
    is_streaming = is_streaming and true or false,
})
