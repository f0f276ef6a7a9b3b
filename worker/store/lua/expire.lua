-- Give every key of a run its expiry, if the run is over: calls may have been added to it meanwhile (SPEC R11.7).
--
-- KEYS: state *
-- USES: status
-- Request: seconds
-- Answer: is_over

local status = redis.call('HGET', state, 'status')
local over = not status or is_over(status)
for _, key in ipairs(over and KEYS or {}) do
    redis.call('EXPIRE', key, request.seconds)
end
return cmsgpack.pack({ is_over = over })
