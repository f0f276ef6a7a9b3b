-- What several scripts do to a run: its status, its lanes, held calls, and what is sent and forgotten.
--
-- KEYS: state log statuses lanes published backlog parked calls held waits outbox outbox_tasks outbox_due dead_calls
-- USES: common

-- Change the status of a run, and say so in its log and in the stream of its statuses: `who` did it (see audit.py), or
-- `reason` is why it has ended.
local function change_status(status, who, reason)
    redis.call('HSET', state, 'status', status)
    if status == 'running' then
        redis.call('HSET', state, 'resumed', as_text(now))
        local promise_ms = redis.call('HDEL', state, 'at') == 1 and redis.call('HGET', state, 'promise_ms')
        if promise_ms then -- a run that begins only now waits from now on for what is promised
            redis.call('HSET', state, 'promises_due', as_text(now + promise_ms))
        end
    elseif is_over(status) then
        redis.call('HSET', state, 'finished', now)
    end
    local fields = { 'status', status }
    if who then
        put(fields, 'audit', who)
    end
    if reason then
        put(fields, 'd', cmsgpack.pack({ reason = reason }))
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

-- End a run under way as it is, whatever is at work: it has exceeded a limit. Returns its status.
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

-- The id of the newest entry of the log.
local function last_id()
    return redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1][1]
end

-- Append an entry that ends no call to a lane; returns its id.
local function append_entry(lane, ...)
    local last, open = read_lane(redis.call('HGET', lanes, lane))
    last = redis.call('XADD', log, '*', 'l', lane, 'p', last, ...)
    redis.call('HSET', lanes, lane, last .. ':' .. open)
    return last
end

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

-- Ask nobody any more how a call has ended whose end was not known (SPEC R4.11).
local function answer_for(member)
    local call = string.match(member, '([^\31]*)$')
    redis.call('HINCRBY', state, is_element(call) and 'unknown:each' or 'unknown', -1)
    redis.call('ZREM', held, member)
end

-- Say in the log what becomes of a held call, and mark its lane as published; nothing where it is not held (any more), or
-- held by another entry than the one that was `shown`, where that is given.
--
-- ruling msgpack    who msgpack, who has decided (see audit.py); nil where a moment has come    due when the lane's task counts as lost, in ms; 0 where
-- it is not published since the run is paused
-- Returns the id of the entry, or nil.
local function decide(member, ruling, who, due, shown)
    local kind, attempt, failures, snapshot = read_condition(redis.call('HGET', calls, member))
    if (kind ~= 'held' and kind ~= 'unknown') or (shown and snapshot ~= shown) then
        return nil
    end
    local lane, call = string.match(member, '^(.*)\31([^\31]*)$')
    local id = who and append_entry(lane, 'c', call, 'decided', ruling, 'audit', who)
        or append_entry(lane, 'c', call, 'decided', ruling)
    redis.call('HSET', calls, member, condition('decided', attempt, failures, id))
    if kind == 'unknown' then
        answer_for(member)
    end
    if attempt > 0 and not is_element(call) then
        redis.call('HINCRBY', state, 'between', 1)
    end
    redis.call('ZREM', held, member)
    redis.call('ZREM', waits, member)
    redis.call('ZADD', published, due, lane)
    return id
end

-- What is sent and forgotten (SPEC R5.1) goes into the outbox once, and out of it once. `sent` in the state counts what was put
-- in, `dead_calls` has what failed for good: what is in neither is done.
local function send_in_background(member, task, queue)
    local is_new = redis.call('HSET', outbox, member, condition('sent', 1, 0, as_text(now) .. '/' .. queue)) == 1
    redis.call('HSET', outbox_tasks, member, task)
    redis.call('ZADD', outbox_due, now + 1000, member) -- most are done by then
    if redis.call('SREM', dead_calls, member) == 0 and is_new then
        redis.call('HINCRBY', state, 'sent', 1)
    end
end

local function take_out(member)
    redis.call('HDEL', outbox_tasks, member, member .. '\31since') -- and since when it is given back
    redis.call('ZREM', outbox_due, member)
    return redis.call('HDEL', outbox, member) == 1
end

-- It runs again, and what was sent before counts no more: nobody looks after that.
local function withdraw_from_background(member)
    take_out(member)
    redis.call('SREM', dead_calls, member)
    redis.call('HINCRBY', state, 'sent', -1)
end

-- Take it out of the outbox: it is done, or dead. Its run may have ended, and may be gone.
local function end_in_background(member, is_dead)
    local was_there = take_out(member)
    if was_there and is_dead and redis.call('EXISTS', state) == 1 then
        redis.call('SADD', dead_calls, member)
        local left = redis.call('PTTL', state)
        if left > 0 then
            redis.call('PEXPIRE', dead_calls, left)
        end
    end
end
