-- Take note of what workers that see only the broker say of a run's calls (see reports.py).
--
-- KEYS 1 leases (zset, see advance.lua)
-- ARGV 1 the request, msgpack: ledgers (what the keys of the lanes' ledgers begin with), lease_ms, published_ms,
--        instances (the queue of results), begun and ended: lists of {lane, call, attempt}

local leases = KEYS[1]
local request = cmsgpack.unpack(ARGV[1])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- Whoever speaks of an attempt that was given up already is not heard: the call is in other hands.
local function note(signs, condition, queue, silent_ms)
    for _, sign in ipairs(signs) do
        local lane, call, attempt = unpack(sign)
        local ledger = request.ledgers .. lane
        local entry = redis.call('HGET', ledger, call) or ''
        local before, number, failures, holder = string.match(entry, '^(%a+):(%d+):(%d+):(.*)$')
        if (before == 'running' or before == 'sent') and tonumber(number) == attempt then
            holder = queue and string.match(holder, '^[^/]*') .. '/' .. queue or holder
            redis.call('HSET', ledger, call, string.format('%s:%s:%s:%s', condition, number, failures, holder))
            redis.call('ZADD', leases, 'XX', now + silent_ms, lane .. '\31' .. call)
        end
    end
end

note(request.begun, 'running', nil, request.lease_ms)
note(request.ended, 'sent', request.instances, request.published_ms)
