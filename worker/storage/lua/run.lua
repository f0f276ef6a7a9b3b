-- What several scripts do to a run. This stands before them (see `scripts.read_script`).

local function is_over(status)
    return status ~= 'running' and status ~= 'paused'
end

-- Whether a number is that of an element, and not of a call (see protocol/calls/elements.py): those are not counted.
local function is_element(call)
    return tonumber(call) >= 10000000
end

-- Change the status of a run, and say so in its log and in the stream of its statuses: `who` did it (see audit.py), or
-- `reason` is why it has ended.
local function change_status(state, log, statuses, status, now, who, reason)
    redis.call('HSET', state, 'status', status)
    if is_over(status) then
        redis.call('HSET', state, 'finished', now)
    end
    local fields = { 's', status }
    if who then
        fields[#fields + 1] = 'w'
        fields[#fields + 1] = who
    end
    if reason then
        fields[#fields + 1] = 'd'
        fields[#fields + 1] = cmsgpack.pack({ reason = reason })
    end
    local id = redis.call('XADD', log, '*', unpack(fields))
    redis.call('XADD', statuses, id, 's', status)
end

-- A lane's last entry and how many of its calls are open, from its field in `lanes`.
local function read_lane(entry)
    local last, open = string.match(entry or '0-0:0', '^(.*):(%d+)$')
    return last, tonumber(open)
end

-- Append an entry that ends no call to a lane; returns its id.
local function append_entry(log, lanes, lane, ...)
    local last, open = read_lane(redis.call('HGET', lanes, lane))
    last = redis.call('XADD', log, '*', 'l', lane, 'p', last, ...)
    redis.call('HSET', lanes, lane, last .. ':' .. open)
    return last
end

-- How a run ends whose last call has ended. What failed in the ticks of a loop that is over counts no more (see loop.lua).
local function end_status(state)
    local failed, output_fault, missed, loop_fault, forgiven =
        unpack(redis.call('HMGET', state, 'n:failed', 'output_fault', 'missed', 'loop:fault', 'loop:forgiven'))
    local counts = tonumber(failed or 0) > tonumber(forgiven or 0)
    return (counts or output_fault or missed or loop_fault) and 'failed' or 'completed'
end

-- Count what a run has taken: `amount` more of `what`, of which it may have the `most`. Beyond, a run under way ends as it
-- stands, whatever is at work. Returns its status.
local function spend(state, log, statuses, status, now, what, amount, most, text)
    if amount == 0 or redis.call('HINCRBY', state, what, amount) <= most or is_over(status) then
        return status
    end
    local reason = string.format(text, most)
    redis.call('HSET', state, 'exceeded', reason)
    change_status(state, log, statuses, 'failed', now, nil, reason)
    return 'failed'
end

local MOST_BYTES = 'more than %.0f bytes have been written to its log (ACTS_LIMIT_RUN_BYTES)'
