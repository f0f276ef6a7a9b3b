-- What sweeps note beside the runs: when one took place, and when runs are to be looked at.
--
-- KEYS: noted
-- USES: common
-- Request: action (one of those below)

local actions = {}

-- Note that a sweep reached both servers and read the heartbeats there, and say whether recovery is suspended.
--
-- Where no worker could do so for a while, heartbeats may have been missed: for some time nothing is declared lost. A worker
-- that alone could not suspends nothing, since others have noted their sweeps meanwhile. The key is a hash: `heard` (the
-- time in ms of the last sweep), `until` (recovery is suspended until then).
--
-- Request: gap_ms (so long may no worker sweep), pause_ms, since (there was nothing to sweep before, in ms)
-- Answer: is_suspended
function actions.hear()
    local found = redis.call('HMGET', noted, 'heard', 'until')
    local heard, suspended = tonumber(found[1] or nil), tonumber(found[2] or nil)
    redis.call('HSET', noted, 'heard', as_text(now))
    if heard and now - math.max(heard, request.since) > request.gap_ms then
        suspended = now + request.pause_ms
        redis.call('HSET', noted, 'until', as_text(suspended))
    end
    -- No longer than a pause: nothing of ours writes a later time.
    return { is_suspended = suspended ~= nil and suspended > now and suspended <= now + request.pause_ms }
end

-- Note when runs are to be looked at next, where nothing has been noted since they were taken. The key is a sorted set.
--
-- Request: runs: {run, mark (its score as it was taken), next (in ms, or 0 where nothing will be due)}
-- Answer: is_noted
function actions.settle()
    for _, one in ipairs(request.runs) do
        local run, mark, next = unpack(one)
        if tonumber(redis.call('ZSCORE', noted, run) or 0) == mark then
            if next == 0 then
                redis.call('ZREM', noted, run)
            else
                redis.call('ZADD', noted, next, run)
            end
        end
    end
    return { is_noted = true }
end

return cmsgpack.pack(actions[request.action]())
