-- Note that no code has come yet that admits a call which was sent and forgotten (SPEC R17.3).
--
-- KEYS: outbox outbox_tasks state
-- USES: clock condition
-- Request: member, attempt (that was given back)
-- Answer: now, since (when the first one was given back, in ms; nil where the call is in other hands), and code_came (when a
--         worker began after one was given back)

local _, attempt = read_condition(redis.call('HGET', outbox, request.member))
local since
if attempt == request.attempt then
    redis.call('HSETNX', outbox_tasks, request.member .. '\31since', as_text(now))
    since = tonumber(redis.call('HGET', outbox_tasks, request.member .. '\31since'))
end
local code_came = redis.call('HGET', state, 'code_came')
return cmsgpack.pack({ now = now, since = since, code_came = tonumber(code_came or 0) })
