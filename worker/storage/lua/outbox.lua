-- Look after what was sent and forgotten (SPEC R5.1): send again what was lost, or is due to be tried again.
--
-- KEYS 1 outbox  hash  "<lane>\31<call>" -> "<condition>:<attempt>:<failures>:<time in ms at which it was sent>/<queue>";
--                      the counts as in advance.lua
--      2 tasks   hash  -> the call's task
--      3 due     zset  -> the time in ms at which it is to be looked after
-- ARGV 1 the request, msgpack: most (how many at most), published_ms, soon_ms, heard_ms, taken and suspended (see
--        sweep.lua), limit_attempts (that many executions may be lost)
-- Returns msgpack: send and dead, lists of {member, attempt, failures, repeated, task}, broken, a list of members whose
--        entries are none of ours, and awaited (see sweep.lua). What is dead or broken stays here, and is given
--        again to each that asks, until it is removed.
--
--      sent      its task lies in the queue, or was taken
--      taken     a probe has come out of its queue since: its taker is to be heard of soon
--      running   its worker has reported it
--      retry     failed, to be tried again when due

local outbox, tasks, due = unpack(KEYS)
local request = cmsgpack.unpack(ARGV[1])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local send, dead, broken, awaited = {}, {}, {}, {}

local silent = redis.call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, request.most)
-- When to look again whether a probe has come: soon, unless very many calls lie there.
local again = now + (#silent < request.most and request.soon_ms or request.published_ms)
for _, member in ipairs(silent) do
    local entry = redis.call('HGET', outbox, member)
    local condition, attempt, failures, sent, queue =
        string.match(entry or '', '^(%a+):(%d+):(%d+):(%d+)/(.*)$')
    attempt, failures = tonumber(attempt) or 1, tonumber(failures) or 0
    local is_taken = (request.taken[queue] or 0) > (tonumber(sent) or 0) + request.soon_ms
    local is_lost = condition == 'running' or condition == 'taken'
    if condition == 'running' or condition == 'retry' then
        attempt = attempt + 1
    end
    local known = { member, attempt, failures, is_lost, redis.call('HGET', tasks, member) }
    redis.call('ZADD', due, now + request.published_ms, member)
    if not condition then
        broken[#broken + 1] = member
    elseif condition == 'sent' and is_taken then
        redis.call('HSET', outbox, member, string.format('taken:%d:%d:%s/%s', attempt, failures, sent, queue))
        redis.call('ZADD', due, now + request.heard_ms, member)
    elseif is_lost and request.suspended then
        redis.call('ZADD', due, again, member)
    elseif condition == 'sent' then
        awaited[queue] = true
        redis.call('ZADD', due, again, member)
    elseif is_lost and attempt - failures - 1 >= request.limit_attempts then
        dead[#dead + 1] = known
    else
        redis.call('HSET', outbox, member, string.format('sent:%d:%d:%.0f/%s', attempt, failures, now, queue))
        redis.call('ZADD', due, now + request.soon_ms, member)
        send[#send + 1] = known
    end
end
return cmsgpack.pack({ send = send, dead = dead, broken = broken, awaited = names(awaited) })
