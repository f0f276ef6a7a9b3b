-- Write a part of a run down, whole or not at all (see run_writer.py). A run has one writer at a time: who begins takes over
-- from one that has not started it, and what that one sends later is refused. A part that is sent again is written once.
-- `state` has `writer`: "<who>:<how many parts are written>".
--
-- KEYS: state *
-- Request: who, part (its number, from 0; -1 gives the run up), commands (of the part)
-- Answer: is_written (or given up; else another writes the run, or has started it)

local function answer(is_written)
    return cmsgpack.pack({ is_written = is_written })
end

local who, part = request.who, request.part
local run = redis.call('HMGET', state, 'writer', 'status')
local writer = run[1] or ''
if part == -1 then
    if string.sub(writer, 1, #who + 1) ~= who .. ':' then
        return answer(false)
    end
    redis.call('UNLINK', unpack(KEYS))
    return answer(true)
end
if writer == who .. ':' .. (part + 1) then
    return answer(true)
end
if part == 0 then
    if run[2] then
        return answer(false)
    end
    redis.call('UNLINK', unpack(KEYS))
elseif writer ~= who .. ':' .. part then
    return answer(false)
end
for _, command in ipairs(request.commands) do
    redis.call(unpack(command))
end
redis.call('HSET', state, 'writer', who .. ':' .. (part + 1))
return answer(true)
