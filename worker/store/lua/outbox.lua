-- Look after what was sent and forgotten (SPEC R5.1): send again what was lost, or is due to be tried again.
--
-- A call has its condition in `outbox` (see condition.py), its task in `outbox_tasks`, and in `outbox_due` the time in ms at
-- which it is to be looked after.
--
-- KEYS: outbox outbox_tasks outbox_due
-- USES: clock condition names
-- Request: most (how many at most), lease_ms, published_ms, soon_ms, heard_ms, consumed_until and suspended (see sweep.lua), limit_attempts
--          (that many executions may be lost)
-- Answer: send and dead, lists of {member, attempt, failures, repeated, task}, broken, a list of members whose entries are
--         none of ours, and awaited (see sweep.lua). What is dead or broken stays here, and is given again to each that asks,
--         until it is removed.

local send, dead, broken, awaited = {}, {}, {}, {}

-- What was noted before the clock was set back is noted anew (see sweep_judge.lua); nobody knows for when a retry was.
local furthest = now + 2 * request.lease_ms + request.published_ms
for _, member in ipairs(redis.call('ZREVRANGEBYSCORE', outbox_due, '+inf', '(' .. as_text(furthest), 'LIMIT', 0, request.most)) do
    local kind, attempt, failures, holder = read_condition(redis.call('HGET', outbox, member))
    local queue = string.match(holder or '', '^%d+/(.*)$')
    if queue and kind ~= 'retry' then
        redis.call('HSET', outbox, member, condition(kind, attempt, failures, as_text(now) .. '/' .. queue))
        redis.call('ZADD', outbox_due, now + request.lease_ms, member)
    end
end

local silent = redis.call('ZRANGEBYSCORE', outbox_due, '-inf', now, 'LIMIT', 0, request.most)
-- When to look again whether a probe has come: soon, unless very many calls lie there.
local again = now + (#silent < request.most and request.soon_ms or request.published_ms)
for _, member in ipairs(silent) do
    local kind, attempt, failures, holder = read_condition(redis.call('HGET', outbox, member))
    local sent, queue = string.match(holder or '', '^(%d+)/(.*)$')
    local is_taken = sent and (request.consumed_until[queue] or 0) > tonumber(sent) + request.soon_ms
    local is_lost = kind == 'running' or kind == 'taken'
    if kind == 'running' or kind == 'retry' then
        attempt = attempt + 1
    end
    local known = { member, attempt, failures, is_lost, redis.call('HGET', outbox_tasks, member) }
    redis.call('ZADD', outbox_due, now + request.published_ms, member)
    if not sent then
        broken[#broken + 1] = member
    elseif kind == 'sent' and is_taken then
        redis.call('HSET', outbox, member, condition('taken', attempt, failures, holder))
        redis.call('ZADD', outbox_due, now + request.heard_ms, member)
    elseif is_lost and request.suspended then
        redis.call('ZADD', outbox_due, again, member)
    elseif kind == 'sent' then
        awaited[queue] = true
        redis.call('ZADD', outbox_due, again, member)
    elseif is_lost and attempt - failures - 1 >= request.limit_attempts then
        dead[#dead + 1] = known
    else
        redis.call('HSET', outbox, member, condition('sent', attempt, failures, as_text(now) .. '/' .. queue))
        redis.call('ZADD', outbox_due, now + request.soon_ms, member)
        send[#send + 1] = known
    end
end
return cmsgpack.pack({ send = send, dead = dead, broken = broken, awaited = names(awaited) })
