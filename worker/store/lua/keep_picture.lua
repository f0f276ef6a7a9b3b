-- Keep a picture that a tool has answered beside the log of a run that goes on, within what the run may write.
--
-- KEYS: state pictures
-- USES: common
-- Request: digest, content, most_bytes (what a run may write)
-- Answer: answer ("kept"; "full" where the run may not write so much; "over")

local status, bytes = unpack(redis.call('HMGET', state, 'status', 'bytes'))
if not status or is_over(status) then
    return cmsgpack.pack({ answer = 'over' })
end
if redis.call('HEXISTS', pictures, request.digest) == 0 then
    if tonumber(bytes or 0) + #request.content > request.most_bytes then
        return cmsgpack.pack({ answer = 'full' })
    end
    redis.call('HSET', pictures, request.digest, request.content)
    redis.call('HINCRBY', state, 'bytes', #request.content)
end
return cmsgpack.pack({ answer = 'kept' })
