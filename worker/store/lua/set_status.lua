-- Change the status of a run on order: pause it, resume it, cancel it (SPEC R11.1). Costs the same at any size.
--
-- USES: status window
-- Request: wanted (the status: paused, running, cancelled), most (how many lanes may be published), published_ms (how long
--          a published task may lie before it counts as lost), window (see window.lua), who (orders it, see audit.py)
--          approves (it is resumed since its plan was approved, which was read when `amended` of its state was this, see
--          amend.lua)
-- Answer: before and status (none where there is no run; status is the old one where it may not change: it is over, or it
--         is to be resumed and is being amended, or its plan is to be approved), is_planned (the latter), lanes (to be
--         published: those of a resumed run that were not published since, so ask until none come)

local wanted = request.wanted
local status = redis.call('HGET', state, 'status')
local is_half_amended = wanted == 'running' and redis.call('HEXISTS', state, 'amending') == 1
local is_planned = wanted == 'running' and redis.call('HEXISTS', state, 'plan') == 1
if is_planned and request.approves == (redis.call('HGET', state, 'amended') or '') then
    is_planned = false
end
if not status or (status ~= wanted and is_over(status)) or is_half_amended or is_planned then
    return cmsgpack.pack({ before = status or nil, status = status or nil, lanes = {}, is_planned = is_planned and not is_half_amended })
end
if wanted == 'running' then
    redis.call('HDEL', state, 'plan')
end
if wanted == 'paused' and redis.call('HEXISTS', state, 'amending') == 1 then
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
return cmsgpack.pack({ before = status, status = wanted, lanes = found })
