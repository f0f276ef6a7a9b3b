-- A worker has begun, and its code may admit what was given back (SPEC R17.3): those calls are due now.
--
-- A call that has failed before keeps its time: that may be the delay of its retry.
--
-- KEYS: state leases calls outbox outbox_due
-- USES: clock condition
-- Request: most (how many calls at most)
-- Answer: status (none where there is no such run)

local function wake(due, conditions, holder)
    -- What rests is due later than what is at work.
    for _, member in ipairs(redis.call('ZREVRANGEBYSCORE', due, '+inf', '(' .. as_text(now), 'LIMIT', 0, request.most)) do
        local kind, attempt, failures, known = read_condition(redis.call('HGET', conditions, member))
        if kind == 'retry' and failures == 0 then
            redis.call('HSET', conditions, member, condition(kind, attempt, failures, holder or known))
            redis.call('ZADD', due, now, member)
        end
    end
end

local status = redis.call('HGET', state, 'status')
if status then
    redis.call('HSET', state, 'code_came', as_text(now))
    wake(leases, calls, as_text(now))
    wake(outbox_due, outbox)
end
return cmsgpack.pack({ status = status or nil })
