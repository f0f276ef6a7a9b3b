-- What was sent and forgotten (SPEC R5.1), until it is done.
--
-- A call has its condition in `outbox` (see keys.py), its task in `outbox_tasks`, and in `outbox_due` the time in ms at
-- which it is to be looked after.
--
-- KEYS: outbox outbox_tasks outbox_due state
-- USES: run
-- Request: action (one of those below)

local actions = {}

-- Send again what was lost, or is due to be tried again.
--
-- Request: most (how many at most), lease_ms, published_ms, soon_ms, heard_ms, consumed_until and suspended (see sweep.lua),
--          limit_attempts (that many executions may be lost)
-- Answer: send and dead, lists of {member, attempt, failures, repeated, task}, broken, a list of members whose entries are
--         none of ours, and awaited (see sweep.lua). What is dead or broken stays here, and is given again to each that asks,
--         until it is removed.
function actions.look_after()
    local send, dead, broken, awaited = {}, {}, {}, {}

    -- What was noted before the clock was set back is noted anew (see sweep.lua); nobody knows for when a retry was.
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
    return { send = send, dead = dead, broken = broken, awaited = names(awaited) }
end

-- Take a call that is dead out of the outbox, unless it was sent again since.
--
-- Request: member, attempts (so many executions of it were begun; 0 where it is no entry of ours)
-- Answer: is_taken
function actions.take_dead()
    local _, attempts = read_condition(redis.call('HGET', outbox, request.member))
    local is_taken = (attempts or 0) >= request.attempts
    if is_taken then
        end_in_background(request.member, true)
    end
    return { is_taken = is_taken }
end

-- Note that no code has come yet that admits a call which was sent and forgotten (SPEC R17.3).
--
-- Request: member, attempt (that was given back)
-- Answer: now, since (when the first one was given back, in ms; nil where the call is in other hands), and code_came (when a
--         worker began after one was given back)
function actions.note_given_back()
    local _, attempt = read_condition(redis.call('HGET', outbox, request.member))
    local since
    if attempt == request.attempt then
        redis.call('HSETNX', outbox_tasks, request.member .. '\31since', as_text(now))
        since = tonumber(redis.call('HGET', outbox_tasks, request.member .. '\31since'))
    end
    local code_came = redis.call('HGET', state, 'code_came')
    return { now = now, since = since, code_came = tonumber(code_came or 0) }
end

return cmsgpack.pack(actions[request.action]())
