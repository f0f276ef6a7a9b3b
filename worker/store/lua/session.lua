-- Say which process has a run's session with an MCP server, and give it to the one that asks where none has it.
--
-- A session is numbered: a run whose session was lost is given another number, so that this can be told.
--
-- KEYS: state sessions
-- USES: common
-- Request: server, process (who asks), dead (a process that has ended, or ""), ended (the number of the asking process's
--   own session that is over, or 0), why (it is over), gives_up (whether it wants no other one)
-- Answer: process (who has it now, or ""), number, why (the one before is over, or ""), is_new

local KEPT_SECONDS = 3600

local found = redis.call('HGET', sessions, request.server)
local process, number, why = '', 0, ''
if found then
    process, number, why = unpack(cmsgpack.unpack(found))
end
local is_new = false
if process == request.process and request.ended == number then
    process, why = '', request.why
elseif process ~= '' and process == request.dead then
    process, why = '', request.why
end
if process == '' and not request.gives_up then
    process, number, is_new = request.process, number + 1, true
end
redis.call('HSET', sessions, request.server, cmsgpack.pack({ process, number, why }))
local status = redis.call('HGET', state, 'status')
if not status or is_over(status) then
    redis.call('EXPIRE', sessions, KEPT_SECONDS)
end
return cmsgpack.pack({ process = process, number = number, why = why, is_new = is_new })
