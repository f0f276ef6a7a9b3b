-- Note when runs are to be looked at next, where nothing has been noted since they were taken.
--
-- KEYS 1 due  zset  run -> the time in ms at which something is due in it
-- ARGV 1 msgpack: a list of {run, mark (its score as it was taken), next (in ms, or 0 where nothing will be due)}

for _, one in ipairs(cmsgpack.unpack(ARGV[1])) do
    local run, mark, next = unpack(one)
    if tonumber(redis.call('ZSCORE', KEYS[1], run) or 0) == mark then
        if next == 0 then
            redis.call('ZREM', KEYS[1], run)
        else
            redis.call('ZADD', KEYS[1], next, run)
        end
    end
end
