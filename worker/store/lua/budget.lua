-- Reserve tokens and calls of a loop's budget (SPEC R13.3): what it, its child runs, and its calls that ask a model, may
-- take together. Each of them has one member, and says how much it has taken in all, so what comes twice counts once.
-- Calls are reserved before they are written, by processes of which one may know less than another; so only a later tick
-- gives some back. All or nothing: each of the loops above the member has a limit of its own.
--
-- `budget` has for each member "<tokens>:<open>:<calls>:<tick>", with ":<money>:<open money>" behind it where there is any,
-- and the sums of all members, see `limits`.
--
-- KEYS: state budget
-- USES: common
-- Request: member, tokens (nil: as before), open (those of the tokens that are only reserved), money and open_money (the same
--          in nanodollars), calls (nil: as before), tick (of the member's loop), limits (of the loops above the member, the
--          nearest first: sums the fields with the sums of tokens, open, calls, money and open money, is_own whether it is the
--          member's own, which counts its calls alone, tokens, calls and money: nil is no limit)
-- Answer: is_over (the run is over, or gone), is_drawn; else limit (which of them lacks something), what ("tokens", "calls" or
--         "money"), left (of that, before this), open (what others have only reserved)

local status = redis.call('HGET', state, 'status')
if not status or is_over(status) then
    return cmsgpack.pack({ is_over = true, is_drawn = false })
end
local found = redis.call('HGET', budget, request.member) or '0:0:0:0'
local tokens, open, calls, tick = string.match(found, '^(%d+):(%d+):(%d+):(%d+)')
local money, open_money = string.match(found, '^%d+:%d+:%d+:%d+:(%d+):(%d+)$')
local own = {
    tokens = tonumber(tokens),
    open = tonumber(open),
    calls = tonumber(calls),
    money = tonumber(money or 0),
    open_money = tonumber(open_money or 0),
}
local drawn = {
    tokens = request.tokens or own.tokens,
    open = request.tokens and request.open or own.open,
    calls = request.calls or own.calls,
    money = request.money or own.money,
    open_money = request.money and request.open_money or own.open_money,
}
tick = tonumber(tick)
if request.tick < tick then
    drawn.calls = own.calls
elseif request.tick == tick then
    drawn.calls = math.max(drawn.calls, own.calls)
end
local SUMS = { 'tokens', 'open', 'calls', 'money', 'open_money' } -- as `sums` has them
for at, limit in ipairs(request.limits) do
    local sums, taken = redis.call('HMGET', budget, unpack(limit.sums)), {}
    for place, what in ipairs(SUMS) do
        taken[what] = tonumber(sums[place] or 0)
    end
    local is_other = not limit.is_own
    local most_of = { tokens = is_other and limit.tokens or nil, money = is_other and limit.money or nil, calls = limit.calls }
    for what, most in pairs(most_of) do
        local left = most - (taken[what] - own[what])
        if drawn[what] > own[what] and drawn[what] > left then
            local reserved = what == 'money' and 'open_money' or 'open'
            return cmsgpack.pack({
                is_over = false,
                is_drawn = false,
                limit = at - 1,
                what = what,
                left = math.max(left - own[what], 0),
                open = taken[reserved] - own[reserved],
            })
        end
    end
end
tick = math.max(tick, request.tick)
local value = string.format('%.0f:%.0f:%.0f:%.0f', drawn.tokens, drawn.open, drawn.calls, tick)
if drawn.money + drawn.open_money > 0 then
    value = value .. string.format(':%.0f:%.0f', drawn.money, drawn.open_money)
end
redis.call('HSET', budget, request.member, value)
for _, limit in ipairs(request.limits) do
    for at, what in ipairs(SUMS) do
        if what == 'calls' or not limit.is_own then
            redis.call('HINCRBY', budget, limit.sums[at], string.format('%.0f', drawn[what] - own[what]))
        end
    end
end
return cmsgpack.pack({ is_over = false, is_drawn = true })
