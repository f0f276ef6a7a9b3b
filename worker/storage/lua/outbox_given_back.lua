-- Note that no code has come yet that admits a call which was sent and forgotten (SPEC R17.3).
--
-- KEYS: outbox outbox_tasks
-- USES: clock condition
-- Request: member, attempt (that was given back)
-- Answer: now, and since (when the first one was given back, in ms; nil where the call is in other hands)

local _, attempt = read_condition(redis.call('HGET', outbox, request.member))
local since
if attempt == request.attempt then
    redis.call('HSETNX', outbox_tasks, request.member .. '\31since', as_text(now))
    since = tonumber(redis.call('HGET', outbox_tasks, request.member .. '\31since'))
end
return cmsgpack.pack({ now = now, since = since })
