-- Put a run's log without the entries of some lanes in the place of the log (see erasure.py), if the run is over and nothing
-- was added to it since the log was read.
--
-- KEYS: state log log_kept lanes instances outbox outbox_tasks outbox_due dead_calls files pictures
-- USES: status
-- Request: instances, lanes (as keys name them), last (the id up to which the log was read), calls (of them, in the outbox),
--          files (digests that nothing else shows), deleted (JSON: the instances of the run that were deleted, with these),
--          who (see audit.py)
-- Answer: status (none where there is no run), is_done

local status = redis.call('HGET', state, 'status')
local newest = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
local is_done = status and is_over(status) and newest and newest[1] == request.last
if is_done then
    local left_ms = redis.call('PTTL', log)
    redis.call('RENAME', log_kept, log)
    if left_ms > 0 then
        redis.call('PEXPIRE', log, left_ms)
    else
        redis.call('PERSIST', log)
    end
    for _, lane in ipairs(request.lanes) do
        redis.call('HDEL', lanes, lane)
    end
    for _, instance in ipairs(request.instances) do
        redis.call('LREM', instances, 0, instance)
    end
    for _, call in ipairs(request.calls) do
        redis.call('HDEL', outbox, call)
        redis.call('HDEL', outbox_tasks, call)
        redis.call('ZREM', outbox_due, call)
        redis.call('SREM', dead_calls, call)
    end
    for _, digest in ipairs(request.files) do
        redis.call('HDEL', files, digest)
        redis.call('HDEL', pictures, digest)
    end
    redis.call('HSET', state, 'deleted', request.deleted)
    redis.call('XADD', log, '*', 'audit', request.who)
end
return cmsgpack.pack({ status = status or nil, is_done = is_done and true or false })
