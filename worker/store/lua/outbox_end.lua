-- Take a call that is dead out of the outbox, unless it was sent again since (see dead_letters.py).
--
-- USES: background
-- Request: member, attempts (so many executions of it were begun; 0 where it is no entry of ours)
-- Answer: is_taken

local _, attempts = read_condition(redis.call('HGET', outbox, request.member))
local is_taken = (attempts or 0) >= request.attempts
if is_taken then
    end_in_background(request.member, true)
end
return cmsgpack.pack({ is_taken = is_taken })
