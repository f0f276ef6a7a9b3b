-- The steps of an amendment (see worker/client/amendment.py). From `begin` to `end` the run is paused and cannot be resumed, and
-- `remaining` counts one more than there are calls, so that it does not end with those that are at work.
--
-- `state` has amending (who is at it), amending:by (which amendment, once it is known to fit), amending:since (the last id
-- before it), amending:resumes ("1": the run goes on with its end, unless it is paused meanwhile), amending:gathers (gather calls that wait for its end), amended (for each amendment the last id before it and its own last,
-- joined by colons), amending:written (the number of the last lane that was written by who is at it: a client of a cluster
-- sends a step again whose answer was lost).
--
-- KEYS: published backlog parked *
-- USES: status amend_lane amend_undo names
-- Request: step, who, and for the step
--        begin   adds: it adds calls, also to a run that has ended (SPEC R11.7)
--        plan    adds, by: this amendment is about to be written; deed: who does it (see audit.py); gathers (gather calls
--                of which lanes are about to have something more to wait for, see amend_undo.lua; or nil)
--        skip, lane   see amend_lane.lua; lane has its number
--        undo         see amend_undo.lua
--        drop    it does not fit: all as before, unless another attempt has been written in part
--        end     output_fault (see status.lua, or nil)
-- Answer: status (of the run; "gone" where there is none), is_ours (whether who is at it still), by, resumes,
--          is_streaming (refused, since a model is writing calls of it)

local run = redis.call('HMGET', state, 'status', 'amending')
local status, amending = run[1], run[2]
local resumes = false

local function last_id()
    return redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1][1]
end

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
