-- The lanes of a run: what the log has of each.
--
-- KEYS: log lanes

-- A lane's last entry and how many of its calls are open, from its field in `lanes`.
local function read_lane(entry)
    local last, open = string.match(entry or '0-0:0', '^(.*):(%d+)$')
    return last, tonumber(open)
end

-- Append an entry that ends no call to a lane; returns its id.
local function append_entry(lane, ...)
    local last, open = read_lane(redis.call('HGET', lanes, lane))
    last = redis.call('XADD', log, '*', 'l', lane, 'p', last, ...)
    redis.call('HSET', lanes, lane, last .. ':' .. open)
    return last
end

-- Whether an id of the log is older than another.
local function is_before(id, other)
    local ms, number = string.match(id, '^(%d+)-(%d+)$')
    local other_ms, other_number = string.match(other, '^(%d+)-(%d+)$')
    ms, other_ms = tonumber(ms), tonumber(other_ms)
    return ms < other_ms or (ms == other_ms and tonumber(number) < tonumber(other_number))
end
