-- Change the status of a run on order: pause it, resume it, cancel it (SPEC R11.1). Costs the same at any size.
--
-- KEYS 1 state (hash)    2 events (stream)    3 published (zset)    4 backlog (list)    5 parked (zset); see advance.lua
-- ARGV 1 the status wanted: paused, running, cancelled
--      2 how many lanes may be published at most    3 how long in ms a published task may lie before it counts as lost
--      4 the window (see window.lua)
-- Returns {status found, status now, lanes}: no status where there is no run, and the old one where it may not change:
--          it is over, or it is to be resumed and is being amended.
--          `lanes` are to be published; those of a resumed run that were not published since, so ask until none come.

local state, events, published, backlog, parked = unpack(KEYS)
local wanted = ARGV[1]
local run = redis.call('HMGET', state, 'status', 'ms', 'seq')
local status = run[1]
local is_over = status ~= wanted and status ~= 'running' and status ~= 'paused'
local is_half_amended = wanted == 'running' and redis.call('HEXISTS', state, 'amending') == 1
if not status or is_over or is_half_amended then
    return { status, status, {} }
end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
if status ~= wanted then
    local ms, seq = tonumber(run[2]), tonumber(run[3])
    if now > ms then
        ms, seq = now, 0
    else
        seq = seq + 1
    end
    redis.call('XADD', events, string.format('%.0f-%.0f', ms, seq), 's', wanted)
    redis.call('HSET', state, 'status', wanted, 'ms', string.format('%.0f', ms), 'seq', string.format('%.0f', seq))
    if wanted == 'cancelled' then
        redis.call('HSET', state, 'finished', now)
    end
end
local lanes = {}
if wanted == 'running' then
    local due = now + tonumber(ARGV[3])
    lanes = redis.call('ZRANGEBYSCORE', published, 0, 0, 'LIMIT', 0, tonumber(ARGV[2]))
    for _, lane in ipairs(lanes) do
        redis.call('ZADD', published, due, lane)
    end
    if #lanes == 0 then
        local keys = { state = state, published = published, backlog = backlog, parked = parked }
        lanes = refill(keys, tonumber(ARGV[4]), due)
    end
end
return { status, wanted, lanes }
