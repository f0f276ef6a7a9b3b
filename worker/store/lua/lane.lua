-- Read entries of a lane, the newest first: each names the one before.
--
-- KEYS: log lanes published state
-- USES: common
-- Request: lane, after (an id of the lane; only what is newer is read), from (the id to begin with, or "" for the lane's
--          last), most (how many entries), most_bytes (after so many no more are added)
-- Answer: open (how many of its calls are), mark (of its task, or nil), now (in ms), born (when the run was submitted), entries,
--         before (the id to go on with, or "" where that is all)

local after, id, bytes = request.after, request.from, request.most_bytes
local last, open = read_lane(redis.call('HGET', lanes, request.lane))
local entries = {}
if id == '' then
    id = last
end
while id ~= '' and id ~= '0-0' and id ~= after and #entries < request.most and bytes > 0 do
    local entry = redis.call('XRANGE', log, id, id)[1]
    if not entry then
        return redis.error_reply('BROKEN ' .. log .. ' lacks its entry ' .. id)
    end
    entries[#entries + 1] = entry
    for _, value in ipairs(entry[2]) do
        bytes = bytes - #value
    end
    id = entry[2][4] -- the fields begin with "l", the lane, "p", the id before
end
return cmsgpack.pack({
    open = open,
    mark = tonumber(redis.call('ZSCORE', published, request.lane) or nil),
    now = now,
    born = redis.call('HGET', state, 'submitted') or nil,
    entries = entries,
    before = (id == after or id == '0-0') and '' or id,
})
