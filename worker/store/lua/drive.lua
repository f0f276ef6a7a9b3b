-- Note that a lane is driven that was lost before: the worker that had taken it died, or failed in it. A run of which one
-- lane is driven too often without anything coming of it ends: it may be what kills the workers. A commit, a claim or
-- leaving in good order (commit.lua), or a step of the loop (loop.lua) counts as something. `state` has `drives:<lane>`, how
-- often, and `driven:<lane>`, the mark that the lane's task had. A lost lane is published twice (sweep.lua); only one of
-- the two tasks drives it until it gets on, and only that one counts.
--
-- KEYS: published
-- USES: run
-- Request: lane, most (how often it may be driven), reason (of the run's end if that is exceeded), format (of runs that
--          this version reads: no lane of another counts, since it is not driven), redelivered (the broker has said that the
--          worker was lost: the task has the mark of the drive before)
-- Answer: is_driven, is_over (it is not, since the run is over, perhaps by this, or gone), format (of the run; nil where it
--         is gone)

local known = redis.call('HMGET', state, 'status', 'format', 'driven:' .. request.lane)
local status, format, driven = known[1], tonumber(known[2] or nil), known[3]
local is_read = reads(format, request.format)
local is_driven = is_read and rests(status)
local is_over = not is_driven and status ~= 'running'
if is_read and status == 'running' then
    local mark = redis.call('ZSCORE', published, request.lane) or ''
    if mark == '' or driven ~= mark or request.redelivered then
        redis.call('HSET', state, 'driven:' .. request.lane, mark)
        is_driven = redis.call('HINCRBY', state, 'drives:' .. request.lane, 1) <= request.most
        is_over = not is_driven
    end
    if is_over then
        exceed(request.reason)
    end
end
return cmsgpack.pack({ is_driven = is_driven, is_over = is_over, format = format })
