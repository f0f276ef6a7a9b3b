-- Calls that are to wait for a person (see decide.lua), or that are carried out for each element.
--
-- KEYS: leases log held pending_webhooks state
-- USES: commit_step commit_outcomes
-- Request: holds: {call, snapshot (msgpack), elements (for so many it is carried out; 0 where it waits for a person)}, tells
--          (whether there is a web hook to be called for what is held)
-- Answer: held (for each hold whether it was written)

local holds = {}
for i, hold in ipairs(request.holds) do
    local before = entries[hold.call]
    local kind, attempt, failures = read_condition(before)
    -- Labels may have been added since an attempt, and hold the next one (SPEC R16.1).
    local is_again = hold.elements == 0 and (kind == 'lost' or kind == 'retry')
    local is_free = not before or is_again or (hold.elements > 0 and kind == 'decided')
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
        last = redis.call('XADD', log, '*', 'l', lane, 'p', last, 'c', hold.call, 'held', hold.snapshot)
        note(hold.call, condition('held', attempt, failures, last))
        open = open + (before and 0 or 1)
        if is_again then
            running = running - (is_begun(kind) and 1 or 0)
            between = between - (is_between(kind, attempt) and 1 or 0)
            redis.call('ZREM', leases, field(hold.call))
        end
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
