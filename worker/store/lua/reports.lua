-- What workers report that bears on a run's calls.
--
-- KEYS: calls leases unanswered progress state outbox outbox_due
-- USES: run
-- Request: action (one of those below)

local actions = {}

-- A report of an attempt that was given up already is ignored: the call is in other hands.
-- `queue` is the one in which a message is now, "" where a worker has it and nil where it stays.
local function note(refs, kind, queue, silent_ms)
    for _, ref in ipairs(refs) do
        local lane, call, attempt = unpack(ref)
        local member = lane .. '\31' .. call
        local before, number, failures, holder = read_condition(redis.call('HGET', calls, member))
        local is_known = before == 'sent' or (before == 'running' and queue ~= '')
        if is_known and number == attempt then
            holder = queue and sent_holder(read_holder(holder), now, queue) or holder
            redis.call('HSET', calls, member, condition(kind, number, failures, holder))
            redis.call('ZADD', leases, 'XX', now + silent_ms, member)
        end
    end
end

-- Progress that attempts at work have reported: an entry of the lane each, and in `progress` the last one of a call, as
-- `<attempt>:<said>`, for those who look.
--
-- Request: progressed: a list of {lane, call, attempt, said (msgpack; "" is refused)}, most_unanswered (members of `progress`)
local function note_progress()
    if #request.progressed == 0 or is_over(redis.call('HGET', state, 'status')) then
        return
    end
    for _, one in ipairs(request.progressed) do
        local lane, call, attempt, said = unpack(one)
        local member = lane .. '\31' .. call
        local kind, number = read_condition(redis.call('HGET', calls, member))
        if said ~= '' and is_under_way(kind) and number == attempt then
            append_entry(lane, 'c', call, 'progress', said)
            redis.call('HINCRBY', state, 'bytes', #said)
            if redis.call('HLEN', progress) >= request.most_unanswered then
                for _, other in ipairs(redis.call('HKEYS', progress)) do
                    if not is_under_way(read_condition(redis.call('HGET', calls, other))) then
                        redis.call('HDEL', progress, other)
                    end
                end
            end
            if redis.call('HEXISTS', progress, member) == 1 or redis.call('HLEN', progress) < request.most_unanswered then
                redis.call('HSET', progress, member, attempt .. ':' .. said)
                redis.call('PEXPIRE', progress, 3600000)
            end
        end
    end
end

function actions.progress()
    note_progress()
    return { is_noted = true }
end

local function forgotten(ref)
    local member = ref[1] .. '\31' .. ref[2]
    local kind, number, failures, sent = read_condition(redis.call('HGET', outbox, member))
    if kind and kind ~= 'new' and kind ~= 'retry' and number == ref[3] then
        return member, failures, sent, kind
    end
end

local function wake(due, conditions, holder)
    -- What rests is due later than what is at work.
    for _, member in ipairs(redis.call('ZREVRANGEBYSCORE', due, '+inf', '(' .. as_text(now), 'LIMIT', 0, request.most)) do
        local kind, attempt, failures, known = read_condition(redis.call('HGET', conditions, member))
        if kind == 'retry' and failures == 0 then
            redis.call('HSET', conditions, member, condition(kind, attempt, failures, holder or known))
            redis.call('ZADD', due, now, member)
        end
    end
end

-- Take note of what workers that see only the broker say of a run's calls (see worker/broker/messages.py). `unanswered`
-- has for lane and call msgpack {attempt, tries, at_ms (of the next try), type, why}.
--
-- Request: lease_ms, heard_ms and soon_ms (see sweep.lua), instances (the queue of results), begun, ended and reserved (taken
--          from a queue and not begun): lists of {lane, call, attempt}, completed: a list of {lane, call, attempt, delay_ms
--          (until the next attempt, or -1 where there is none), is_dead (it failed for good), given_back (the attempt does not
--          count)}, unanswered: a list of {lane, call, attempt, tries, wait_ms
--          (until the next try), type, why}, most_unanswered (members of it), progressed (see `note_progress`)
-- Answer: is_noted
function actions.heartbeats()
    for _, ref in ipairs(request.reserved) do
        local member, failures, sent, kind = forgotten(ref)
        if member and kind ~= 'running' then
            redis.call('HSET', outbox, member, condition('taken', ref[3], failures, sent))
            redis.call('ZADD', outbox_due, now + request.heard_ms, member)
        end
    end
    for _, ref in ipairs(request.begun) do
        local member, failures, sent = forgotten(ref)
        if member then
            redis.call('HSET', outbox, member, condition('running', ref[3], failures, sent))
            redis.call('ZADD', outbox_due, now + request.lease_ms, member)
        end
    end
    for _, completion in ipairs(request.completed) do
        local member, failures, sent = forgotten(completion)
        if member and completion[4] >= 0 then
            local counted = completion[6] and 0 or 1
            redis.call('HSET', outbox, member, condition('retry', completion[3] - 1 + counted, failures + counted, sent))
            redis.call('ZADD', outbox_due, now + completion[4], member)
        elseif member then
            end_in_background(member, completion[5])
        end
    end

    note(request.reserved, 'sent', '', request.heard_ms)
    note(request.begun, 'running', nil, request.lease_ms)
    note(request.ended, 'sent', request.instances, request.soon_ms)

    for _, said in ipairs(request.unanswered) do
        local lane, call, attempt, tries, wait_ms, type_, why = unpack(said)
        local member = lane .. '\31' .. call
        local kind, number = read_condition(redis.call('HGET', calls, member))
        local is_free = redis.call('HEXISTS', unanswered, member) == 1
            or redis.call('HLEN', unanswered) < request.most_unanswered
        if kind == 'running' and number == attempt and is_free then
            redis.call('HSET', unanswered, member, cmsgpack.pack({ attempt, tries, now + wait_ms, type_, why }))
            -- Also where the run has ended meanwhile, and its keys have their expiry already.
            redis.call('PEXPIRE', unanswered, wait_ms + 3600000)
        end
    end
    note_progress()
    for _, ref in ipairs(request.ended) do
        redis.call('HDEL', unanswered, ref[1] .. '\31' .. ref[2])
    end
    return { is_noted = true }
end

-- A worker has begun, and its code may admit what was given back (SPEC R17.3): those calls are due now.
--
-- A call that has failed before keeps its time: that may be the delay of its retry.
--
-- Request: most (how many calls at most)
-- Answer: status (none where there is no such run)
function actions.code_came()
    local status = redis.call('HGET', state, 'status')
    if status then
        redis.call('HSET', state, 'code_came', as_text(now))
        wake(leases, calls, as_text(now))
        wake(outbox_due, outbox)
    end
    return { status = status or nil }
end

return cmsgpack.pack(actions[request.action]())
