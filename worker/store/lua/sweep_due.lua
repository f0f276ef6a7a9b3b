-- What is due in a run: promises that have not come in time (`promises_due` in the state, in ms) are given up, and held calls
-- on which no person has decided in time (`approve_ms`) are rejected.
--
-- KEYS: state held
-- USES: sweep_run lanes held
-- Request: most

if promises_due and promises_due <= now then
    append_entry('', 'gave_up', '1')
    redis.call('HDEL', state, 'promises_due')
    redis.call('HINCRBY', state, 'wakes', 1)
    promises_due = nil
    publish('', false, true)
end

local undecided = {}
if approve_ms then
    undecided = redis.call('ZRANGEBYSCORE', held, '-inf', now - approve_ms, 'LIMIT', 0, request.most)
    local seconds = string.format('%g', approve_ms / 1000)
    local ruling = cmsgpack.pack({
        verdict = 'rejected',
        reason = 'no person decided within ' .. seconds .. ' s (config.approve_seconds)',
    })
    local who = cmsgpack.pack({ did = 'rejected', by = 'config.approve_seconds', from = 'workers' })
    local woken = {}
    for _, member in ipairs(undecided) do
        local lane = string.match(member, '^(.*)\31[^\31]*$')
        if decide(member, ruling, who, due) and not woken[lane] then
            woken[lane] = true
            to_publish[#to_publish + 1] = lane
        end
    end
end
