-- What follows of a commit for its lane, and for others: it is parked, its task is taken up, lanes are let out.
--
-- KEYS: leases calls gathers parked published state
-- USES: commit_step commit_outcomes window
-- Request: global_seen, park (park the lane if nothing new has arrived), leaves (the driver leaves, should nothing new have
--          arrived), hands_on (it leaves in any case, and the lane is published anew), takes_up (the mark of the lane's
--          published task as it was before the lane was read: one that was set since stays), settled: gather calls that have nothing to wait for in the lane any more, once these outcomes are
--          in the log (in `calls` each is "settled" for the lane; the last lane wakes the global one), window (see
--          window.lua), published_ms (how long a published task may lie before it counts as lost), silent_ms (how long the
--          driver may be silent before it counts as lost)
-- Answer: woken (lanes to be published), due (where something becomes due sooner than the sweep would look: when)

local global_id = lane == '' and last or read_lane(known[2])
local nothing_new = fresh and (lane == '' or global_id == request.global_seen)
if request.park and nothing_new and not is_over(status) then
    redis.call('ZADD', parked, redis.call('HGET', state, 'wakes') or '0', lane)
end
if status == 'paused' then
    redis.call('ZADD', published, 0, lane)
elseif request.takes_up and tonumber(redis.call('ZSCORE', published, lane)) == request.takes_up then
    redis.call('ZREM', published, lane)
    lets_out = true
end
local woken = {}
if all_accepted and not is_outdated and not is_over(status) then
    for _, call in ipairs(request.settled) do
        if redis.call('HSETNX', calls, field(call), 'settled') == 1 and redis.call('HINCRBY', gathers, call, -1) == 0 then
            redis.call('ZADD', published, status == 'paused' and 0 or now + request.published_ms, '')
            gathered = true
        end
    end
end
if lets_out and status == 'running' then
    woken = refill(request.window, now + request.published_ms)
    if #woken > 0 then
        becomes_due(now + request.published_ms)
    end
end
if loop then
    redis.call('ZADD', published, status == 'paused' and 0 or now + request.published_ms, loop)
    if status == 'running' then
        woken[#woken + 1] = loop
        becomes_due(now + request.published_ms)
    end
end
if gathered and status == 'running' then
    woken[#woken + 1] = ''
    becomes_due(now + request.published_ms)
end
local hands_on = request.hands_on and status == 'running'
if hands_on then
    redis.call('ZADD', published, now + request.published_ms, lane)
    woken[#woken + 1] = lane
    becomes_due(now + request.published_ms)
end
if hands_on or (request.leaves and nothing_new) then
    redis.call('ZREM', leases, lane .. '\31@' .. owner)
elseif not is_over(status) then
    redis.call('ZADD', leases, now + request.silent_ms, lane .. '\31@' .. owner)
    becomes_due(now + request.silent_ms)
end
local due = soonest and look_by(soonest, look) and math.min(soonest, now + request.published_ms) or nil
