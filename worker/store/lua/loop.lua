-- One step of a run's loop (SPEC R13.1): append what it decided from the log as it had read it. All of it or nothing, and
-- only where the log has not changed since; so each step is taken once, whichever process decides it, however often.
--
-- `state` has `loop` (stage and tick, see protocol/engine/loop.py), `loop:lane`, `loop:fault` (why it ended without an output),
-- `loop:forgiven` (how many calls had failed when it ended), `loop:tokens` and `loop:money` (what it has taken itself),
-- `loop:cost` (what it and its calls have cost, as JSON).
--
-- KEYS: calls leases published gathers files *
-- USES: run
-- Request: lane (the loop's), from (the stage and tick that were read), to (what they become), seen (the last id of the log
--          that was read), entries: {lane, fields} to be appended in order, files (pairs of digest and content), woken (lanes to be published), added (how many
--          calls), gathers (pairs of a new gather call and the number of lanes in which it waits), answered (the tick whose
--          request has ended, or nil), ends (nil, or "completed", or "failed"), fault (why it ends, or ""), alone (whether
--          every call has to have ended), pauses (whether the run is paused with it), extends (a run that has ended goes on:
--          the tick, or nil), alarm (when to look at the loop again, in ms, or nil), spent (the tokens that the loop has taken
--          itself, or nil: see budget.lua), spent_money (the same in nanodollars), cost (in all, as JSON, or nil), published_ms (how long a published task may lie before it counts as lost),
--          most_bytes (what a run may write), refuses (whether a step that goes beyond is not taken; else the run fails with it)
-- Answer: status (of the run; "gone" where there is none), is_taken, bytes (where it was refused for them: what the run had
--         written), woken (lanes to be published), due (when something becomes due, where that is sooner than the sweep would
--         look), mark (of the loop's lane, where it is to be taken back: see commit.lua)

local status, stage, amending, look = unpack(redis.call('HMGET', state, 'status', 'loop', 'amending', 'look'))
if not status then
    return cmsgpack.pack({ status = 'gone', is_taken = false, woken = {} })
end
local is_open = (request.extends and (status == 'failed' or status == 'completed')) or (not request.extends and not is_over(status))
local last = last_id()
if request.alone and redis.call('HGET', state, 'remaining') ~= '1' then
    is_open = false
end
if not is_open or amending or stage ~= request.from or last ~= request.seen then
    return cmsgpack.pack({ status = status, is_taken = false, woken = {} })
end

local grown = 0
for _, entry in ipairs(request.entries) do
    for _, value in ipairs(entry[2]) do
        grown = grown + #value
    end
end
for _, pair in ipairs(request.files) do
    grown = grown + #pair[2]
end
local bytes = tonumber(redis.call('HGET', state, 'bytes') or 0)
if request.refuses and bytes + grown > request.most_bytes then
    return cmsgpack.pack({ status = status, is_taken = false, bytes = bytes, woken = {} })
end

local alarm = request.lane .. '\31@due'
for _, entry in ipairs(request.entries) do
    append_entry(entry[1], unpack(entry[2]))
end
for _, pair in ipairs(request.files) do
    redis.call('HSET', files, pair[1], pair[2])
end
redis.call('HSET', state, 'loop', request.to)
redis.call('HDEL', state, 'drives:' .. request.lane, 'driven:' .. request.lane) -- it gets on (see drive.lua)
if request.spent then
    redis.call('HSET', state, 'loop:tokens', request.spent, 'loop:money', request.spent_money)
end
if request.cost then
    redis.call('HSET', state, 'loop:cost', request.cost)
end
if request.answered then
    local field = request.lane .. '\31' .. request.answered
    local kind, attempt = read_condition(redis.call('HGET', calls, field))
    redis.call('HSET', calls, field, 'done')
    redis.call('ZREM', leases, field)
    if is_begun(kind) then
        redis.call('HINCRBY', state, 'running', -1)
    elseif is_between(kind, attempt) then
        redis.call('HINCRBY', state, 'between', -1)
    end
end
if request.added > 0 then
    redis.call('HINCRBY', state, 'total', request.added)
    redis.call('HINCRBY', state, 'remaining', request.added)
end
for _, pair in ipairs(request.gathers) do
    redis.call('HSET', gathers, pair[1], pair[2])
end
if #request.entries > 1 then -- a fork takes all of them or none
    local whole = redis.call('HGET', state, 'amended') or ''
    redis.call('HSET', state, 'amended', whole .. last .. ':' .. last_id() .. ' ')
end
if request.extends then
    for _, key in ipairs(KEYS) do
        redis.call('PERSIST', key)
    end
    redis.call('HDEL', state, 'finished', 'loop:fault', 'loop:forgiven')
    redis.call('HDEL', calls, request.lane .. '\31' .. request.extends) -- a request that was given up is asked anew
    redis.call('HSET', state, 'loop:lane', request.lane)
    redis.call('HINCRBY', state, 'remaining', 1)
    status = 'running'
    change_status(status)
end
if request.ends then
    redis.call('HDEL', state, 'loop:lane')
    redis.call('ZREM', leases, alarm)
    redis.call('HSET', state, 'loop:forgiven', redis.call('HGET', state, 'n:failed') or '0')
    if request.fault ~= '' then
        redis.call('HSET', state, 'loop:fault', request.fault)
    end
    redis.call('HINCRBY', state, 'remaining', -1)
    status = request.ends
    change_status(status)
end
if request.pauses and status == 'running' then
    status = 'paused'
    change_status(status)
end
status = spend(status, 'bytes', grown, request.most_bytes, MOST_BYTES)
local woken, due = {}, now + request.published_ms
if request.alarm and not is_over(status) then
    redis.call('ZADD', leases, request.alarm, alarm)
    due = math.min(due, request.alarm)
end
if not is_over(status) then
    for _, lane in ipairs(request.woken) do
        redis.call('ZADD', published, rests(status) and 0 or due, lane)
        woken[#woken + 1] = status == 'running' and lane or nil
    end
end
local mark -- until the loop's runner takes it back, what the step leaves to the loop itself is found by the sweep
if not is_over(status) and request.added == 0 and stage ~= request.to then
    mark = rests(status) and 0 or now + request.published_ms
    redis.call('ZADD', published, mark, request.lane)
end
local is_sooner = look_by(due, look)
return cmsgpack.pack({ status = status, is_taken = true, woken = woken, due = is_sooner and due or nil, mark = mark })
