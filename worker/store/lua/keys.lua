-- What becomes of a run's keys as a whole: they are written, expire, are deleted; instances are taken out of them.
--
-- KEYS: state log log_kept lanes instances outbox outbox_tasks outbox_due dead_calls files pictures progress *
-- USES: common
-- Request: action (one of those below)

local actions = {}

-- Write a part of a run down, whole or not at all (see run_writer.py). A run has one writer at a time: who begins takes over
-- from one that has not started it, and what that one sends later is refused. A part that is sent again is written once.
-- `state` has `writer`: "<who>:<how many parts are written>".
--
-- Request: who, part (its number, from 0; -1 gives the run up), commands (of the part)
-- Answer: is_written (or given up; else another writes the run, or has started it)
function actions.write()
    local who, part = request.who, request.part
    local run = redis.call('HMGET', state, 'writer', 'status')
    local writer = run[1] or ''
    if part == -1 then
        local is_ours = string.sub(writer, 1, #who + 1) == who .. ':'
        if is_ours then
            redis.call('UNLINK', unpack(KEYS))
        end
        return { is_written = is_ours }
    end
    if writer == who .. ':' .. (part + 1) then
        return { is_written = true }
    end
    if part == 0 and not run[2] then
        redis.call('HSET', state, 'writer', who .. ':0') -- a server that is full refuses this, and no deletion
        redis.call('UNLINK', unpack(KEYS))
    elseif part == 0 or writer ~= who .. ':' .. part then
        return { is_written = false }
    end
    for _, command in ipairs(request.commands) do
        redis.call(unpack(command))
    end
    redis.call('HSET', state, 'writer', who .. ':' .. (part + 1))
    return { is_written = true }
end

-- Give every key its expiry, if the run is over: calls may have been added to it meanwhile (SPEC R11.7).
--
-- Request: seconds
-- Answer: is_over
function actions.expire()
    local status = redis.call('HGET', state, 'status')
    local over = not status or is_over(status)
    for _, key in ipairs(over and KEYS or {}) do
        redis.call('EXPIRE', key, request.seconds)
    end
    return { is_over = over }
end

-- Delete every key, if the run is over: calls may have been added to it meanwhile. Or say what the run holds.
--
-- Request: deletes (else it only says), reads (a format: a run of another is deleted, too, while it is under way; or nil),
--          keeps_outstanding (a run stays whose calls that were sent and forgotten are not done)
-- Answer: status (none where there is no run), bytes (that its keys take, as the server estimates it), outstanding (how many
--         calls that were sent and forgotten are not done), is_deleted
function actions.delete()
    local status, format = unpack(redis.call('HMGET', state, 'status', 'format'))
    local is_foreign = request.reads and not reads(format, request.reads)
    local outstanding, bytes = redis.call('HLEN', outbox), 0
    for _, key in ipairs(KEYS) do
        bytes = bytes + (redis.call('MEMORY', 'USAGE', key) or 0)
    end
    local is_deleted = request.deletes and (not status or is_over(status) or is_foreign)
        and not (request.keeps_outstanding and outstanding > 0)
    if is_deleted then
        redis.call('UNLINK', unpack(KEYS))
    end
    return { status = status or nil, bytes = bytes, outstanding = outstanding, is_deleted = is_deleted and true or false }
end

-- Put a log without the entries of some lanes in the place of the log (see client/deleting.py), if the run is over and
-- nothing was added to it since the log was read.
--
-- Request: instances, lanes (as keys name them), last (the id up to which the log was read), calls (of them, in the outbox),
--          files (digests that nothing else shows), rules (that have lost values: they are revoked), deleted (JSON: the instances of the run that were deleted, with these),
--          who (see audit.py)
-- Answer: status (none where there is no run), is_done
function actions.forget()
    local status = redis.call('HGET', state, 'status')
    local newest = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
    if not (status and is_over(status) and newest and newest[1] == request.last) then
        return { status = status or nil, is_done = false }
    end
    local left_ms = redis.call('PTTL', log)
    redis.call('RENAME', log_kept, log)
    if left_ms > 0 then
        redis.call('PEXPIRE', log, left_ms)
    else
        redis.call('PERSIST', log)
    end
    for _, lane in ipairs(request.lanes) do
        redis.call('HDEL', lanes, lane)
    end
    for _, instance in ipairs(request.instances) do
        redis.call('LREM', instances, 0, instance)
    end
    for _, call in ipairs(request.calls) do
        redis.call('HDEL', outbox, call)
        redis.call('HDEL', outbox_tasks, call)
        redis.call('ZREM', outbox_due, call)
        redis.call('SREM', dead_calls, call)
    end
    for _, digest in ipairs(request.files) do
        redis.call('HDEL', files, digest)
        redis.call('HDEL', pictures, digest)
    end
    for _, rule in ipairs(request.rules) do
        if redis.call('HDEL', state, 'rule:' .. rule) == 1 then
            local last, open = read_lane(redis.call('HGET', lanes, ''))
            last = redis.call('XADD', log, '*', 'l', '', 'p', last, 'revoked', rule, 'audit', request.who)
            redis.call('HSET', lanes, '', last .. ':' .. open)
            redis.call('HSET', state, 'rules', last)
        end
    end
    redis.call('UNLINK', progress)
    redis.call('HSET', state, 'deleted', request.deleted)
    redis.call('XADD', log, '*', 'audit', request.who)
    return { status = status, is_done = true }
end

-- Note that the run was exported as spans as far as it has come, unless it is gone: what expires stays gone.
--
-- Request: finished (of its state, as it was read)
-- Answer: is_noted
function actions.note_traced()
    local is_noted = redis.call('EXISTS', state) == 1
    if is_noted then
        redis.call('HSET', state, 'traced', request.finished)
    end
    return { is_noted = is_noted }
end

return cmsgpack.pack(actions[request.action]())
