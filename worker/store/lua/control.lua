-- What people do to a run under way: change its status, send it messages, decide on its held calls. Each costs the same at
-- any size of the run. What becomes due is marked as published, so that the sweep publishes it should the client die before
-- it has.
--
-- KEYS: state
-- USES: run
-- Request: action (one of those below), published_ms (how long a published task may lie before it counts as lost), window
--          (see `refill` in run.lua)

local actions = {}

-- Change the status of a run on order: pause it, resume it, cancel it (SPEC R11.1).
--
-- Request: wanted (the status: paused, running, cancelled), most (how many lanes may be published), who (orders it, see
--          audit.py), approves (it is resumed since its plan was approved, which was read when `amended` of its state was
--          this, see amend.lua)
-- Answer: before and status (none where there is no run; status is the old one where it may not change: it is over, or it
--         is to be resumed and is being amended, or its plan is to be approved), is_planned (the latter), lanes (to be
--         published: those of a resumed run that were not published since, so ask until none come)
function actions.set_status()
    local wanted = request.wanted
    local status, amending, plan, amended = unpack(redis.call('HMGET', state, 'status', 'amending', 'plan', 'amended'))
    local is_half_amended = wanted == 'running' and amending ~= false
    local is_planned = wanted == 'running' and plan ~= false and request.approves ~= (amended or '') and not is_half_amended
    if not status or (status ~= wanted and is_over(status)) or is_half_amended or is_planned then
        return { before = status or nil, status = status or nil, lanes = {}, is_planned = is_planned }
    end
    if wanted == 'running' then
        redis.call('HDEL', state, 'plan')
    end
    if wanted == 'paused' and amending then
        redis.call('HSET', state, 'amending:resumes', '0')
    end
    if status ~= wanted then
        change_status(wanted, request.who)
    end
    local found = {}
    if wanted == 'running' then
        local due = now + request.published_ms
        found = redis.call('ZRANGEBYSCORE', published, 0, 0, 'LIMIT', 0, request.most)
        for _, lane in ipairs(found) do
            redis.call('ZADD', published, due, lane)
        end
        if #found == 0 then
            found = refill(request.window, due)
        end
    end
    return { before = status, status = wanted, lanes = found }
end

-- Add messages to a run under way (SPEC R11.6): all of them or none, each at the end of its lane.
--
-- Request: messages (pairs of lane and message, which is msgpack), who (sends them; see audit.py), most_bytes (what a run
--          may write)
-- Answer: status (of the run; "gone" where there is none), is_amended (whether it is amended in part: nothing was added),
--         bytes (what the run had written), is_full (whether it may not write these, too: nothing was added), ids (of what
--         was added), lanes (to be published)
function actions.send()
    local status, amending, look, bytes = unpack(redis.call('HMGET', state, 'status', 'amending', 'look', 'bytes'))
    bytes = tonumber(bytes or 0)
    local ids, woken, touched, grown = {}, {}, {}, 0
    for _, pair in ipairs(request.messages) do
        grown = grown + #pair[2]
    end
    local is_full = bytes + grown > request.most_bytes
    if status and not is_over(status) and not amending and not is_full then
        redis.call('HINCRBY', state, 'bytes', grown)
        local due = now + request.published_ms
        for i, pair in ipairs(request.messages) do
            local lane = pair[1]
            ids[i] = append_entry(lane, 'm', pair[2], 'audit', request.who)
            if not touched[lane] then
                touched[lane] = true
                woken[#woken + 1] = lane
                redis.call('ZADD', published, rests(status) and 0 or due, lane)
            end
        end
        if touched[''] then
            redis.call('HINCRBY', state, 'wakes', 1)
        end
        if rests(status) then
            woken = {}
        else
            for _, lane in ipairs(refill(request.window, due)) do
                woken[#woken + 1] = lane
            end
            look_by(due, look)
        end
    end
    return {
        status = status or 'gone', is_amended = amending ~= false, is_full = is_full, bytes = bytes, ids = ids, lanes = woken,
    }
end

-- Decide on one held call (SPEC R14.2): the first decision counts.
--
-- Request: member (the call, as in `calls`), ruling (msgpack), who (has decided, msgpack), shown (the entry of the log that
--          the person has seen), rule (msgpack, that is given with the decision; or nil)
-- Answer: status (of the run; "gone" where there is none), is_amended (whether it is amended in part: nothing was
--         decided), id (of the entry; none where the call is not held), is_published (whether the lane is to be published)
function actions.decide()
    local status, amending, look = unpack(redis.call('HMGET', state, 'status', 'amending', 'look'))
    local id
    if status and not is_over(status) and not amending then
        local due = now + request.published_ms
        id = decide(request.member, request.ruling, request.who, rests(status) and 0 or due, request.shown)
        if id and request.rule then
            local rule = append_entry('', 'rule', request.rule, 'audit', request.who)
            redis.call('HSET', state, 'rules', rule, 'rule:' .. rule, '1')
        end
        if id and status == 'running' then
            look_by(due, look)
        end
    end
    return {
        status = status or 'gone',
        is_amended = amending ~= false,
        id = id,
        is_published = id ~= nil and status == 'running',
    }
end

-- Revoke a rule of the run (SPEC R16.8): it lets no call start from now on.
--
-- Request: rule (the id of the entry that gave it), who (revokes it, msgpack)
-- Answer: status (of the run; "gone" where there is none), id (of the entry; none where no such rule is in force)
function actions.revoke()
    local status, id = redis.call('HGET', state, 'status'), nil
    if status and not is_over(status) and redis.call('HDEL', state, 'rule:' .. request.rule) == 1 then
        id = append_entry('', 'revoked', request.rule, 'audit', request.who)
        redis.call('HSET', state, 'rules', id)
    end
    return { status = status or 'gone', id = id }
end

-- Move the moment that a call waits for (SPEC R4.12).
--
-- Request: member (the call, as in `calls`), moment (in ms), who (moves it, msgpack)
-- Answer: status (of the run; "gone" where there is none), is_amended (whether it is amended in part: nothing was moved),
--         id (of the entry; none where the call waits for no moment)
function actions.move()
    local status, amending, look = unpack(redis.call('HMGET', state, 'status', 'amending', 'look'))
    local id
    if status and not is_over(status) and not amending and redis.call('ZSCORE', waits, request.member) then
        local lane, call = string.match(request.member, '^(.*)\31([^\31]*)$')
        id = append_entry(lane, 'c', call, 'moved', as_text(request.moment), 'audit', request.who)
        redis.call('ZADD', waits, request.moment, request.member)
        if status == 'running' then
            look_by(request.moment, look)
        end
    end
    return { status = status or 'gone', is_amended = amending ~= false, id = id }
end

return cmsgpack.pack(actions[request.action]())
