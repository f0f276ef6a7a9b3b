-- Note that a lane is driven that was lost before: the worker that had taken it died, or failed in it. A run of which one
-- lane is driven too often without anything coming of it ends: it may be what kills the workers. A commit, a claim or
-- leaving in good order (commit.lua), or a step of the loop (loop.lua) counts as something. `state` has `drives:<lane>`.
--
-- USES: status
-- Request: lane, most (how often it may be driven), reason (of the run's end if that is exceeded)
-- Answer: is_driven (whether it may be: else the run is over, perhaps by this, or gone)

local status = redis.call('HGET', state, 'status')
local is_driven = status == 'paused'
if status == 'running' then
    is_driven = redis.call('HINCRBY', state, 'drives:' .. request.lane, 1) <= request.most
    if not is_driven then
        exceed(request.reason)
    end
end
return cmsgpack.pack({ is_driven = is_driven })
