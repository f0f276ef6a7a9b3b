-- Note that a lane is driven that was lost before: the worker that had taken it died, or failed in it. A run of which one
-- lane is driven too often without anything coming of it ends: it may be what kills the workers. A commit, a claim or
-- leaving in good order (commit.lua), or a step of the loop (loop.lua) counts as something. `state` has `drives:<lane>`.
--
-- USES: status formats
-- Request: lane, most (how often it may be driven), reason (of the run's end if that is exceeded), formats (of runs that
--          this version reads: no lane of another counts, since it is not driven)
-- Answer: is_driven (whether it may be: else the run is over, perhaps by this, or gone), format (of the run; nil where it
--          is gone)

local known = redis.call('HMGET', state, 'status', 'format')
local status, format = known[1], tonumber(known[2] or nil)
local is_read = reads(format, request.formats)
local is_driven = is_read and status == 'paused'
if is_read and status == 'running' then
    is_driven = redis.call('HINCRBY', state, 'drives:' .. request.lane, 1) <= request.most
    if not is_driven then
        exceed(request.reason)
    end
end
return cmsgpack.pack({ is_driven = is_driven, format = format })
