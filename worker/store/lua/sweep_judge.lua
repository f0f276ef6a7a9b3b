-- Judge what has given no sign of life in time: what was begun, and what was published.
--
-- KEYS: leases calls state published
-- USES: sweep_run condition
-- Request: most, lease_ms, published_ms, instances, consumed_until (for queues the time in ms before which everything published there
--          was taken: a probe came out), heard_ms (so soon after that the taker of a message is heard of), report_ms (workers
--          report what they have at work as often), soon_ms, suspended (heartbeats may have been missed: nothing at work is
--          declared lost), holders (drivers, and calls, that a process has said it is at work on: until when in ms), silent
--          (processes that live and report nothing, by what their drivers' names begin with: until when), silences (when
--          each of them fell silent)
--
-- What may still lie in a queue waits its turn. A probe that comes out proves that what was published before it was taken,
-- and not more: its taker has time to be heard of, by a report (heartbeats.lua) or a result, which may lie in a queue in
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
