-- One commit of a lane: append the outcomes of calls to the log, claim the calls that come next, end the run with its
-- last call. All of it or nothing, and an outcome only once, however often it is delivered. While a run is paused, outcomes
-- come in and nothing is claimed; once it is over, nothing is written any more.
--
-- KEYS: calls leases outbox outbox_tasks outbox_due gathers held pending_webhooks children
-- USES: status lanes window condition
-- Request: lane, seen (the id of the lane's last entry that the caller has read), global_seen, status
--        (of the run as the caller has read it, where another one is news; else nil), owner (the runner; what
--        it has claimed already it gets again: a script whose answer was lost is sent twice), published_ms (how long a
--        published task may lie before it counts as lost), silent_ms (how long the runner may be silent before it counts
--        as lost), work (what validation has taken since the last commit), most_bytes, most_work (what the calls of a run may
--        write, and validation take, in all), park (park the lane if nothing new has arrived), leaves (the driver leaves, should nothing new have
--        arrived), takes_up (the mark of the lane's published task as it was before the lane was read: one that was set
--        since stays), window (see window.lua), output_fault (why the run's output cannot be read, "" where it can; nil as
--        long as global calls have not ended),
--        outcomes: {call, element and of (where it is that of an element, which one and of which call; the call itself
--        ends by an outcome of its own, and that alone is counted), status, detail (msgpack or ""), missed (see above, or ""), wakes (parked lanes), messages (each msgpack), task and queue (of
--        what is sent and forgotten; else "")},
--        retries: {call, attempt, delay_ms} (attempts that failed, and when the next is due),
--        settled: gather calls that have nothing to wait for in the lane any more, once these outcomes are in the log (in
--        `calls` each is "settled" for the lane; the last lane wakes the global one),
--        tells (whether there is a web hook to be called for what is held), holds: {call, snapshot (msgpack), spreads} (calls that are to wait for a person, see decide.lua,
--        or that are carried out for each element),
--        children: {call, attempt, run} (calls at work that a child run is to answer),
--        claims: {call, lease_ms, queue ("" where the owner carries it out itself)}
-- Answer: status (of the run; "gone" where there is none), last and global (the ids of the last entries of the
--          lane and of the global one), fresh (whether the caller had seen all of the lane before this commit), accepted (for each outcome), claims
--          (for each the number of the attempt, or 0), held (for each hold whether it was written), failures (for
--          each how many of the attempts before failed), repeated (for each whether the one before was lost), woken (lanes
--          to be published), among (how many lanes lie in the queue with them), due (where something becomes due sooner
--          than the sweep would look: when).

local lane, owner = request.lane, request.owner

local run = redis.call('HMGET', state, 'status', 'look', 'approve_ms', 'drives:' .. lane)
local status, look, approve_ms = run[1], tonumber(run[2] or nil), tonumber(run[3] or nil)
if not status then
    return cmsgpack.pack({ status = 'gone' })
end
local known = redis.call('HMGET', lanes, lane, '')
local last, open = read_lane(known[1])
local fresh = last == request.seen and (request.status or status) == status
local was_open, was_last = open, last
local soonest -- of what becomes due by this commit

local function becomes_due(at)
    soonest = math.min(soonest or at, at)
end

local grown = 0 -- bytes of what is appended

local function append(outcome)
    local size = math.max(#outcome.messages, 1)
    for i = 1, size do
        local fields = { 'l', lane, 'p', last, 'c', outcome.of or outcome.call }
        if i == size then -- with its last message a call has ended
            fields[#fields + 1] = outcome.element and 'i' or 's'
            fields[#fields + 1] = outcome.element and outcome.element .. ':' .. outcome.status or outcome.status
            if outcome.detail ~= '' then
                fields[#fields + 1] = 'd'
                fields[#fields + 1] = outcome.detail
                grown = grown + #outcome.detail
            end
        end
        if outcome.messages[i] then
            fields[#fields + 1] = 'm'
            fields[#fields + 1] = outcome.messages[i]
            grown = grown + #outcome.messages[i]
        end
        last = redis.call('XADD', log, '*', unpack(fields))
    end
end

-- Calls are read once and written once, as are the counters and leases: a commit of 500 calls should not hold up the
-- server for longer than its entries take.
local entries, written, leased, released, counted, running = {}, {}, {}, {}, {}, 0

local function field(call)
    return lane .. '\31' .. call
end

local function look_up(asked)
    local names = {}
    for i, one in ipairs(asked) do
        names[i] = field(one.call)
    end
    if #names > 0 then
        for i, entry in ipairs(redis.call('HMGET', calls, unpack(names))) do
            entries[asked[i].call] = entry
        end
    end
end

local function note(call, entry)
    entries[call], written[call] = entry, entry
end

look_up(request.outcomes)
look_up(request.retries)
look_up(request.claims)
look_up(request.holds)
look_up(request.children)

local accepted, ended, lets_out, wakes, all_accepted, gathered, loop = {}, 0, false, 0, true, false, nil
for _, outcome in ipairs(request.outcomes) do
    local before = entries[outcome.call]
    -- The outcome of a call that has not begun is a decision, as a start is: it is of the lane as it is now, which an
    -- amendment may have changed, and not while the run is paused.
    local may_come = before and not is_over(status) or (status == 'running' and fresh)
    local is_news = may_come and not has_ended(before) and read_condition(before) ~= 'held'
    accepted[#accepted + 1] = is_news
    all_accepted = all_accepted and is_news
    if is_news then
        append(outcome)
        note(outcome.call, outcome.status)
        open = open - (before and 1 or 0)
        released[#released + 1] = field(outcome.call)
        if not outcome.element then
            ended = ended + 1
            counted[outcome.status] = (counted[outcome.status] or 0) + 1
        end
        local kind, _, _, holder = read_condition(before)
        if (is_under_way(kind) or kind == 'child' or kind == 'each') and not outcome.element then
            running = running - 1
        end
        if kind == 'child' then
            redis.call('SREM', children, holder)
        end
        if outcome.task ~= '' then
            local member = field(outcome.call)
            redis.call('HSET', outbox, member, condition('sent', 1, 0, as_text(now) .. '/' .. outcome.queue))
            redis.call('HSET', outbox_tasks, member, outcome.task)
            redis.call('ZADD', outbox_due, now + 1000, member) -- most are done by then
            becomes_due(now + 1000)
        end
        if outcome.missed ~= '' then
            redis.call('HSETNX', state, 'missed', outcome.missed)
        end
        if outcome.wakes then
            wakes = wakes + 1
            lets_out = true
        end
    end
end
if request.output_fault == '' then
    redis.call('HDEL', state, 'output_fault')
elseif request.output_fault and not is_over(status) then
    redis.call('HSET', state, 'output_fault', request.output_fault)
end
if #released > 0 then
    redis.call('ZREM', leases, unpack(released))
end
if ended > 0 then
    for name, count in pairs(counted) do
        redis.call('HINCRBY', state, 'n:' .. name, count)
    end
    if wakes > 0 then
        redis.call('HINCRBY', state, 'wakes', wakes)
    end
    local remaining = redis.call('HINCRBY', state, 'remaining', -ended)
    if remaining == 0 then
        status = end_status()
        change_status(status)
        becomes_due(now + request.published_ms) -- its keys are to expire
    elseif remaining == 1 then
        loop = redis.call('HGET', state, 'loop:lane') -- nothing but the run's loop is left: its tick is over
    end
end

local was = status
status = spend(status, 'bytes', grown, request.most_bytes, MOST_BYTES)
status = spend(status, 'work', request.work, request.most_work,
    'the schemas exceed the validation budget of a run, %.0f (ACTS_LIMIT_RUN_SCHEMA_WORK)')
if status ~= was then
    becomes_due(now + request.published_ms)
end

for _, retry in ipairs(request.retries) do
    local kind, attempt, failures = read_condition(entries[retry.call])
    if not is_over(status) and is_under_way(kind) and attempt == retry.attempt then
        local due = as_text(now + retry.delay_ms)
        becomes_due(now + retry.delay_ms)
        note(retry.call, condition('retry', attempt, failures + 1, due))
        leased[#leased + 1] = due
        leased[#leased + 1] = field(retry.call)
        running = running - (is_element(retry.call) and 0 or 1)
    end
end

for _, child in ipairs(request.children) do
    local kind, attempt, failures = read_condition(entries[child.call])
    if not is_over(status) and is_under_way(kind) and attempt == child.attempt then
        last = redis.call('XADD', log, '*', 'l', lane, 'p', last, 'c', child.call, 'r', child.run)
        note(child.call, condition('child', attempt, failures, child.run))
        redis.call('ZREM', leases, field(child.call))
        redis.call('SADD', children, child.run)
    end
end

local claims, failed, repeated = {}, {}, {}
for i, claim in ipairs(request.claims) do
    local member = field(claim.call)
    local is_remote = claim.queue ~= ''
    local kind, attempt, failures, holder = read_condition(entries[claim.call])
    local is_held = is_under_way(kind) and redis.call('ZSCORE', leases, member)
    local is_resting = kind == 'retry' and tonumber(holder) > now
    claims[i], failed[i], repeated[i] = 0, failures or 0, kind == 'lost'
    local is_free = kind and kind ~= 'held' and kind ~= 'child' and not is_resting
    if status == 'running' and is_free and (not is_held or string.match(holder, '^[^/]*') == owner) then
        claims[i] = attempt + (is_held and 0 or 1)
        open = open + (kind == 'new' and 1 or 0)
        local claimant = is_remote and sent_holder(owner, now, claim.queue) or owner
        note(claim.call, condition(is_remote and 'sent' or 'running', claims[i], failures, claimant))
        leased[#leased + 1] = now + claim.lease_ms
        becomes_due(now + claim.lease_ms)
        leased[#leased + 1] = member
        if not is_under_way(kind) and not is_element(claim.call) then
            running = running + 1
        end
    end
end

local holds = {}
for i, hold in ipairs(request.holds) do
    local before = entries[hold.call]
    local is_free = not before or (hold.spreads and read_condition(before) == 'decided')
    holds[i] = status == 'running' and all_accepted and is_free
    if holds[i] and hold.spreads then
        last = redis.call('XADD', log, '*', 'l', lane, 'p', last, 'c', hold.call, 'f', hold.snapshot)
        note(hold.call, condition('each', 1, 0))
        open = open + (before and 0 or 1)
        running = running + 1
    elseif holds[i] then
        last = redis.call('XADD', log, '*', 'l', lane, 'p', last, 'c', hold.call, 'h', hold.snapshot)
        note(hold.call, condition('held', 0, 0, last))
        open = open + 1
        redis.call('ZADD', held, now, field(hold.call))
        if request.tells then
            redis.call('ZADD', pending_webhooks, now, field(hold.call))
            becomes_due(now)
        end
        if approve_ms then
            becomes_due(now + approve_ms)
        end
    end
end

local fields = {}
for call, entry in pairs(written) do
    fields[#fields + 1] = field(call)
    fields[#fields + 1] = entry
end
if #fields > 0 then
    redis.call('HSET', calls, unpack(fields))
end
if last ~= was_last or open ~= was_open then
    redis.call('HSET', lanes, lane, last .. ':' .. open)
end
if #leased > 0 then
    redis.call('ZADD', leases, unpack(leased))
end
if run[4] and (last ~= was_last or #leased > 0 or request.leaves) then
    redis.call('HDEL', state, 'drives:' .. lane) -- it gets on (see drive.lua)
end
if running ~= 0 then
    redis.call('HINCRBY', state, 'running', running)
end

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
if all_accepted and not is_over(status) then
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
if request.leaves and nothing_new then
    redis.call('ZREM', leases, lane .. '\31@' .. owner)
elseif not is_over(status) then
    redis.call('ZADD', leases, now + request.silent_ms, lane .. '\31@' .. owner)
    becomes_due(now + request.silent_ms)
end
local due = soonest and look_by(soonest, look) and math.min(soonest, now + request.published_ms) or nil
return cmsgpack.pack({
    status = status,
    last = last,
    global = global_id,
    fresh = fresh,
    accepted = accepted,
    claims = claims,
    held = holds,
    failures = failed,
    repeated = repeated,
    woken = woken,
    among = #woken > 0 and redis.call('ZCARD', published) or 0,
    due = due,
})
