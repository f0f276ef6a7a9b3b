-- Note that a sweep reached both servers and read the heartbeats there, and say whether recovery is suspended.
--
-- Where no worker could do so for a while, heartbeats may have been missed: for some time nothing is declared lost. A worker
-- that alone could not suspends nothing, since others have noted their sweeps meanwhile. The key is a hash: `heard` (the
-- time in ms of the last sweep), `until` (recovery is suspended until then).
--
-- KEYS: recovery
-- USES: clock
-- Request: gap_ms (so long may no worker sweep), pause_ms, since (there was nothing to sweep before, in ms)
-- Answer: is_suspended

local found = redis.call('HMGET', recovery, 'heard', 'until')
local heard, suspended = tonumber(found[1] or nil), tonumber(found[2] or nil)
redis.call('HSET', recovery, 'heard', as_text(now))
if heard and now - math.max(heard, request.since) > request.gap_ms then
    suspended = now + request.pause_ms
    redis.call('HSET', recovery, 'until', as_text(suspended))
end
-- No longer than a pause: nothing of ours writes a later time.
return cmsgpack.pack({ is_suspended = suspended ~= nil and suspended > now and suspended <= now + request.pause_ms })
