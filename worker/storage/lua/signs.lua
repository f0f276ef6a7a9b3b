-- Take note of what workers that see only the broker say of a run's calls (see reports.py).
--
-- KEYS 1 calls (hash, see advance.lua)    2 leases (zset, likewise)    3 outbox (hash)    4 outbox_tasks (hash)
--      5 outbox_due (zset, see outbox.lua)    6 unanswered (hash): lane and call -> msgpack {attempt, tries, at_ms (of the
--        next try), type, why}
-- ARGV 1 the request, msgpack: lease_ms, heard_ms and soon_ms (see sweep.lua), instances (the queue of results), begun,
--        ended and held (taken from a queue and not begun): lists of {lane, call, attempt}, closed: a list of
--        {lane, call, attempt, delay_ms (until the next attempt, or -1 where there is none)}, unanswered: a list of
--        {lane, call, attempt, tries, wait_ms (until the next try), type, why}, most_unanswered (members of it)

local calls, leases, outbox, outbox_tasks, outbox_due, unanswered = unpack(KEYS)
local request = cmsgpack.unpack(ARGV[1])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- A report of an attempt that was given up already is ignored: the call is in other hands.
-- `queue` is the one in which a message is now, "" where a worker has it and nil where it stays.
local function note(signs, condition, queue, silent_ms)
    for _, sign in ipairs(signs) do
        local lane, call, attempt = unpack(sign)
        local member = lane .. '\31' .. call
        local entry = redis.call('HGET', calls, member) or ''
        local before, number, failures, holder = string.match(entry, '^(%a+):(%d+):(%d+):(.*)$')
        local is_known = before == 'sent' or (before == 'running' and queue ~= '')
        if is_known and tonumber(number) == attempt then
            local owner = string.match(holder, '^[^/]*')
            holder = queue and string.format('%s/%.0f/%s', owner, now, queue) or holder
            redis.call('HSET', calls, member, string.format('%s:%s:%s:%s', condition, number, failures, holder))
            redis.call('ZADD', leases, 'XX', now + silent_ms, member)
        end
    end
end

local function forgotten(sign)
    local member = sign[1] .. '\31' .. sign[2]
    local entry = redis.call('HGET', outbox, member)
    local condition, number, failures, sent = string.match(entry or '', '^(%a+):(%d+):(%d+):(.*)$')
    if condition and condition ~= 'retry' and tonumber(number) == sign[3] then
        return member, failures, sent, condition
    end
end

for _, sign in ipairs(request.held) do
    local member, failures, sent, condition = forgotten(sign)
    if member and condition ~= 'running' then
        redis.call('HSET', outbox, member, string.format('taken:%d:%s:%s', sign[3], failures, sent))
        redis.call('ZADD', outbox_due, now + request.heard_ms, member)
    end
end
for _, sign in ipairs(request.begun) do
    local member, failures, sent = forgotten(sign)
    if member then
        redis.call('HSET', outbox, member, string.format('running:%d:%s:%s', sign[3], failures, sent))
        redis.call('ZADD', outbox_due, now + request.lease_ms, member)
    end
end
for _, closing in ipairs(request.closed) do
    local member, failures, sent = forgotten(closing)
    if member and closing[4] >= 0 then
        redis.call('HSET', outbox, member, string.format('retry:%d:%d:%s', closing[3], failures + 1, sent))
        redis.call('ZADD', outbox_due, now + closing[4], member)
    elseif member then
        redis.call('HDEL', outbox, member)
        redis.call('HDEL', outbox_tasks, member)
        redis.call('ZREM', outbox_due, member)
    end
end

note(request.held, 'sent', '', request.heard_ms)
note(request.begun, 'running', nil, request.lease_ms)
note(request.ended, 'sent', request.instances, request.soon_ms)

for _, said in ipairs(request.unanswered) do
    local lane, call, attempt, tries, wait_ms, type_, why = unpack(said)
    local member = lane .. '\31' .. call
    local number = string.match(redis.call('HGET', calls, member) or '', '^running:(%d+):')
    local is_free = redis.call('HEXISTS', unanswered, member) == 1
        or redis.call('HLEN', unanswered) < request.most_unanswered
    if tonumber(number) == attempt and is_free then
        redis.call('HSET', unanswered, member, cmsgpack.pack({ attempt, tries, now + wait_ms, type_, why }))
        -- Also where the run has ended meanwhile, and its keys have their expiry already.
        redis.call('PEXPIRE', unanswered, wait_ms + 3600000)
    end
end
for _, sign in ipairs(request.ended) do
    redis.call('HDEL', unanswered, sign[1] .. '\31' .. sign[2])
end
