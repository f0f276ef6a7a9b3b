-- The steps of an amendment (see worker/client/amendment.py). From `begin` to `end` the run is paused and cannot be
-- resumed, and `remaining` counts one more than there are calls, so that it does not end with those that are at work.
--
-- `state` has amending (who is at it), amending:by (which amendment, once it is known to fit), amending:since (the last id
-- before it), amending:resumes ("1": the run goes on with its end, unless it is paused meanwhile), amending:gathers (gather
-- calls that wait for its end), amended (for each amendment the last id before it and its own last, joined by colons),
-- amending:written (the number of the last lane that was written by who is at it: a client of a cluster sends a step again
-- whose answer was lost).
--
-- KEYS: published backlog parked calls state log lanes gathers held waits pending_webhooks *
-- USES: run
-- Request: step, who, and for the step
--        begin   adds: it adds calls, also to a run that has ended (SPEC R11.7)
--        plan    adds, by: this amendment is about to be written; deed: who does it (see audit.py); gathers (gather calls
--                of which lanes are about to have something more to wait for, see `undo`; or nil)
--        skip    lane, dropped (calls to be skipped, but for those that have ended meanwhile), detail (of these outcomes,
--                msgpack)
--        lane    the same, number, ruling and decided (what a person has decided of the one held call that is dropped, and
--                who it was, or nil: see `decide` in run.lua), and record and shared (what becomes of the lane, and of all
--                lanes or ""), added (how many calls), gathers (pairs of a new gather call and the number of lanes in which
--                it waits)
--        undo    lane, undone (calls that have ended, or are held), keeping (those of them of which only the elements that
--                failed run again, or nil), stale (calls, or nil), detail (who has it so, msgpack), record (or
--                ""), parts (the elements that run again, see commit.lua, or nil), withdrawn (those of all
--                these that were sent and forgotten, but for calls whose elements were), given (outcomes given by hand:
--                {call, status, detail, messages}), unsettled (gather calls that have something to wait for in the lane
--                again; see `guard`)
--        drop    it does not fit: all as before, unless another attempt has been written in part
--        end     output_fault (see run.lua, or nil)
-- Answer: status (of the run; "gone" where there is none), is_ours (whether who is at it still), by, resumes,
--          is_streaming (refused, since a model is writing calls of it)

-- A lane that is amended: calls that have not begun are skipped, and its record is another one.
local function skip()
    local last, open = read_lane(redis.call('HGET', lanes, request.lane))
    local skipped = 0
    for _, call in ipairs(request.dropped) do
        local field = request.lane .. '\31' .. call
        local entry = redis.call('HGET', calls, field)
        local is_held = read_condition(entry) == 'held'
        if not entry or is_held then
            redis.call('HSET', calls, field, 'skipped')
            local fields = { 'l', request.lane, 'p', last, 'c', call, 's', 'skipped', 'd', request.detail }
            if request.ruling then
                put(fields, 'decided', request.ruling)
                put(fields, 'audit', request.decided)
            end
            last = redis.call('XADD', log, '*', unpack(fields))
            skipped = skipped + 1
        end
        if is_held then -- it had begun to wait for a person
            redis.call('ZREM', held, field)
            redis.call('ZREM', waits, field)
            open = open - 1
        end
    end
    redis.call('HSET', lanes, request.lane, last .. ':' .. open)
    redis.call('HINCRBY', state, 'n:skipped', skipped)
    redis.call('HINCRBY', state, 'remaining', 0 - skipped) -- not -skipped: Redis takes -0 for no integer
    return last, open
end

local function amend_lane()
    local last, open = skip()
    local fields = { 'l', request.lane, 'p', last, 'k', request.record }
    if request.shared ~= '' then
        put(fields, 'amendment', request.shared)
    end
    last = redis.call('XADD', log, '*', unpack(fields))
    redis.call('HSET', lanes, request.lane, last .. ':' .. open)
    redis.call('HINCRBY', state, 'total', request.added)
    redis.call('HINCRBY', state, 'remaining', request.added)
    for _, pair in ipairs(request.gathers) do
        redis.call('HSET', gathers, pair[1], pair[2])
    end
    redis.call('RPUSH', backlog, request.lane)
end

-- A lane with calls that run again, or are given outcomes by hand, and with others that are stale (SPEC R11.8).

local function among(calls)
    local found = {}
    for _, call in ipairs(calls or {}) do
        found[call] = true
    end
    return found
end

-- Have a call count as one that has not ended; says whether it does, and how many more calls are open then.
local function undo_call(member, keeps)
    local entry = redis.call('HGET', calls, member)
    if read_condition(entry) == 'held' then
        redis.call('HDEL', calls, member)
        redis.call('ZREM', held, member)
        redis.call('ZREM', waits, member)
        redis.call('ZREM', pending_webhooks, member)
        return true, -1
    end
    if not has_ended(entry) then
        return false, 0
    end
    redis.call('HINCRBY', state, 'n:' .. entry, -1)
    redis.call('HINCRBY', state, 'remaining', 1)
    if not keeps then
        redis.call('HDEL', calls, member)
        return true, 0
    end
    redis.call('HSET', calls, member, condition('each', 1, 0))
    redis.call('HINCRBY', state, 'running', 1)
    return true, 1
end

-- Append the outcomes given by hand; returns the lane's last entry.
local function give(outcomes, last)
    for _, outcome in ipairs(outcomes) do
        if redis.call('HSETNX', calls, request.lane .. '\31' .. outcome.call, outcome.status) == 1 then
            for i = 1, math.max(#outcome.messages, 1) do
                local fields = { 'l', request.lane, 'p', last, 'c', outcome.call }
                if i >= #outcome.messages then
                    put(fields, 's', outcome.status)
                    put(fields, 'd', outcome.detail)
                end
                if outcome.messages[i] then
                    put(fields, 'm', outcome.messages[i])
                end
                last = redis.call('XADD', log, '*', unpack(fields))
            end
            redis.call('HINCRBY', state, 'n:' .. outcome.status, 1)
            redis.call('HINCRBY', state, 'remaining', -1)
        end
    end
    return last
end

local function undo()
    local last, open = read_lane(redis.call('HGET', lanes, request.lane))
    local field = request.lane .. '\31'
    local keeps, undone, keeping = among(request.keeping), {}, {}
    for _, one in ipairs(request.withdrawn or {}) do
        if redis.call('HGET', calls, field .. one) == 'sent' then
            withdraw_from_background(field .. one)
        end
    end
    for _, call in ipairs(request.undone) do
        local is_undone, opened = undo_call(field .. call, keeps[call])
        open = open + opened
        if is_undone then
            undone[#undone + 1] = call
            keeping[#keeping + 1] = keeps[call] and call
        end
    end
    for _, part in ipairs(request.parts or {}) do
        redis.call('HDEL', calls, field .. part)
    end
    local fields = { 'l', request.lane, 'p', last, 'd', request.detail, 'undone', cmsgpack.pack(undone) }
    for name, list in pairs({ keeping = keeping, stale = request.stale or {} }) do
        if #list > 0 then
            put(fields, name, cmsgpack.pack(list))
        end
    end
    if request.record ~= '' then
        put(fields, 'k', request.record)
    end
    last = redis.call('XADD', log, '*', unpack(fields))
    redis.call('HSET', state, 'retried:' .. request.lane, last)
    last = give(request.given, last)
    redis.call('HSET', lanes, request.lane, last .. ':' .. open)
    for _, call in ipairs(request.unsettled) do
        if redis.call('HDEL', calls, field .. call) == 1 then
            redis.call('HINCRBY', gathers, call, 1)
        end
    end
    redis.call('RPUSH', backlog, request.lane)
end

local run = redis.call('HMGET', state, 'status', 'amending')
local status, amending = run[1], run[2]
local resumes = false

local function change(to)
    status = to
    change_status(to)
end

local is_reopened = request.adds and (status == 'completed' or status == 'failed')
    and redis.call('HEXISTS', state, 'exceeded') == 0

local function begin()
    if not amending then
        redis.call('HSET', state, 'amending:resumes', (status == 'running' or is_reopened) and '1' or '0')
        redis.call('HINCRBY', state, 'remaining', 1)
    end
    if amending ~= request.who then
        redis.call('HDEL', state, 'amending:written')
    end
    redis.call('HSET', state, 'amending', request.who)
    if is_reopened then
        for _, key in ipairs(KEYS) do
            redis.call('PERSIST', key)
        end
        redis.call('HDEL', state, 'finished')
    end
    if status == 'running' or is_reopened then
        change('paused')
    end
end

local function guarded()
    return string.gmatch(redis.call('HGET', state, 'amending:gathers') or '', '%S+')
end

-- A gather call counts one lane more from `plan` to `end`, so that it does not begin before all lanes are written.
local function guard(asked)
    local known = {}
    for call in guarded() do
        known[call] = true
    end
    for _, call in ipairs(asked) do
        if not known[call] then
            known[call] = true
            redis.call('HINCRBY', gathers, call, 1)
        end
    end
    if next(known) then
        redis.call('HSET', state, 'amending:gathers', table.concat(names(known), ' '))
    end
end

local function plan()
    guard(request.gathers or {})
    if redis.call('HGET', state, 'amending:by') ~= request.by then
        if not request.adds then -- whatever has something left to do gets into the backlog anew
            redis.call('UNLINK', published, backlog, parked)
        end
        redis.call('HSETNX', state, 'amending:since', last_id())
        redis.call('XADD', log, '*', 'audit', request.deed)
    end
    redis.call('HSET', state, 'amending:by', request.by)
end

local function finish()
    local since = redis.call('HGET', state, 'amending:since')
    if since then
        local amended = redis.call('HGET', state, 'amended') or ''
        redis.call('HSET', state, 'amended', amended .. since .. ':' .. last_id() .. ' ')
    end
    local promise_ms = tonumber(redis.call('HGET', state, 'promise_ms') or nil)
    if promise_ms then
        redis.call('HSET', state, 'promises_due', as_text(now + promise_ms))
    end
    for call in guarded() do
        redis.call('HINCRBY', gathers, call, -1)
        redis.call('RPUSH', backlog, '')
    end
    resumes = redis.call('HGET', state, 'amending:resumes') == '1'
    redis.call('HDEL', state, 'amending', 'amending:by', 'amending:since', 'amending:resumes', 'amending:gathers',
        'amending:written')
    note_output_fault(request.output_fault)
    local loop = redis.call('HGET', state, 'loop:lane')
    if loop then -- nothing but the loop may be left
        redis.call('RPUSH', backlog, loop)
    end
    if redis.call('HINCRBY', state, 'remaining', -1) == 0 then
        change(end_status())
    elseif resumes and status == 'paused' then -- in one step: a client that dies now leaves the lanes to the sweep
        change('running')
    end
end

if not status then
    return cmsgpack.pack({ status = 'gone' })
end
local stage = redis.call('HGET', state, 'loop')
local is_streaming = request.step == 'begin' and stage and string.find(stage, '^open:') and not is_over(status)
local is_ours = (amending == request.who or request.step == 'begin') and (is_reopened or not is_over(status)) and not is_streaming
local by = redis.call('HGET', state, 'amending:by')
if is_ours then
    if request.step == 'begin' then
        begin()
    elseif request.step == 'plan' then
        plan()
    elseif request.step == 'skip' then
        skip()
    elseif request.step == 'undo' then
        undo()
    elseif request.step == 'lane' then
        if request.number > tonumber(redis.call('HGET', state, 'amending:written') or 0) then
            redis.call('HSET', state, 'amending:written', request.number)
            amend_lane()
        end
    elseif request.step == 'end' or not by then
        finish()
    end
end
return cmsgpack.pack({
    status = status,
    is_ours = is_ours,
    by = by or '',
    resumes = resumes or redis.call('HGET', state, 'amending:resumes') == '1',
    is_streaming = is_streaming and true or false,
})
