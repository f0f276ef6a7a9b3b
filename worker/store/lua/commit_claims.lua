-- What becomes of calls at work: attempts that failed rest, a child run answers, the calls that come next are claimed.
--
-- KEYS: leases log children state
-- USES: commit_step commit_outcomes
-- Request: retries: {call, attempt, delay_ms, given_back, of, note} (attempts that failed, and when the next is due; one that
--          was given back does not count, and the first time the log has a note of the call that it is `of`),
--          children: {call, attempt, run} (calls at work that a child run is to answer),
--          claims: {call, lease_ms, queue ("" where the owner carries it out itself), alone (whether no other call is at
--          work there that may be what its workers died of)}, alone_from and most_losses (with so many losses a call is
--          claimed only `alone`; with the most it does not begin any more)
-- Answer: claims (for each the number of the attempt, 0 where it is at work or rests, -1 where it is to be claimed
--         alone), failures (for each how many of the attempts before failed), repeated (for each whether the one before
--         was lost)

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
        leased[#leased + 1] = due
        leased[#leased + 1] = field(retry.call)
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

local claims, failed, repeated = {}, {}, {}
for i, claim in ipairs(request.claims) do
    local member = field(claim.call)
    local is_remote = claim.queue ~= ''
    local kind, attempt, failures, holder = read_condition(entries[claim.call])
    local is_held = is_under_way(kind) and redis.call('ZSCORE', leases, member)
    local is_resting = kind == 'retry' and tonumber(holder) > now
    claims[i], failed[i], repeated[i] = 0, failures or 0, kind == 'lost'
    local is_free = kind and kind ~= 'held' and kind ~= 'child' and not is_resting
    local losses = is_free and attempt - failures or 0
    local waits = not (is_held or is_remote or claim.alone) and losses >= request.alone_from and losses < request.most_losses
    if waits then
        claims[i], is_free = -1, false
    end
    if status == 'running' and not is_outdated and is_free and (not is_held or string.match(holder, '^[^/]*') == owner) then
        claims[i] = attempt + (is_held and 0 or 1)
        open = open + (kind == 'new' and 1 or 0)
        local claimant = is_remote and sent_holder(owner, now, claim.queue) or owner
        note(claim.call, condition(is_remote and 'sent' or 'running', claims[i], failures, claimant))
        leased[#leased + 1] = now + claim.lease_ms
        becomes_due(now + claim.lease_ms)
        leased[#leased + 1] = member
        if not is_begun(kind) and not is_element(claim.call) then
            running = running + 1
            between = between - (is_between(kind, attempt) and 1 or 0)
        end
    end
end
