-- Note that a lane is driven that was lost before: the worker that had taken it died, or failed in it. A run of which one
-- lane is driven too often without anything coming of it ends: it may be what kills the workers. A commit, a claim or
-- leaving in good order (advance.lua), or a step of the loop (loop.lua) counts as something.
--
-- KEYS 1 state (hash, see advance.lua; here also drives:<lane>)    2 log    3 statuses
-- ARGV 1 the lane    2 how often it may be driven    3 the reason if that is exceeded
-- Returns 1 where it may be driven, 0 where the run is over, perhaps by this, or gone.

local state, log, statuses = unpack(KEYS)
local status = redis.call('HGET', state, 'status')
if status ~= 'running' then
    return status == 'paused' and 1 or 0
end
if redis.call('HINCRBY', state, 'drives:' .. ARGV[1], 1) <= tonumber(ARGV[2]) then
    return 1
end
local clock = redis.call('TIME')
redis.call('HSET', state, 'exceeded', ARGV[3])
change_status(state, log, statuses, 'failed', clock[1] * 1000 + math.floor(clock[2] / 1000), nil, ARGV[3])
return 0
