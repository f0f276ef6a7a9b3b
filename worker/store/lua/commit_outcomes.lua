-- Outcomes of a commit: each is appended once, and counted; the run ends with its last call.
--
-- KEYS: calls codes leases children
-- USES: commit_step background
-- Request: outcomes: {call, element and of (where it is that of an element, which one and of which call; the call itself
--          ends by an outcome of its own, and that alone is counted), status, detail (msgpack or ""), missed (the promised
--          places that it had to do without, or ""), wakes (parked lanes), decided (whether nobody has carried it out),
--          messages (each msgpack), task and queue (of what is sent and forgotten; else ""), code (who has
--          carried it out, see codes.py; or ""), paid (tokens and nanodollars that models have taken for it, or nil)}, output_fault (why the run's output cannot be read, "" where it can; nil as long
--          as global calls have not ended), work (what validation has taken since the last commit), most_bytes, most_work,
--          most_codes (what the calls of a run may write, and validation take, in all)
-- Answer: accepted (for each outcome)

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
            fields[#fields + 1] = outcome.element and 'element' or 's'
            fields[#fields + 1] = outcome.element and outcome.element .. ':' .. outcome.status or outcome.status
            local code = outcome.code ~= '' and number_of(outcome.code)
            if code then
                fields[#fields + 1] = 'W'
                fields[#fields + 1] = code
            end
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

-- Whether the driver has known of the execution that a call has begun. One that takes a call for ended that is carried out
-- again knows of what it has begun itself, of child runs, and of what was sent before; the others' results come again.
local function is_known(entry)
    local kind, _, _, holder = read_condition(entry)
    if not is_outdated or kind == 'child' then
        return true
    end
    local by, since = read_holder(holder)
    return by == owner or (since and since < tonumber(string.match(run[5], '^%d+')))
end

local accepted, ended, lets_out, wakes, all_accepted, gathered, loop = {}, 0, false, 0, true, false, nil
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
