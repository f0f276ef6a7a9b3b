-- Note when runs are to be looked at next, where nothing has been noted since they were taken.
--
-- KEYS: due
-- Request: runs: {run, mark (its score as it was taken), next (in ms, or 0 where nothing will be due)}

for _, one in ipairs(request.runs) do
    local run, mark, next = unpack(one)
    if tonumber(redis.call('ZSCORE', due, run) or 0) == mark then
        if next == 0 then
            redis.call('ZREM', due, run)
        else
            redis.call('ZADD', due, next, run)
        end
    end
end
return cmsgpack.pack({ status = 'noted' })
