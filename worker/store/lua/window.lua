-- A run's lanes go to the queue a window at a time, so that a run of very many does not keep the others waiting.
--
-- KEYS: state published backlog parked

-- Let out so many lanes that the window is full again, and mark them as published. Where that would be less than a tenth
-- of the window it is left to a later take-up, so that they are published in batches. `state` counts in `wakes` how often
-- parked lanes were woken; `parked` has the wakes that each has seen: one more lets it out.
-- Returns the lanes, to be published.
local function refill(window, due)
    local room = window - redis.call('ZCARD', published)
    if room < math.max(1, math.floor(window / 10)) then
        return {}
    end
    local lanes = redis.call('LPOP', backlog, room) or {}
    local woken = {}
    if #lanes < room then
        local wakes = redis.call('HGET', state, 'wakes') or '0'
        woken = redis.call('ZRANGEBYSCORE', parked, '-inf', '(' .. wakes, 'LIMIT', 0, room - #lanes)
    end
    for _, lane in ipairs(woken) do
        redis.call('ZREM', parked, lane)
        lanes[#lanes + 1] = lane
    end
    for _, lane in ipairs(lanes) do
        redis.call('ZADD', published, due, lane)
    end
    return lanes
end
