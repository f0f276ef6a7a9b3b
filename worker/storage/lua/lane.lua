-- Read entries of a lane, the newest first: each names the one before.
--
-- KEYS 1 log (stream)    2 lanes (hash)    3 published (zset); see advance.lua
-- ARGV 1 the lane    2 after (an id of the lane; only what is newer is read)    3 from (the id to begin with, or "" for
--        the lane's last)    4 how many entries at most    5 after how many bytes of them no more are added
-- Returns {last (the id of the lane's last entry), how many of its calls are open, the mark of its task or nil, the time
--          in ms, the entries, the id to go on with or "" where that is all}

local lane, after, id = ARGV[1], ARGV[2], ARGV[3]
local most, bytes = tonumber(ARGV[4]), tonumber(ARGV[5])
local last, open = read_lane(redis.call('HGET', KEYS[2], lane))
local clock = redis.call('TIME')
local now = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000))
local entries = {}
if id == '' then
    id = last
end
while id ~= '' and id ~= '0-0' and id ~= after and #entries < most and bytes > 0 do
    local entry = redis.call('XRANGE', KEYS[1], id, id)[1]
    if not entry then
        return redis.error_reply('BROKEN ' .. KEYS[1] .. ' lacks its entry ' .. id)
    end
    entries[#entries + 1] = entry
    for _, value in ipairs(entry[2]) do
        bytes = bytes - #value
    end
    id = entry[2][4] -- the fields begin with "l", the lane, "p", the id before
end
if id == after or id == '0-0' then
    id = ''
end
return { last, open, redis.call('ZSCORE', KEYS[3], lane), now, entries, id }
