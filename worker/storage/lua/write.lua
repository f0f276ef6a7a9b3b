-- Write a part of a run down, whole or not at all (see run_writer.py). A run has one writer at a time: who begins takes over
-- from one that has not started it, and what that one sends later is refused. A part that is sent again is written once.
--
-- KEYS 1 state (hash, see advance.lua; here also writer: "<who>:<how many parts are written>")    and every other key of the run
-- ARGV 1 who    2 the number of the part, from 0; -1 gives the run up    3 the commands of the part, msgpack
-- Returns 1 where it is written, or given up; 0 where another writes the run, or has started it.

local state = KEYS[1]
local who, part = ARGV[1], tonumber(ARGV[2])
local run = redis.call('HMGET', state, 'writer', 'status')
local writer = run[1] or ''
if part == -1 then
    if string.sub(writer, 1, #who + 1) ~= who .. ':' then
        return 0
    end
    redis.call('UNLINK', unpack(KEYS))
    return 1
end
if writer == who .. ':' .. (part + 1) then
    return 1
end
if part == 0 then
    if run[2] then
        return 0
    end
    redis.call('UNLINK', unpack(KEYS))
elseif writer ~= who .. ':' .. part then
    return 0
end
for _, command in ipairs(cmsgpack.unpack(ARGV[3])) do
    redis.call(unpack(command))
end
redis.call('HSET', state, 'writer', who .. ':' .. (part + 1))
return 1
