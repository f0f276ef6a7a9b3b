-- Find what was begun or published and not ended in time, and mark it as published again.
--
-- KEYS 1 state (hash)    2 leases (zset)
-- ARGV 1 how many at most    2 how long in ms a published task may lie before it counts as lost
-- Returns {run status or nil, {lanes to publish again}}. A call whose lease ran out can be claimed anew.

local status = redis.call('HGET', KEYS[1], 'status')
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local lanes, seen = {}, {}
if status == 'running' then
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, tonumber(ARGV[1]))) do
        local lane = string.match(member, '^(.*)\31')
        redis.call('ZREM', KEYS[2], member)
        redis.call('ZADD', KEYS[2], now + tonumber(ARGV[2]), lane .. '\31')
        if not seen[lane] then
            seen[lane] = true
            lanes[#lanes + 1] = lane
        end
    end
end
return { status, lanes }
