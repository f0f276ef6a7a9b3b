-- Delete every key of a run, if it is over: calls may have been added to it meanwhile (SPEC R11.7). Or say what it holds.
--
-- KEYS: state outbox *
-- USES: status formats
-- Request: deletes (else it only says), reads (a format: a run of another is deleted, too, while it is under way; or nil),
--          keeps_outstanding (a run stays whose calls that were sent and forgotten are not done)
-- Answer: status (none where there is no run), bytes (that its keys take, as the server estimates it), outstanding (how many
--         calls that were sent and forgotten are not done), is_deleted

local known = redis.call('HMGET', state, 'status', 'format')
local status = known[1]
local is_foreign = request.reads and not reads(known[2], request.reads)
local outstanding, bytes = redis.call('HLEN', outbox), 0
for _, key in ipairs(KEYS) do
    bytes = bytes + (redis.call('MEMORY', 'USAGE', key) or 0)
end
local is_deleted = request.deletes and (not status or is_over(status) or is_foreign)
    and not (request.keeps_outstanding and outstanding > 0)
if is_deleted then
    redis.call('UNLINK', unpack(KEYS))
end
return cmsgpack.pack({
    status = status or nil,
    bytes = bytes,
    outstanding = outstanding,
    is_deleted = is_deleted and true or false,
})
