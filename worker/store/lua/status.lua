-- The status of a run: how it changes, how a run ends, and what ends it.
--
-- KEYS: state log statuses
-- USES: clock

local function is_over(status)
    return status ~= 'running' and status ~= 'paused'
end

-- Change the status of a run, and say so in its log and in the stream of its statuses: `who` did it (see audit.py), or
-- `reason` is why it has ended.
local function change_status(status, who, reason)
    redis.call('HSET', state, 'status', status)
    if status == 'running' then
        redis.call('HSET', state, 'resumed', as_text(now))
    elseif is_over(status) then
        redis.call('HSET', state, 'finished', now)
    end
    local fields = { 'status', status }
    if who then
        fields[#fields + 1] = 'audit'
        fields[#fields + 1] = who
    end
    if reason then
        fields[#fields + 1] = 'd'
        fields[#fields + 1] = cmsgpack.pack({ reason = reason })
    end
    local id = redis.call('XADD', log, '*', unpack(fields))
    redis.call('XADD', statuses, id, 's', status)
end

-- Note why a run's output cannot be read or does not fit: "" where all is well, nil where that is not known yet.
local function note_output_fault(fault)
    if fault == '' then
        redis.call('HDEL', state, 'output_fault')
    elseif fault then
        redis.call('HSET', state, 'output_fault', fault)
    end
end

-- How a run ends whose last call has ended. What failed in the ticks of a loop that is over counts no more (see loop.lua).
local function end_status()
    local failed, output_fault, missed, loop_fault, forgiven =
        unpack(redis.call('HMGET', state, 'n:failed', 'output_fault', 'missed', 'loop:fault', 'loop:forgiven'))
    local counts = tonumber(failed or 0) > tonumber(forgiven or 0)
    return (counts or output_fault or missed or loop_fault) and 'failed' or 'completed'
end

-- End a run under way as it stands, whatever is at work: it has exceeded a limit. Returns its status.
local function exceed(reason)
    redis.call('HSET', state, 'exceeded', reason)
    change_status('failed', nil, reason)
    return 'failed'
end

-- Count what a run has taken: `amount` more of `what`, of which it may have the `most`; beyond, it ends. Returns its status.
local function spend(status, what, amount, most, text)
    if amount == 0 or redis.call('HINCRBY', state, what, amount) <= most or is_over(status) then
        return status
    end
    return exceed(string.format(text, most))
end

local MOST_BYTES = 'more than %.0f bytes have been written to its log (ACTS_LIMIT_RUN_BYTES)'

-- Have the sweep look at the run at a time, unless it does before (`look` is when); says whether it does not.
local function look_by(at, look)
    if look and tonumber(look) <= at then
        return false
    end
    redis.call('HSET', state, 'look', as_text(at))
    return true
end
