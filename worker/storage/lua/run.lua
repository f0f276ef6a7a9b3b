-- What several scripts do to a run. This stands before them (see `scripts.read_script`).

local function is_over(status)
    return status ~= 'running' and status ~= 'paused'
end

-- Change the status of a run, and say so in its log and in the stream of its statuses.
local function change_status(state, log, statuses, status, now)
    redis.call('HSET', state, 'status', status)
    if is_over(status) then
        redis.call('HSET', state, 'finished', now)
    end
    redis.call('XADD', statuses, redis.call('XADD', log, '*', 's', status), 's', status)
end

-- A lane's last entry and how many of its calls are open, from its field in `lanes`.
local function read_lane(entry)
    local last, open = string.match(entry or '0-0:0', '^(.*):(%d+)$')
    return last, tonumber(open)
end
