-- One commit of a lane: append the outcomes of calls to the log, claim the calls that come next, end the run with its
-- last call. All of it or nothing, and an outcome only once, however often it is delivered.
--
-- KEYS 1 state     hash    status, remaining, ms, seq (the last message id of the run), n:<status> counters, running
--      2 journal   stream  of the lane
--      3 ledger    hash    of the lane: call -> final status, "running:<attempt>:<owner>", or "lost:<attempt>:"
--      4 global    stream  the global lane's journal (equal to 2 in the global lane)
--      5 leases    zset    what somebody is at work on -> the time in ms at which he counts as dead:
--                          "<lane>\31<call>" a call, "<lane>\31@<owner>" a driver, "<lane>\31" a published task
--      6 events    stream
--      7 parked    set     lanes that wait for a global call
-- ARGV 1 lane    2 last journal id the caller has seen    3 last global id it has seen
--      4 how long in ms a published task may lie before it counts as lost
--      5 how long in ms the driver may be silent before he counts as dead
--      6 owner: who drives; what he has claimed already he gets again (a script whose answer was lost is sent twice)
--      7 "1" to park the lane if nothing new has arrived    8 "1" if the driver leaves, should nothing new have arrived
--      9 "1" if this takes up the lane's published task
--      10 number of outcomes, then for each: call, status, detail (msgpack or ""), "1" to wake parked lanes,
--        number of messages, each message (msgpack)
--      then number of claims, then for each: call, lease in ms
-- Returns {run status, journal id, global id, fresh, {accepted outcomes: message ids or 0}, {claims: attempt or 0},
--          {woken lanes}}; fresh is 1 when the caller had seen everything that lay in the journal before this commit.

local state, journal, ledger, global, leases, events, parked = unpack(KEYS)
local lane, published, silent, owner = ARGV[1], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]

local function last_id(stream)
    local newest = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)
    return newest[1] and newest[1][1] or '0-0'
end

local function is_final(entry)
    return entry and not string.find(entry, '^running:') and not string.find(entry, '^lost:')
end

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local run = redis.call('HMGET', state, 'status', 'ms', 'seq')
local status = run[1]
if not status then
    return { 'gone' }
end
local ms, seq = tonumber(run[2]), tonumber(run[3])
local fresh = last_id(journal) == ARGV[2] and 1 or 0

local function next_id()
    if now > ms then
        ms, seq = now, 0
    else
        seq = seq + 1
    end
    return string.format('%.0f-%.0f', ms, seq)
end

local position = 10
local function take()
    position = position + 1
    return ARGV[position - 1]
end

local function append(call, outcome, detail, messages)
    local ids = {}
    for i = 1, math.max(#messages, 1) do
        local fields = { 'c', call, 's', outcome }
        if detail ~= '' then
            fields[#fields + 1] = 'd'
            fields[#fields + 1] = detail
        end
        if messages[i] then
            fields[#fields + 1] = 'm'
            fields[#fields + 1] = messages[i]
        end
        ids[i] = redis.call('XADD', journal, next_id(), unpack(fields))
    end
    redis.call('XADD', events, ids[#ids], 'l', lane, 'c', call, 's', outcome, 'n', #messages)
    return ids[#ids]
end

local function wake()
    local sleepers = redis.call('SMEMBERS', parked)
    for _, sleeper in ipairs(sleepers) do
        redis.call('ZADD', leases, now + published, sleeper .. '\31')
    end
    redis.call('DEL', parked)
    return sleepers
end

local accepted, woken, ended = {}, {}, 0
for _ = 1, tonumber(take()) do
    local call, outcome, detail, wakes, count = take(), take(), take(), take(), tonumber(take())
    local messages = {}
    for i = 1, count do
        messages[i] = take()
    end
    local before = redis.call('HGET', ledger, call)
    if is_final(before) then
        accepted[#accepted + 1] = 0
    else
        accepted[#accepted + 1] = append(call, outcome, detail, messages)
        ended = ended + 1
        redis.call('HSET', ledger, call, outcome)
        redis.call('ZREM', leases, lane .. '\31' .. call)
        redis.call('HINCRBY', state, 'n:' .. outcome, 1)
        if before and string.find(before, '^running:') then
            redis.call('HINCRBY', state, 'running', -1)
        end
        if wakes == '1' and #woken == 0 then
            woken = wake()
        end
    end
end
if ended > 0 then
    local remaining = redis.call('HINCRBY', state, 'remaining', -ended)
    if remaining == 0 then
        status = redis.call('HGET', state, 'n:failed') and 'failed' or 'completed'
        redis.call('HSET', state, 'status', status, 'finished', now)
        redis.call('XADD', events, next_id(), 's', status)
    end
    redis.call('HSET', state, 'ms', string.format('%.0f', ms), 'seq', string.format('%.0f', seq))
end

local claims = {}
for _ = 1, tonumber(take()) do
    local call, lease = take(), tonumber(take())
    local member = lane .. '\31' .. call
    local before = redis.call('HGET', ledger, call)
    local condition, attempt, holder = string.match(before or 'lost:0:', '^(%a+):(%d+):(.*)$')
    local alive = condition == 'running' and tonumber(redis.call('ZSCORE', leases, member) or 0) > now
    if status ~= 'running' or not condition or (alive and holder ~= owner) then
        claims[#claims + 1] = 0
    else
        attempt = tonumber(attempt) + (alive and 0 or 1)
        redis.call('HSET', ledger, call, 'running:' .. attempt .. ':' .. owner)
        redis.call('ZADD', leases, now + lease, member)
        if condition ~= 'running' then
            redis.call('HINCRBY', state, 'running', 1)
        end
        claims[#claims + 1] = attempt
    end
end

local global_id = last_id(global)
local nothing_new = fresh == 1 and (lane == '' or global_id == ARGV[3])
if ARGV[7] == '1' and nothing_new then
    redis.call('SADD', parked, lane)
end
if ARGV[9] == '1' then
    redis.call('ZREM', leases, lane .. '\31')
end
if ARGV[8] == '1' and nothing_new then
    redis.call('ZREM', leases, lane .. '\31@' .. owner)
elseif status == 'running' then
    redis.call('ZADD', leases, now + silent, lane .. '\31@' .. owner)
end
return { status, last_id(journal), global_id, fresh, accepted, claims, woken }
