-- Add messages to a run under way (SPEC R11.6): all of them or none, each at the end of its lane. The lanes that may read
-- them are marked as published, so that the sweep publishes them should the client die before it has.
--
-- USES: status lanes window
-- Request: messages (pairs of lane and message, which is msgpack), who (sends them; see audit.py), published_ms (how long a
--          published task may lie before it counts as lost), window (see window.lua), most_bytes (what a run may write)
-- Answer: status (of the run; "gone" where there is none), is_amended (whether it is amended in part: nothing was added),
--         bytes (what the run had written), is_full (whether it may not write these, too: nothing was added), ids (of what
--         was added), lanes (to be published)

local status, amending, look, bytes = unpack(redis.call('HMGET', state, 'status', 'amending', 'look', 'bytes'))
bytes = tonumber(bytes or 0)
local ids, woken, touched, grown = {}, {}, {}, 0
for _, pair in ipairs(request.messages) do
    grown = grown + #pair[2]
end
local is_full = bytes + grown > request.most_bytes
if status and not is_over(status) and not amending and not is_full then
    redis.call('HINCRBY', state, 'bytes', grown)
    local due = now + request.published_ms
    for i, pair in ipairs(request.messages) do
        local lane = pair[1]
        ids[i] = append_entry(lane, 'm', pair[2], 'audit', request.who)
        if not touched[lane] then
            touched[lane] = true
            woken[#woken + 1] = lane
            redis.call('ZADD', published, status == 'paused' and 0 or due, lane)
        end
    end
    if touched[''] then
        redis.call('HINCRBY', state, 'wakes', 1)
    end
    if status == 'paused' then
        woken = {}
    else
        for _, lane in ipairs(refill(request.window, due)) do
            woken[#woken + 1] = lane
        end
        look_by(due, look)
    end
end
return cmsgpack.pack({
    status = status or 'gone', is_amended = amending ~= false, is_full = is_full, bytes = bytes, ids = ids, lanes = woken,
})
