-- A run's lanes go to the queue a window at a time, so that a run of very many does not keep the others waiting. This
-- stands before the scripts that let lanes out (see `scripts.read_script`).

-- Let out so many lanes that the window is full again, and mark them as published. Where that would be less than a tenth
-- of the window it is left to a later take-up, so that they are published in batches.
--
-- keys: state hash (wakes: how often parked lanes were woken), published zset (lane -> when its task counts as lost),
--       backlog list (lanes never published yet), parked zset (lane -> the wakes it has seen; one more lets it out)
-- Returns the lanes, to be published.
local function refill(keys, window, due)
    local room = window - redis.call('ZCARD', keys.published)
    if room < math.max(1, math.floor(window / 10)) then
        return {}
    end
    local lanes = redis.call('LPOP', keys.backlog, room) or {}
    local woken = {}
    if #lanes < room then
        local wakes = redis.call('HGET', keys.state, 'wakes') or '0'
        woken = redis.call('ZRANGEBYSCORE', keys.parked, '-inf', '(' .. wakes, 'LIMIT', 0, room - #lanes)
    end
    for _, lane in ipairs(woken) do
        redis.call('ZREM', keys.parked, lane)
        lanes[#lanes + 1] = lane
    end
    for _, lane in ipairs(lanes) do
        redis.call('ZADD', keys.published, due, lane)
    end
    return lanes
end
