-- One commit of a lane: append the outcomes of calls to the log, claim the calls that come next, end the run with its
-- last call. All of it or nothing, and an outcome only once, however often it is delivered. While a run is paused, outcomes
-- come in and nothing is claimed; once it is over, nothing is written any more.
--
-- KEYS: calls leases state log lanes codes children held waits pending_webhooks gathers parked published
-- USES: run
-- Request: lane, seen (the id of the lane's last entry that the caller has read), status (of the run as the caller has read
--          it, where another one is news; else nil), owner (the driver; what it has claimed already it gets again: a script
--          whose answer was lost is sent twice), born (when the run was submitted that the caller has read, or nil)
-- Answer: status (of the run; "gone" where there is none, or another one has its id), last and global (the ids of the last
--         entries of the lane and of the global one), fresh (whether the caller had seen all of the lane before this commit), queued (how many lanes
--         lie in the queue with those that are woken)

-- What is known of the run and of the lane.

local lane, owner = request.lane, request.owner

local run = redis.call('HMGET', state, 'status', 'look', 'approve_ms', 'drives:' .. lane, 'retried:' .. lane, 'submitted', 'restored', 'timed')
local status, look, approve_ms = run[1], tonumber(run[2] or nil), tonumber(run[3] or nil)
if not status or (request.born or run[6]) ~= run[6] then
    return cmsgpack.pack({ status = 'gone' })
end
local known = redis.call('HMGET', lanes, lane, '')
local last, open = read_lane(known[1])
-- Whether the caller takes calls for ended that run again: what it would begin may rest on them.
local is_outdated = run[5] and is_before(request.seen, run[5])
local fresh = last == request.seen and (request.status or status) == status
local was_open, was_last = open, last
local soonest -- of what becomes due by this commit

local function becomes_due(at)
    soonest = math.min(soonest or at, at)
end

local grown = 0 -- bytes of what is appended

-- Calls are read once and written once, as are the counters and leases: a commit of 500 calls should not hold up the
-- server for longer than its entries take.
local entries, written, leased, released, counted, running, between = {}, {}, {}, {}, {}, 0, 0

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

-- Outcomes: each is appended once, and counted; the run ends with its last call.
--
-- Request: outcomes: {call, element and of (for an element's outcome, which one and of which call; the call itself
--          ends by an outcome of its own, and that alone is counted), status, detail (msgpack or ""), missed (the promised
--          places that it had to do without, or ""), wakes (parked lanes), decided (whether nobody has carried it out),
--          messages (each msgpack), task and queue (of what is sent and forgotten; else ""), code (who has
--          carried it out, see `Code` in scripts.py; or ""), paid (tokens and nanodollars that models have taken for it, or
--          nil)}, output_fault (why the run's output cannot be read, "" where it can; nil as long as global calls have not
--          ended), work (what validation has taken since the last commit), most_bytes, most_work,
--          most_codes (what the calls of a run may write, and validation take, in all)
-- Answer: accepted (for each outcome), parent (where the run ends with this commit, the call that it is to answer; or nil)

-- The number of a code of the run; nil where it has too many.
local numbers = {}
local function number_of(code)
    if not numbers[code] then
        local known = tonumber(redis.call('HGET', codes, code) or nil)
        local count = known or redis.call('HLEN', codes)
        if not known and count < request.most_codes then
            redis.call('HSET', codes, code, count)
        end
        numbers[code] = count < request.most_codes and count or nil
    end
    return numbers[code]
end

local function append(outcome)
    local size = math.max(#outcome.messages, 1)
    for i = 1, size do
        local fields = { 'l', lane, 'p', last, 'c', outcome.of or outcome.call }
        if i == size then -- with its last message a call has ended
            local ended = outcome.element and outcome.element .. ':' .. outcome.status
            put(fields, ended and 'element' or 's', ended or outcome.status)
            local code = outcome.code ~= '' and number_of(outcome.code)
            if code then
                put(fields, 'W', code)
            end
            if outcome.detail ~= '' then
                put(fields, 'd', outcome.detail)
                grown = grown + #outcome.detail
            end
        end
        if outcome.messages[i] then
            put(fields, 'm', outcome.messages[i])
            grown = grown + #outcome.messages[i]
        end
        last = redis.call('XADD', log, '*', unpack(fields))
    end
end

-- Whether the driver has known of the execution that a call has begun. One that takes a call for ended that runs
-- again knows of what it has begun itself, of child runs, and of what was sent before; the others' results come again.
local function is_known(entry)
    local kind, _, _, holder = read_condition(entry)
    if not is_outdated or kind == 'child' then
        return true
    end
    local by, since = read_holder(holder)
    return by == owner or (since and since < tonumber(string.match(run[5], '^%d+')))
end

local accepted, ended, lets_out, wakes, all_accepted, gathered, loop, parent = {}, 0, false, 0, true, false, nil, nil
local paid_tokens, paid_money = 0, 0
for _, outcome in ipairs(request.outcomes) do
    local before = entries[outcome.call]
    -- The outcome of a call that has not begun is a decision, as a start is: it is of the lane as it is now, which an
    -- amendment may have changed, and not while the run is paused.
    local may_come = before and not is_over(status) and is_known(before) or (status == 'running' and fresh)
    -- What was decided rests on the outcomes before it in the commit: of these, the log may have others.
    may_come = may_come and (all_accepted or not outcome.decided)
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
        local kind, attempt, _, holder = read_condition(before)
        if is_between(kind, attempt) and not outcome.element then
            between = between - 1
        end
        if (is_begun(kind) or kind == 'child' or kind == 'each') and not outcome.element then
            running = running - 1
        end
        if kind == 'child' then
            redis.call('SREM', children, holder)
        end
        if run[8] then
            redis.call('HDEL', state, 'begun:' .. field(outcome.call))
        end
        if kind == 'unknown' then -- its end is known, though nobody has decided
            answer_for(field(outcome.call))
        end
        if outcome.paid then
            paid_tokens, paid_money = paid_tokens + outcome.paid[1], paid_money + outcome.paid[2]
        end
        if outcome.task ~= '' then
            local member = field(outcome.call)
            send_in_background(member, outcome.task, outcome.queue)
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
if paid_tokens + paid_money > 0 then
    local paid = redis.call('HMGET', state, 'paid:tokens', 'paid:money')
    paid_tokens = math.min(paid_tokens + tonumber(paid[1] or 0), 2 ^ 53) -- so much no message can make it fail
    paid_money = math.min(paid_money + tonumber(paid[2] or 0), 2 ^ 53)
    redis.call('HSET', state, 'paid:tokens', as_text(paid_tokens), 'paid:money', as_text(paid_money))
end
if request.output_fault == '' or not is_over(status) then
    note_output_fault(request.output_fault)
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
        parent = redis.call('HGET', state, 'parent') or nil
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

-- What becomes of calls at work: attempts that failed rest, a child run answers, the calls that come next are claimed.
--
-- Request: retries: {call, attempt, delay_ms, given_back, of, note} (attempts that failed, and when the next is due; one that
--          was given back does not count, and the first time the log has a note of the call that it is `of`;
--          progress, msgpack, is what the attempt has reported last, or nil),
--          children: {call, attempt, run} (calls at work that a child run is to answer),
--          claims: {call, lease_ms, queue ("" where the owner carries it out itself), alone (whether no other call is at
--          work there that may be what its workers died of), begins (what the log is to say of its beginning, where it runs
--          at most once; else nil), not_done (the attempt at such a call of which it is known that it has done
--          nothing; nil), total_ms (how long all attempts at it may take; nil)}, alone_from and most_losses (with so many losses a call is
--          claimed only `alone`; with the most it does not begin any more)
-- Answer: claims (for each the number of the attempt, 0 where it is at work or rests, -1 where it is to be claimed
--         alone, -2 less the number of the attempt where it runs at most once and may have begun), failures (for each how
--         many of the attempts before failed), repeated (for each whether the one before was lost), ends (for each when
--         the time of all its attempts is over, 0 where it has no limit)

for _, retry in ipairs(request.retries) do
    local kind, attempt, failures = read_condition(entries[retry.call])
    if not is_over(status) and not is_outdated and is_under_way(kind) and attempt == retry.attempt then
        local due = as_text(now + retry.delay_ms)
        becomes_due(now + retry.delay_ms)
        local counted = retry.given_back and 0 or 1
        note(retry.call, condition('retry', attempt - 1 + counted, failures + counted, due))
        if retry.note ~= '' then
            last = redis.call('XADD', log, '*', 'l', lane, 'p', last, 'c', retry.of, 'given_back', retry.note)
            grown = grown + #retry.note
            redis.call('HSET', state, 'given_back', last)
        end
        if retry.progress then
            last = redis.call('XADD', log, '*', 'l', lane, 'p', last, 'c', retry.call, 'progress', retry.progress)
            grown = grown + #retry.progress
        end
        put(leased, due, field(retry.call))
        if not is_element(retry.call) then
            running = running - 1
            between = between + (attempt - 1 + counted > 0 and 1 or 0)
        end
    end
end

for _, child in ipairs(request.children) do
    local kind, attempt, failures = read_condition(entries[child.call])
    if not is_over(status) and is_under_way(kind) and attempt == child.attempt then
        last = redis.call('XADD', log, '*', 'l', lane, 'p', last, 'c', child.call, 'child', child.run)
        note(child.call, condition('child', attempt, failures, child.run))
        redis.call('ZREM', leases, field(child.call))
        redis.call('SADD', children, child.run)
    end
end

-- Whether nobody knows how an attempt at a call has ended that runs at most once: its worker is lost, or the log
-- was restored since and does not know what was begun after it.
local restored = tonumber(run[7] or nil)
local function is_doubtful(kind, holder)
    if is_begun(kind) or not restored then
        return is_begun(kind)
    end
    return not (kind == 'decided' and tonumber(string.match(holder, '^%d+')) > restored)
end

-- Whether a person has decided on a call since the caller has read the lane: it may have been said that the call has ended.
local function is_unseen(kind, holder)
    return kind == 'decided' and is_before(request.seen, holder)
end

-- When the time of all attempts at a call is over that is claimed now.
local function end_of(claim, kind, attempt)
    local name = 'begun:' .. field(claim.call)
    local is_first = attempt == 0 or kind == 'decided'
    local begun = not is_first and tonumber(redis.call('HGET', state, name) or nil)
    if not begun then
        begun = now
        redis.call('HSET', state, name, as_text(now), 'timed', '1')
    end
    return begun + claim.total_ms
end

local claims, failed, repeated, ends = {}, {}, {}, {}
for i, claim in ipairs(request.claims) do
    local member = field(claim.call)
    local is_remote = claim.queue ~= ''
    local kind, attempt, failures, holder = read_condition(entries[claim.call])
    local is_held = is_under_way(kind) and redis.call('ZSCORE', leases, member)
    local is_resting = kind == 'retry' and tonumber(holder) > now
    claims[i], failed[i], repeated[i], ends[i] = 0, failures or 0, kind == 'lost', 0
    local is_free = kind and kind ~= 'held' and kind ~= 'unknown' and kind ~= 'child' and not is_resting
    is_free = is_free and not is_unseen(kind, holder)
    local losses = is_free and attempt - failures or 0
    if claim.begins and is_free and not is_held and status == 'running' and claim.not_done ~= attempt and is_doubtful(kind, holder) then
        claims[i], is_free = -2 - attempt, false
    end
    local waits = is_free and not (is_held or is_remote or claim.alone) and losses >= request.alone_from and losses < request.most_losses
    if waits then
        claims[i], is_free = -1, false
    end
    if status == 'running' and not is_outdated and is_free and (not is_held or string.match(holder, '^[^/]*') == owner) then
        claims[i] = attempt + (is_held and 0 or 1)
        open = open + (kind == 'new' and 1 or 0)
        ends[i] = claim.total_ms and end_of(claim, kind, attempt) or 0
        local claimant = is_remote and sent_holder(owner, now, claim.queue) or owner
        if claim.begins then
            last = redis.call('XADD', log, '*', 'l', lane, 'p', last, 'c', claim.call, 'begun', claim.begins,
                'attempt', claims[i])
            grown = grown + #claim.begins
        end
        note(claim.call, condition(is_remote and 'sent' or 'running', claims[i], failures, claimant))
        put(leased, now + claim.lease_ms, member)
        becomes_due(now + claim.lease_ms)
        if not is_begun(kind) and not is_element(claim.call) then
            running = running + 1
            between = between - (is_between(kind, attempt) and 1 or 0)
        end
    end
end

-- Calls that are to wait for a person or a moment (see `decide` in run.lua), or that run for each element.
--
-- Request: holds: {call, snapshot (msgpack), elements (for so many it runs; 0 where it waits), ends (the moment
--          in ms that it waits for, where it waits for no person), begun (the attempt at it whose end is not known, where that
--          is why it waits; 0 where none is known; else nil), rules (the entry that had changed the run's rules last, "" where
--          none had, if a rule could have approved it; else nil) and rule (that approves it at once, or "")}, tells
--          (whether there is a web hook to be called for what is held)
-- Answer: held (for each hold whether it was written)

local holds, is_ruled_anew = {}, false
for i, hold in ipairs(request.holds) do
    local before = entries[hold.call]
    local kind, attempt, failures, holder = read_condition(before)
    -- Labels may have been added since an attempt, and hold the next one (SPEC R16.1).
    local is_again = hold.elements == 0 and (kind == 'lost' or kind == 'retry')
    local is_free = not before or is_again or (kind == 'decided' and (hold.elements > 0 or hold.ends)) -- it was approved
    if hold.begun then
        is_again = (is_begun(kind) or kind == 'retry' or kind == 'decided') and attempt == hold.begun
        is_free = not before or is_again
    end
    is_free = is_free and not is_unseen(kind, holder)
    if hold.rules and hold.rules ~= (redis.call('HGET', state, 'rules') or '') then
        is_free, is_ruled_anew = false, true -- a rule was given or revoked since: it is decided anew
    end
    local is_ruled = hold.rules and hold.rule ~= ''
    holds[i] = status == 'running' and not is_outdated and all_accepted and is_free
    if holds[i] and hold.elements > 0 then
        local begun, left = unpack(redis.call('HMGET', state, 'elements', 'elements_left'))
        if left and (begun or 0) + hold.elements > tonumber(left) then
            status = exceed(string.format('call %s has %d elements, which are more calls than the limit behind the '
                .. "token of the run's owner leaves", hold.call, hold.elements))
            becomes_due(now + request.published_ms)
            holds[i] = false
        else
            redis.call('HINCRBY', state, 'elements', hold.elements)
        end
    end
    if holds[i] and hold.elements > 0 then
        last = redis.call('XADD', log, '*', 'l', lane, 'p', last, 'c', hold.call, 'fan_out', hold.snapshot)
        note(hold.call, condition('each', 1, 0))
        open = open + (before and 0 or 1)
        running = running + 1
    elseif holds[i] then
        local about = { 'l', lane, 'p', last, 'c', hold.call, 'held', hold.snapshot }
        if is_ruled then
            put(about, 'ruled', hold.rule)
        end
        last = redis.call('XADD', log, '*', unpack(about))
        note(hold.call, condition(is_ruled and 'decided' or hold.begun and 'unknown' or 'held', attempt, failures, last))
        if is_ruled and attempt > 0 then
            between = between + 1
        end
        if hold.begun then
            redis.call('HINCRBY', state, is_element(hold.call) and 'unknown:each' or 'unknown', 1)
        end
        open = open + (before and 0 or 1)
        if is_again and is_element(hold.call) then
            redis.call('ZREM', leases, field(hold.call))
        elseif is_again then
            running = running - (is_begun(kind) and 1 or 0)
            between = between - (is_between(kind, attempt) and 1 or 0)
            redis.call('ZREM', leases, field(hold.call))
        end
        if hold.ends then
            redis.call('ZADD', waits, hold.ends, field(hold.call))
            becomes_due(hold.ends)
        elseif not is_ruled then
            redis.call('ZADD', held, now, field(hold.call))
        end
        if request.tells and not hold.ends and not is_ruled then
            redis.call('ZADD', pending_webhooks, now, field(hold.call))
            becomes_due(now)
        end
        if approve_ms and not hold.ends and not is_ruled then
            becomes_due(now + approve_ms)
        end
    end
end

-- What the commit has gathered, written once.

local fields = {}
for call, entry in pairs(written) do
    put(fields, field(call), entry)
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
if run[4] and (last ~= was_last or #request.claims > 0 or request.leaves) then
    redis.call('HDEL', state, 'drives:' .. lane, 'driven:' .. lane) -- it gets on (see drive.lua)
end
if running ~= 0 then
    redis.call('HINCRBY', state, 'running', running)
end
if between ~= 0 then
    redis.call('HINCRBY', state, 'between', between)
end

-- What follows of a commit for its lane, and for others: it is parked, its task is taken up, lanes are let out.
--
-- Request: global_seen, park (park the lane if nothing new has arrived), leaves (the driver leaves, should nothing new have
--          arrived), requeue (it leaves in any case, and the lane is published anew), clears_mark (the mark of the lane's
--          published task as it was before the lane was read: one that was set since stays), settled: gather calls that have nothing
--          to wait for in the lane any more, once these outcomes are in the log (in `calls` each is "settled" for the lane; the
--          last lane wakes the global one), window (see `refill` in run.lua), published_ms (how long a published task may lie
--          before it counts as lost), silent_ms (how long the driver may be silent before it counts as lost)
-- Answer: woken (lanes to be published), due (where something becomes due sooner than the sweep would look: when)

local global_id = lane == '' and last or read_lane(known[2])
local nothing_new = fresh and not is_ruled_anew and (lane == '' or global_id == request.global_seen)
if request.park and nothing_new and not is_over(status) then
    redis.call('ZADD', parked, redis.call('HGET', state, 'wakes') or '0', lane)
end
if rests(status) then
    redis.call('ZADD', published, 0, lane)
elseif request.clears_mark and tonumber(redis.call('ZSCORE', published, lane)) == request.clears_mark then
    redis.call('ZREM', published, lane)
    lets_out = true
end
local woken = {}
local function publish(member)
    redis.call('ZADD', published, rests(status) and 0 or now + request.published_ms, member)
    if status == 'running' then
        woken[#woken + 1] = member
        becomes_due(now + request.published_ms)
    end
end
if all_accepted and not is_outdated and not is_over(status) then
    for _, call in ipairs(request.settled) do
        if redis.call('HSETNX', calls, field(call), 'settled') == 1 and redis.call('HINCRBY', gathers, call, -1) == 0 then
            gathered = true
        end
    end
end
if gathered then
    publish('')
end
if lets_out and status == 'running' then
    for _, one in ipairs(refill(request.window, now + request.published_ms)) do
        woken[#woken + 1] = one
        becomes_due(now + request.published_ms)
    end
end
if loop then
    publish(loop)
end
local requeue = request.requeue and status == 'running'
if requeue then
    publish(lane)
end
if requeue or (request.leaves and nothing_new) then
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
    ends = ends,
    woken = woken,
    queued = #woken > 0 and redis.call('ZCARD', published) or 0,
    due = due,
    parent = parent,
})
