-- The server's time.

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000) -- in ms

-- A time in ms as it is stored: Lua would write a large number with an exponent.
local function as_text(ms)
    return string.format('%.0f', ms)
end
