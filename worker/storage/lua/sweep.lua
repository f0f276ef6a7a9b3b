-- Find what was begun or published and has given no sign of life in time, and what is due to be tried again; mark the
-- lanes of both as published again. Let out lanes of the backlog where the window has room.
--
-- KEYS 1 state (hash)    2 leases (zset, see advance.lua)    3 published (zset)    4 backlog (list)    5 parked (zset)
--      6 outbox_due (zset, see outbox.lua)    7 calls (hash, see advance.lua)
-- ARGV 1 the request, msgpack: most (how many at most), published_ms (how long a published task may lie before it counts
--        as lost), instances (the queue of the lanes' tasks and of results), idle (the queues in which nothing lies, as
--        keys),
--        taken_ms (what was published to the queue of the instances before then was taken from there: a probe came out),
--        soon_ms (the time until the next sweep), window (see window.lua), format (of the runs that this version writes
--        down; it leaves others alone)
-- Returns {run status or nil, {lanes to publish again}, {lanes let out}, how many tasks and calls were lost, whether that
--          is all of them, how many calls were sent and forgotten and not done, when to look again (in ms; 0 where nothing
--          will be due)}. A call found lost, or due, can be claimed anew.
--
-- What may still lie in a queue waits its turn. A call whose queue was seen empty has been taken from there; whoever took
-- it has then as long as a published task to be heard of.

local state, leases, published, calls = KEYS[1], KEYS[2], KEYS[3], KEYS[7]
local request = cmsgpack.unpack(ARGV[1])
local are_results_taken = request.idle[request.instances]
local status, format = unpack(redis.call('HMGET', state, 'status', 'format'))
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local due = now + request.published_ms
local lanes, lost = {}, 0
local forgotten = redis.call('ZCARD', KEYS[6])

-- Note when to look again: when the soonest of what these hold is due, and not twice in one sweep.
local function look_again(...)
    local soonest
    for _, key in ipairs({ ... }) do
        local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
        soonest = first and math.min(soonest or math.huge, tonumber(first)) or soonest
    end
    if not soonest then
        redis.call('HDEL', state, 'look')
        return '0'
    end
    local at = string.format('%.0f', math.max(soonest, now + request.soon_ms / 2))
    if status then
        redis.call('HSET', state, 'look', at)
    end
    return at
end

if format and tonumber(format) ~= request.format or not status then
    return { status, lanes, {}, lost, 1, forgotten, string.format('%.0f', now + 2 * request.published_ms) }
elseif status ~= 'running' then
    return { status, lanes, {}, lost, 1, forgotten, look_again(KEYS[6]) }
end

local function publish(lane)
    local mark = tonumber(redis.call('ZSCORE', published, lane) or 0)
    redis.call('ZADD', published, due, lane) -- anew also where a task is on its way: who takes it up may have read before
    if mark <= now then
        lanes[#lanes + 1] = lane
    end
end

local silent = redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, request.most)
-- When to look again whether a queue is empty: soon, unless very many calls lie there.
local again = now + (#silent < request.most and request.soon_ms or request.published_ms)

local function judge(member, lane)
    local entry = redis.call('HGET', calls, member) or ''
    local condition, attempt, failures, holder = string.match(entry, '^(%a+):(%d+):(%d+):(.*)$')
    local owner, queue = string.match(holder or '', '^([^/]*)/(.*)$')
    if condition == 'sent' and not (are_results_taken and (queue == '' or queue == request.instances)) then
        if request.idle[queue] and queue ~= request.instances then
            redis.call('HSET', calls, member, string.format('sent:%s:%s:%s/', attempt, failures, owner))
            redis.call('ZADD', leases, due, member)
        else
            redis.call('ZADD', leases, again, member)
        end
        return
    end
    redis.call('ZREM', leases, member)
    if condition == 'running' or condition == 'sent' then
        local begun = (condition == 'sent' and queue == '') and attempt - 1 or attempt
        redis.call('HSET', calls, member, string.format('lost:%d:%d:', begun, failures))
        redis.call('HINCRBY', state, 'running', -1)
    end
    lost = lost + (condition == 'retry' and 0 or 1)
    publish(lane)
end

local unbegun = redis.call('ZRANGEBYSCORE', published, '-inf', now, 'WITHSCORES', 'LIMIT', 0, request.most)
for _, member in ipairs(silent) do
    judge(member, string.match(member, '^(.*)\31[^\31]*$'))
end
local waiting = 0
for i = 1, #unbegun, 2 do
    local mark = tonumber(unbegun[i + 1])
    if mark == 0 then
        publish(unbegun[i])
    elseif are_results_taken or mark - request.published_ms < request.taken_ms then
        lost = lost + 1
        publish(unbegun[i])
    else
        waiting = waiting + 1 -- it may lie in the queue still; those behind it are newer
    end
end
local keys = { state = state, published = published, backlog = KEYS[4], parked = KEYS[5] }
local is_all = #silent < request.most and (#unbegun < 2 * request.most or waiting > 0)
local let_out = refill(keys, request.window, due)
return { status, lanes, let_out, lost, is_all and 1 or 0, forgotten, look_again(leases, published, KEYS[6]) }
