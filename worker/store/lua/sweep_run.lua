-- A run that a sweep looks at (see sweep.lua): whether there is anything to find in it, and what was found.
--
-- KEYS: state leases held outbox_due published pending_webhooks
-- USES: clock formats
-- Request: published_ms, soon_ms (the time until the next sweep), format (of runs that this version reads; it leaves others
--          alone), tells (whether there is a web hook for what is held), most_told (for how many calls it is called at most),
--          telling_ms (how long that may take), instances (the queue of the lanes' tasks and of results), consumed_until

local consumed_until = request.consumed_until[request.instances] or 0
local awaited = {}
local run = redis.call('HMGET', state, 'status', 'format', 'promises_due', 'approve_ms', 'parent')
local status, format, promises_due, approve_ms = run[1], run[2], tonumber(run[3] or nil), tonumber(run[4] or nil)
local due = now + request.published_ms
local to_publish, lost = {}, 0
local forgotten = redis.call('ZCARD', outbox_due)

-- What was found, as the answer.
local function answer(next_ms, more)
    local found = {
        status = status or nil, parent = run[5] or nil, lanes = to_publish, suspects = {}, let_out = {}, lost = lost, is_all = true,
        forgotten = forgotten, next_ms = tonumber(next_ms), awaited = {}, pending_webhooks = {},
        waiting_for_silent = {},
    }
    for name, value in pairs(more or {}) do
        found[name] = value
    end
    return cmsgpack.pack(found)
end

-- Note when to look again: when the soonest of what these hold is due, and not twice in one sweep.
local function look_again(...)
    local soonest
    for _, key in ipairs({ ... }) do
        local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
        soonest = first and math.min(soonest or math.huge, tonumber(first)) or soonest
    end
    if promises_due and status == 'running' then
        soonest = math.min(soonest or promises_due, promises_due)
    end
    local waiting_hook = request.tells and redis.call('ZRANGE', pending_webhooks, 0, 0, 'WITHSCORES')[2]
    if waiting_hook and (status == 'running' or status == 'paused') then
        soonest = math.min(soonest or math.huge, tonumber(waiting_hook))
    end
    local oldest = approve_ms and status == 'running' and redis.call('ZRANGE', held, 0, 0, 'WITHSCORES')[2]
    if oldest then
        soonest = math.min(soonest or math.huge, oldest + approve_ms)
    end
    if not soonest then
        redis.call('HDEL', state, 'look')
        return '0'
    end
    local at = string.format('%.0f', math.max(soonest, now + request.soon_ms / 2))
    if status then
        redis.call('HSET', state, 'look', at)
    end
    return at
end

if not reads(format, request.format) or not status then
    return answer(now + 2 * request.published_ms)
end

local to_call = {}
if request.tells and (status == 'running' or status == 'paused') then
    to_call = redis.call('ZRANGEBYSCORE', pending_webhooks, '-inf', now, 'LIMIT', 0, request.most_told)
    for _, member in ipairs(to_call) do -- again, should the process that is given it die
        redis.call('ZADD', pending_webhooks, now + request.telling_ms, member)
    end
end
if status ~= 'running' then
    return answer(look_again(outbox_due), { pending_webhooks = to_call })
end

local suspects = {}

-- A lost lane is published twice: one task may be taken by a worker that is stopped, or does not come to begin it. A lane
-- whose task is on its way gets another mark where something `is_new`: who takes the task up may have read before that.
-- Looking again at what was lost before leaves the mark alone: put off each time, it would never run out.
local function publish(lane, is_lost, is_new)
    local mark = tonumber(redis.call('ZSCORE', published, lane) or 0)
    if mark > now and not is_new then
        return
    end
    redis.call('ZADD', published, due, lane)
    if mark <= now then
        to_publish[#to_publish + 1] = lane
        if is_lost then
            to_publish[#to_publish + 1] = lane
            suspects[#suspects + 1] = lane
        end
    end
end
