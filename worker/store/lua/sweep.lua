-- Find what was begun or published and has given no sign of life in time, and what is due to be tried again; mark the
-- lanes of both as published again. Let out lanes of the backlog where the window has room. A call found lost, or due, can be
-- claimed anew.
--
-- KEYS: state leases held waits outbox_due published pending_webhooks calls
-- USES: run
-- Request: most (how many at most), date (now, as a text), published_ms (how long a published task may lie before it counts as lost), window (see
--          `refill` in run.lua), soon_ms (the time until the next sweep), format (of runs that this version reads; it leaves
--          others alone), tells (whether there is a web hook for what is held), most_told (for how many calls it is called
--          at most), telling_ms (how long that may take), instances (the queue of the lanes' tasks and of results),
--          consumed_until (for queues the time in ms before which everything published there was taken: a probe came out),
--          lease_ms, heard_ms (so soon after that the taker of a message is heard of), report_ms (workers report what they
--          have at work as often), suspended (heartbeats may have been missed: nothing at work is declared lost), holders
--          (drivers, and calls, that a process has said it is at work on: until when in ms), silent (processes that live and
--          report nothing, by what their drivers' names begin with: until when), silences (when each of them fell silent)
-- Answer: status (of the run; none where there is no such run), priority, parent (the call of another run that it is to
--         answer), lanes (to publish again), suspects (those of them that were lost), let_out (lanes of the backlog), lost
--         (how many tasks and calls), is_all (whether that is all of them), forgotten (how many calls were sent and
--         forgotten and not done), next_ms (when to look again; 0 where nothing will be due), awaited (queues from which a
--         probe is), pending_webhooks (held calls for which the web hook is to be called), waiting_for_silent ({member, process}
--         of what is held by a process that lives and reports nothing)

-- Whether there is anything to find in the run.

local consumed_until = request.consumed_until[request.instances] or 0
local awaited = {}
local run = redis.call('HMGET', state, 'status', 'format', 'promises_due', 'approve_ms', 'parent', 'at', 'amending', 'priority')
local status, format, promises_due, approve_ms = run[1], run[2], tonumber(run[3] or nil), tonumber(run[4] or nil)
local due = now + request.published_ms
local to_publish, lost = {}, 0
local forgotten = redis.call('ZCARD', outbox_due)

-- What was found, as the answer.
local function answer(next_ms, more)
    local found = {
        status = status or nil, parent = run[5] or nil, priority = tonumber(run[8] or 0), lanes = to_publish, suspects = {}, let_out = {}, lost = lost, is_all = true,
        forgotten = forgotten, next_ms = tonumber(next_ms), awaited = {}, pending_webhooks = {},
        waiting_for_silent = {},
    }
    for name, value in pairs(more or {}) do
        found[name] = value
    end
    return cmsgpack.pack(found)
end

-- Note when to look again: when the soonest of what these hold is due, and not twice in one sweep.
local function look_again(...)
    local soonest
    for _, key in ipairs({ ... }) do
        local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
        soonest = first and math.min(soonest or math.huge, tonumber(first)) or soonest
    end
    if promises_due and status == 'running' then
        soonest = math.min(soonest or promises_due, promises_due)
    end
    local waiting_hook = request.tells and redis.call('ZRANGE', pending_webhooks, 0, 0, 'WITHSCORES')[2]
    if waiting_hook and (status == 'running' or status == 'paused') then
        soonest = math.min(soonest or math.huge, tonumber(waiting_hook))
    end
    local oldest = approve_ms and status == 'running' and redis.call('ZRANGE', held, 0, 0, 'WITHSCORES')[2]
    if oldest then
        soonest = math.min(soonest or math.huge, oldest + approve_ms)
    end
    if not soonest then
        redis.call('HDEL', state, 'look')
        return '0'
    end
    local at = string.format('%.0f', math.max(soonest, now + request.soon_ms / 2))
    if status then
        redis.call('HSET', state, 'look', at)
    end
    return at
end

if not reads(format, request.format) or not status then
    return answer(now + 2 * request.published_ms)
end

-- A run that is to begin at a time begins (`at` in the state, in ms), unless its calls are being changed.
if status == 'scheduled' then
    local at = tonumber(run[6] or nil) or 0
    if at > now or run[7] then
        local look = as_text(math.max(at, now + request.soon_ms / 2))
        redis.call('HSET', state, 'look', look)
        return answer(look)
    end
    status = 'running'
    change_status(status)
    promises_due = tonumber(redis.call('HGET', state, 'promises_due') or nil)
end

local to_call = {}
if request.tells and (status == 'running' or status == 'paused') then
    to_call = redis.call('ZRANGEBYSCORE', pending_webhooks, '-inf', now, 'LIMIT', 0, request.most_told)
    for _, member in ipairs(to_call) do -- again, should the process that is given it die
        redis.call('ZADD', pending_webhooks, now + request.telling_ms, member)
    end
end
if status ~= 'running' then
    return answer(look_again(outbox_due), { pending_webhooks = to_call })
end

local suspects = {}

-- A lost lane is published twice: one task may be taken by a worker that is stopped, or does not come to begin it. A lane
-- whose task is on its way gets another mark where something `is_new`: who takes the task up may have read before that.
-- Looking again at what was lost before leaves the mark alone: put off each time, it would never run out.
local function publish(lane, is_lost, is_new)
    local mark = tonumber(redis.call('ZSCORE', published, lane) or 0)
    if mark > now and not is_new then
        return
    end
    redis.call('ZADD', published, due, lane)
    if mark <= now then
        to_publish[#to_publish + 1] = lane
        if is_lost then
            to_publish[#to_publish + 1] = lane
            suspects[#suspects + 1] = lane
        end
    end
end

-- What is due: promises that have not come in time (`promises_due` in the state, in ms) are given up, held calls on which
-- no person has decided in time (`approve_ms`) are rejected, and calls end whose moment has come.

if promises_due and promises_due <= now then
    append_entry('', 'gave_up', '1')
    redis.call('HDEL', state, 'promises_due')
    redis.call('HINCRBY', state, 'wakes', 1)
    promises_due = nil
    publish('', false, true)
end

local woken = {}
local function let_go(member, ruling, who)
    local lane = string.match(member, '^(.*)\31[^\31]*$')
    if decide(member, ruling, who, due) and not woken[lane] then
        woken[lane] = true
        to_publish[#to_publish + 1] = lane
    end
end

local ended = redis.call('ZRANGEBYSCORE', waits, '-inf', now, 'LIMIT', 0, request.most)
local has_come = #ended > 0 and cmsgpack.pack({ verdict = 'answered', answer = request.date })
for _, member in ipairs(ended) do
    let_go(member, has_come, nil)
    redis.call('ZREM', waits, member) -- also where the call waits no more
end

local undecided = {}
if approve_ms then
    undecided = redis.call('ZRANGEBYSCORE', held, '-inf', now - approve_ms, 'LIMIT', 0, request.most)
    local seconds = string.format('%g', approve_ms / 1000)
    local ruling = cmsgpack.pack({
        verdict = 'rejected',
        reason = 'no person decided within ' .. seconds .. ' s (config.approve_seconds)',
    })
    local who = cmsgpack.pack({ did = 'rejected', by = 'config.approve_seconds', from = 'workers' })
    for _, member in ipairs(undecided) do
        let_go(member, ruling, who)
    end
end

-- What has given no sign of life in time, of what was begun and what was published.
--
-- What may still lie in a queue waits its turn. A probe that comes out proves that what was published before it was taken,
-- and not more: its taker has time to be heard of, by a report (reports.lua) or a result, which may lie in a queue in
-- its turn.

-- What lies further ahead than anything of ours reaches was noted before the clock was set back, and is noted anew.
local furthest = now + 2 * request.lease_ms + request.published_ms
local function renew(member)
    if string.find(member, '\31@', 1, true) then
        return not string.find(member, '\31@due$')
    end
    local kind, attempt, failures, holder = read_condition(redis.call('HGET', calls, member))
    local owner, since, queue = read_holder(holder or '')
    if is_under_way(kind) and since then
        redis.call('HSET', calls, member, condition(kind, attempt, failures, sent_holder(owner, now, queue)))
    end
    return is_under_way(kind)
end
local function too_far(key)
    return ipairs(redis.call('ZREVRANGEBYSCORE', key, '+inf', '(' .. as_text(furthest), 'LIMIT', 0, request.most))
end
for _, member in too_far(leases) do
    if renew(member) then
        redis.call('ZADD', leases, now + request.lease_ms, member)
    end
end
for _, lane in too_far(published) do
    redis.call('ZADD', published, now + request.published_ms, lane)
end

local silent = redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, request.most)
-- When to look again whether a probe has come: soon, unless very many calls lie there.
local again = now + (#silent < request.most and request.soon_ms or request.published_ms)

-- Until when what a lease is of is held by a process that lives: a driver, or a call that a driver carries out itself.
local waiting_for_silent = {}
local function held_until(member)
    local owner = string.match(member, '\31@(.*)$')
    if not owner then
        local kind, _, _, holder = read_condition(redis.call('HGET', calls, member))
        owner = kind == 'running' and not string.find(holder, '/', 1, true) and holder
    end
    local living_until = owner and (request.holders[owner] or request.holders[member])
    local process = owner and string.match(owner, '^[^.]*%.')
    if not living_until and process and request.silent[process] then
        waiting_for_silent[#waiting_for_silent + 1] = { member, process }
        return request.silent[process]
    end
    return living_until
end

-- Whether what was taken at that time may be in a process that had just fallen silent. A result is handed in when that goes
-- on; a call is not begun there any more after two thirds of a lease (see sidecar.py), so none waits for longer than a lease.
local function may_be_silent(kind, since)
    for _, began in ipairs(request.silences) do
        local may_go_on = kind ~= 'sent' or now < began + request.lease_ms
        if may_go_on and since >= began and since < began + request.published_ms then
            return true
        end
    end
end

local function judge(member, lane)
    local living_until = held_until(member)
    if living_until and living_until > now then
        redis.call('ZADD', leases, living_until, member)
        return
    end
    if string.find(member, '\31@due$') then -- a loop's time may be over (see loop.lua)
        redis.call('ZREM', leases, member)
        publish(lane, false, true)
        return
    end
    local kind, attempt, failures, holder = read_condition(redis.call('HGET', calls, member))
    local owner, since, queue = read_holder(holder or '')
    if kind == 'sent' and not (queue == '' and consumed_until > since + request.report_ms) then
        -- What was claimed is published a moment later.
        if queue ~= '' and (request.consumed_until[queue] or 0) > since + request.soon_ms then
            -- The worker that has taken a result is at work on it.
            local now_is = queue == request.instances and 'running' or 'sent'
            redis.call('HSET', calls, member, condition(now_is, attempt, failures, sent_holder(owner, now, '')))
            local is_soon = now_is == 'sent' and request.heard_ms - request.soon_ms -- then a probe follows the result
            redis.call('ZADD', leases, now + (is_soon or request.published_ms), member)
        else
            awaited[queue == '' and request.instances or queue] = true
            redis.call('ZADD', leases, again, member)
        end
        return
    end
    if (request.suspended and kind ~= 'retry') or (queue == '' and may_be_silent(kind, since)) then
        redis.call('ZADD', leases, again, member)
        return
    end
    local is_new = kind ~= 'lost' and not (kind == 'retry' and holder == '0') -- and was not looked at before
    if kind == 'retry' then
        redis.call('HSET', calls, member, condition(kind, attempt, failures, '0'))
    elseif is_under_way(kind) then
        local begun = (kind == 'sent' and queue == '') and attempt - 1 or attempt
        redis.call('HSET', calls, member, condition('lost', begun, failures))
    end
    if is_begun(kind) or kind == 'retry' then -- it is looked after again should nobody claim it
        redis.call('ZADD', leases, due, member)
    else
        redis.call('ZREM', leases, member)
    end
    local is_lost = kind ~= 'retry'
    lost = lost + (is_lost and kind ~= 'lost' and 1 or 0)
    publish(lane, is_lost, is_new)
end

local unbegun = redis.call('ZRANGEBYSCORE', published, '-inf', now, 'WITHSCORES', 'LIMIT', 0, request.most)
for _, member in ipairs(silent) do
    judge(member, string.match(member, '^(.*)\31[^\31]*$'))
end
local waiting = 0
for i = 1, #unbegun, 2 do
    local mark = tonumber(unbegun[i + 1])
    if mark == 0 then
        publish(unbegun[i], false, false)
    elseif mark - request.published_ms < consumed_until then
        lost = lost + 1
        publish(unbegun[i], true, false)
    else
        waiting = waiting + 1 -- it may lie in the queue still; those behind it are newer
        awaited[request.instances] = true
    end
end

local is_all = #silent < request.most and #ended < request.most and #undecided < request.most and (#unbegun < 2 * request.most or waiting > 0)
local let_out = refill(request.window, due)
local next_look = look_again(leases, published, outbox_due, waits)
return answer(next_look, {
    let_out = let_out, is_all = is_all, awaited = names(awaited), pending_webhooks = to_call, suspects = suspects,
    waiting_for_silent = waiting_for_silent,
})
