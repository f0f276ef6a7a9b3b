-- Draw on the pool of a loop (SPEC R13.3): what it, its child runs, and its calls that ask a model, may take together. Each
-- of them has one member, and says how much it has taken in all, so a draw that comes twice counts once. Calls are drawn
-- before they are written, by processes of which one may know less than another; so only a later tick gives some back.
--
-- `pool` has for each member "<tokens>:<open>:<calls>:<tick>"; the sums of all members stand under "=tokens", "=open" and
-- "=calls".
--
-- KEYS: state pool
-- USES: status
-- Request: member, tokens (nil: as before), open (those of the tokens that are only reserved), calls (nil: as before), tick
--          (of the member's loop), most_tokens, most_calls (nil: no limit)
-- Answer: is_over (the run is over, or gone), is_drawn, left (of what is lacking, before this draw), what ("tokens" or
--         "calls"), open (what others have only reserved)

local status = redis.call('HGET', state, 'status')
if not status or is_over(status) then
    return cmsgpack.pack({ is_over = true, is_drawn = false })
end
local found = redis.call('HMGET', pool, request.member, '=tokens', '=open', '=calls')
local tokens, open, calls, tick = string.match(found[1] or '0:0:0:0', '^(%d+):(%d+):(%d+):(%d+)$')
local sums = { tokens = tonumber(found[2] or 0), open = tonumber(found[3] or 0), calls = tonumber(found[4] or 0) }
local own = { tokens = tonumber(tokens), open = tonumber(open), calls = tonumber(calls) }
local drawn = {
    tokens = request.tokens or own.tokens,
    open = request.tokens and request.open or own.open,
    calls = request.calls or own.calls,
}
tick = tonumber(tick)
if request.tick < tick then
    drawn.calls = own.calls
elseif request.tick == tick then
    drawn.calls = math.max(drawn.calls, own.calls)
end
for what, most in pairs({ tokens = request.most_tokens, calls = request.most_calls }) do
    local left = most - (sums[what] - own[what])
    if drawn[what] > own[what] and drawn[what] > left then
        return cmsgpack.pack({
            is_over = false,
            is_drawn = false,
            left = math.max(left - own[what], 0),
            what = what,
            open = sums.open - own.open,
        })
    end
end
tick = math.max(tick, request.tick)
local value = string.format('%.0f:%.0f:%.0f:%.0f', drawn.tokens, drawn.open, drawn.calls, tick)
redis.call('HSET', pool, request.member, value)
for what, amount in pairs(drawn) do
    redis.call('HINCRBY', pool, '=' .. what, string.format('%.0f', amount - own[what]))
end
return cmsgpack.pack({ is_over = false, is_drawn = true })
