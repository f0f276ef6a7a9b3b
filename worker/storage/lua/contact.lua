-- Note that a sweep reached both servers and read the heartbeats there, and say whether recovery is suspended.
--
-- Where no worker could do so for a while, heartbeats may have been missed: for some time nothing is declared lost. A worker that alone could not suspends nothing, since others have noted their sweeps meanwhile.
--
-- KEYS 1 recovery  hash  heard (the time in ms of the last sweep), until (recovery is suspended until then)
-- ARGV 1 gap_ms (so long may no worker sweep)    2 pause_ms    3 since (there was nothing to sweep before, in ms)
-- Returns 1 where recovery is suspended, else 0.

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local found = redis.call('HMGET', KEYS[1], 'heard', 'until')
local heard, suspended = tonumber(found[1] or nil), tonumber(found[2] or nil)
redis.call('HSET', KEYS[1], 'heard', string.format('%.0f', now))
if heard and now - math.max(heard, tonumber(ARGV[3])) > tonumber(ARGV[1]) then
    suspended = now + tonumber(ARGV[2])
    redis.call('HSET', KEYS[1], 'until', string.format('%.0f', suspended))
end
-- No longer than a pause: nothing of ours writes a later time.
return suspended and suspended > now and suspended <= now + tonumber(ARGV[2]) and 1 or 0
