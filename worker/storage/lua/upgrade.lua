-- Have a run that the version before has written become one of ours: workers of that version leave it alone from then on.
--
-- KEYS: state definition outbox
-- Request: before, after (its definition), format
-- Answer: is_done (else another worker has done it, or the run is gone)

local is_done = redis.call('GET', definition) == request.before
if is_done then
    redis.call('SET', definition, request.after, 'KEEPTTL')
    redis.call('HSET', state, 'format', request.format)
    local sent = math.max(tonumber(redis.call('HGET', state, 'n:sent') or 0), redis.call('HLEN', outbox))
    if sent > 0 then
        redis.call('HSET', state, 'sent', sent)
    end
end
return cmsgpack.pack({ is_done = is_done })
