-- Find what was begun or published and has given no sign of life in time, and mark its lanes as published again.
--
-- KEYS 1 state (hash)    2 leases (zset, see advance.lua)
-- ARGV 1 how many at most    2 how long in ms a published task may lie before it counts as lost
--      3 "1" where tasks still lie in the queue: then those published are not lost but wait their turn
--      4 what the keys of the lanes' ledgers begin with; they carry the run's hash tag, as the keys above do
-- Returns {run status or nil, {lanes to publish again}}. A call whose lease ran out can be claimed anew.

local state, leases = KEYS[1], KEYS[2]
local status = redis.call('HGET', state, 'status')
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local due = now + tonumber(ARGV[2])
local lanes, seen = {}, {}
if status ~= 'running' then
    return { status, lanes }
end
for _, member in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, tonumber(ARGV[1]))) do
    local lane, what = string.match(member, '^(.*)\31([^\31]*)$')
    if what == '' and ARGV[3] == '1' and tonumber(redis.call('ZSCORE', leases, member)) > 0 then
        redis.call('ZADD', leases, due, member)
    else
        redis.call('ZREM', leases, member)
        local attempt = string.match(redis.call('HGET', ARGV[4] .. lane, what) or '', '^running:(%d+):')
        if attempt then
            redis.call('HSET', ARGV[4] .. lane, what, 'lost:' .. attempt .. ':')
            redis.call('HINCRBY', state, 'running', -1)
        end
        redis.call('ZADD', leases, due, lane .. '\31')
        if not seen[lane] then
            seen[lane] = true
            lanes[#lanes + 1] = lane
        end
    end
end
return { status, lanes }
