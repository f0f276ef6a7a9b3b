-- What a commit has gathered, written once.
--
-- KEYS: calls lanes leases state
-- USES: commit_step

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
if run[4] and (last ~= was_last or #request.claims > 0 or request.leaves) then
    redis.call('HDEL', state, 'drives:' .. lane, 'driven:' .. lane) -- it gets on (see drive.lua)
end
if running ~= 0 then
    redis.call('HINCRBY', state, 'running', running)
end
if between ~= 0 then
    redis.call('HINCRBY', state, 'between', between)
end
