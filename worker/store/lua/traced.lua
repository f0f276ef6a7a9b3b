-- Note that a run was exported as spans as far as it has come, unless it is gone: what expires stays gone.
--
-- KEYS: state
-- Request: end (its `finished` as it was read)
-- Answer: is_noted

local is_noted = redis.call('EXISTS', state) == 1
if is_noted then
    redis.call('HSET', state, 'traced', request['end'])
end
return cmsgpack.pack({ is_noted = is_noted })
