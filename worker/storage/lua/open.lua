-- Open a lane: what a runner reads before it begins, in one step and of bounded size.
--
-- KEYS 1 journal (stream)    2 ledger (hash)    3 published (zset); see advance.lua
-- ARGV 1 the lane    2 how many entries at most, of journal and ledger each
-- Returns {the mark of the lane's task or nil, the ledger's fields and values or nil where it has more, the journal's first
--          entries, the time in ms}. What is left out is read after this: nothing that is seen at work there was begun
--          after outcomes that the journal, read last, does not hold.

local most = tonumber(ARGV[2])
local clock = redis.call('TIME')
local ledger = redis.call('HLEN', KEYS[2]) <= most and redis.call('HGETALL', KEYS[2])
local journal = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', most)
local now = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000))
return { redis.call('ZSCORE', KEYS[3], ARGV[1]), ledger, journal, now }
