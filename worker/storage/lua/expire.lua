-- Give every key of a run its expiry, if the run is over: calls may have been added to it meanwhile (SPEC R11.7).
--
-- KEYS 1 state (hash)    2 and the others: every key of the run
-- ARGV 1 seconds
-- Returns 1 where the run is over, else 0.

local status = redis.call('HGET', KEYS[1], 'status')
if status and not is_over(status) then
    return 0
end
for i = 2, #KEYS do
    redis.call('EXPIRE', KEYS[i], ARGV[1])
end
return 1
