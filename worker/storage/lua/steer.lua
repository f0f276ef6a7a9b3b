-- Change the status of a run on order: pause it, resume it, cancel it (SPEC R11.1). Costs the same at any size.
--
-- KEYS 1 state (hash)    2 log (stream)    3 statuses (stream)    4 published (zset)    5 backlog (list)    6 parked (zset);
--      see advance.lua
-- ARGV 1 the status wanted: paused, running, cancelled
--      2 how many lanes may be published at most    3 how long in ms a published task may lie before it counts as lost
--      4 the window (see window.lua)    5 who orders it (see audit.py)
-- Returns {status found, status now, lanes}: no status where there is no run, and the old one where it may not change:
--          it is over, or it is to be resumed and is being amended.
--          `lanes` are to be published; those of a resumed run that were not published since, so ask until none come.

local state, log, statuses, published, backlog, parked = unpack(KEYS)
local wanted = ARGV[1]
local status = redis.call('HGET', state, 'status')
local is_half_amended = wanted == 'running' and redis.call('HEXISTS', state, 'amending') == 1
if not status or (status ~= wanted and is_over(status)) or is_half_amended then
    return { status, status, {} }
end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
if status ~= wanted then
    change_status(state, log, statuses, wanted, now, ARGV[5])
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
