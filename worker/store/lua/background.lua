-- What is sent and forgotten (SPEC R5.1): it goes into the outbox once, and out of it once. `sent` in the state counts what was
-- put in, `dead_calls` has what failed for good: what is in neither is done.
--
-- KEYS: outbox outbox_tasks outbox_due dead_calls state
-- USES: clock condition

local function send_in_background(member, task, queue)
    local is_new = redis.call('HSET', outbox, member, condition('sent', 1, 0, as_text(now) .. '/' .. queue)) == 1
    redis.call('HSET', outbox_tasks, member, task)
    redis.call('ZADD', outbox_due, now + 1000, member) -- most are done by then
    if redis.call('SREM', dead_calls, member) == 0 and is_new then
        redis.call('HINCRBY', state, 'sent', 1)
    end
end

local function take_out(member)
    redis.call('HDEL', outbox_tasks, member, member .. '\31since') -- and since when it is given back
    redis.call('ZREM', outbox_due, member)
    return redis.call('HDEL', outbox, member) == 1
end

-- It is to be carried out again, and counts no more: what was sent before is not looked after any longer.
local function withdraw_from_background(member)
    take_out(member)
    redis.call('SREM', dead_calls, member)
    redis.call('HINCRBY', state, 'sent', -1)
end

-- Take it out of the outbox: it is done, or dead. Its run may have ended, and may be gone.
local function end_in_background(member, is_dead)
    local was_there = take_out(member)
    if was_there and is_dead and redis.call('EXISTS', state) == 1 then
        redis.call('SADD', dead_calls, member)
        local left = redis.call('PTTL', state)
        if left > 0 then
            redis.call('PEXPIRE', dead_calls, left)
        end
    end
end
