-- Decide on one held call (SPEC R14.2): the first decision counts. Its lane is marked as published, so that the sweep
-- publishes it should the client die before it has.
--
-- KEYS 1 state (hash)    2 log (stream)    3 lanes (hash)    4 calls (hash)    5 held (zset)    6 published (zset); see advance.lua
-- ARGV 1 the request, msgpack: member (the call, as in `calls`), ruling (msgpack), who (has decided, msgpack), shown (the entry of the
--        log that the person has seen, or nil), published_ms (how long a published task may
--        lie before it counts as lost)
-- Returns msgpack: status (of the run; "gone" where there is none), is_amended (whether it is amended in part: nothing was
--          decided), id (of the entry; none where the call is not held), is_published (whether the lane is to be published)

local state = KEYS[1]
local keys = { log = KEYS[2], lanes = KEYS[3], calls = KEYS[4], held = KEYS[5], published = KEYS[6] }
local request = cmsgpack.unpack(ARGV[1])
local run = redis.call('HMGET', state, 'status', 'amending', 'look')
local status, look = run[1], tonumber(run[3] or nil)
local id
if status and not is_over(status) and not run[2] then
    local clock = redis.call('TIME')
    local due = clock[1] * 1000 + math.floor(clock[2] / 1000) + request.published_ms
    id = decide(keys, request.member, request.ruling, request.who, status == 'paused' and 0 or due, request.shown)
    if id and status == 'running' and (not look or due < look) then
        redis.call('HSET', state, 'look', string.format('%.0f', due))
    end
end
return cmsgpack.pack({
    status = status or 'gone',
    is_amended = run[2] ~= false,
    id = id,
    is_published = id ~= nil and status == 'running',
})
