-- Decide on one held call (SPEC R14.2): the first decision counts. Its lane is marked as published, so that the sweep
-- publishes it should the client die before it has.
--
-- KEYS: state
-- USES: status held
-- Request: member (the call, as in `calls`), ruling (msgpack), who (has decided, msgpack), shown (the entry of the log that
--          the person has seen), published_ms (how long a published task may lie before it counts as lost)
-- Answer: status (of the run; "gone" where there is none), is_amended (whether it is amended in part: nothing was
--         decided), id (of the entry; none where the call is not held), is_published (whether the lane is to be published)

local status, amending, look = unpack(redis.call('HMGET', state, 'status', 'amending', 'look'))
local id
if status and not is_over(status) and not amending then
    local due = now + request.published_ms
    id = decide(request.member, request.ruling, request.who, status == 'paused' and 0 or due, request.shown)
    if id and status == 'running' then
        look_by(due, look)
    end
end
return cmsgpack.pack({
    status = status or 'gone',
    is_amended = amending ~= false,
    id = id,
    is_published = id ~= nil and status == 'running',
})
