-- Find what was begun or published and has given no sign of life in time, and mark its lanes as published again; let out
-- lanes of the backlog where the window has room.
--
-- KEYS 1 state (hash)    2 leases (zset, see advance.lua)    3 published (zset)    4 backlog (list)    5 parked (zset)
-- ARGV 1 how many at most    2 how long in ms a published task may lie before it counts as lost
--      3 "1" where tasks still lie in the queue: then those published are not lost but wait their turn
--      4 what the keys of the lanes' ledgers begin with; they carry the run's hash tag, as the keys above do
--      5 the window (see window.lua)
-- Returns {run status or nil, {lanes to publish again}, {lanes let out}}. A call whose lease ran out can be claimed anew.

local state, leases, published = KEYS[1], KEYS[2], KEYS[3]
local most, is_queue_busy = tonumber(ARGV[1]), ARGV[3] == '1'
local status = redis.call('HGET', state, 'status')
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local due = now + tonumber(ARGV[2])
local lanes, seen = {}, {}
if status ~= 'running' then
    return { status, lanes, {} }
end

local function publish(lane)
    redis.call('ZADD', published, due, lane)
    if not seen[lane] then
        seen[lane] = true
        lanes[#lanes + 1] = lane
    end
end

local lost = redis.call('ZRANGEBYSCORE', published, '-inf', now, 'WITHSCORES', 'LIMIT', 0, most)
for _, member in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, most)) do
    local lane, what = string.match(member, '^(.*)\31([^\31]*)$')
    redis.call('ZREM', leases, member)
    local attempt = string.match(redis.call('HGET', ARGV[4] .. lane, what) or '', '^running:(%d+):')
    if attempt then
        redis.call('HSET', ARGV[4] .. lane, what, 'lost:' .. attempt .. ':')
        redis.call('HINCRBY', state, 'running', -1)
    end
    publish(lane)
end
for i = 1, #lost, 2 do
    if is_queue_busy and lost[i + 1] ~= '0' then
        redis.call('ZADD', published, due, lost[i])
    else
        publish(lost[i])
    end
end
local keys = { state = state, published = published, backlog = KEYS[4], parked = KEYS[5] }
return { status, lanes, refill(keys, tonumber(ARGV[5]), due) }
