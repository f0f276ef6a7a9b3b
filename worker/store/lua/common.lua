-- Functions of all scripts that touch no key: the server's time, and what is in the fields of a run's hashes.

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000) -- in ms

-- A time in ms as it is stored: Lua would write a large number with an exponent.
local function as_text(ms)
    return string.format('%.0f', ms)
end

-- Append two values to a list: a field and what it says, or a score and its member.
local function put(list, one, other)
    list[#list + 1] = one
    list[#list + 1] = other
end

-- The keys of a table, as a list.
local function names(set)
    local found = {}
    for name in pairs(set) do
        found[#found + 1] = name
    end
    return found
end

-- Whether a run begins no call for now: it goes on when somebody orders it, or at its time.
local function rests(status)
    return status == 'paused' or status == 'scheduled'
end

local function is_over(status)
    return status ~= 'running' and not rests(status)
end

-- Whether a run is of the format that this version reads, by the field of its state; so is one that has none.
local function reads(format, ours)
    return not format or tonumber(format) == ours
end

-- A lane's last entry and how many of its calls are open, from its field in `lanes`.
local function read_lane(entry)
    local last, open = string.match(entry or '0-0:0', '^(.*):(%d+)$')
    return last, tonumber(open)
end

-- Whether an id of the log is older than another.
local function is_before(id, other)
    local ms, number = string.match(id, '^(%d+)-(%d+)$')
    local other_ms, other_number = string.match(other, '^(%d+)-(%d+)$')
    ms, other_ms = tonumber(ms), tonumber(other_ms)
    return ms < other_ms or (ms == other_ms and tonumber(number) < tonumber(other_number))
end

-- The condition of a call that has begun and not ended, `<kind>:<attempt>:<failures>:<holder>` (see keys.py).

-- Its parts; the kind is "new" where there is no entry, and nil where the call has ended.
local function read_condition(entry)
    local kind, attempt, failures, holder = string.match(entry or 'new:0:0:', '^(%a+):(%d+):(%d+):(.*)$')
    return kind, tonumber(attempt), tonumber(failures), holder
end

local function condition(kind, attempt, failures, holder)
    return string.format('%s:%d:%d:%s', kind, attempt, failures, holder or '')
end

-- The owner in a holder, and when its message went to which queue, "" where it was taken; nil where there is no message.
local function read_holder(holder)
    local owner, since, queue = string.match(holder, '^([^/]*)/(%d+)/(.*)$')
    return owner or holder, tonumber(since), queue
end

local function sent_holder(owner, since, queue)
    return string.format('%s/%.0f/%s', owner, since, queue)
end

local function has_ended(entry)
    return entry and not string.find(entry, ':', 1, true)
end

local function is_under_way(kind)
    return kind == 'running' or kind == 'sent'
end

-- Whether its claim counts among those at work: it has begun, and its end is not known.
local function is_begun(kind)
    return is_under_way(kind) or kind == 'lost'
end

-- Whether it is between two attempts; one that was given back, or held, before its first has not begun.
local function is_between(kind, attempt)
    return (kind == 'retry' or kind == 'decided') and attempt > 0
end

-- Whether a number is an element's, and not a call's (see protocol/calls/call.py): those are not counted.
local function is_element(call)
    return tonumber(call) >= 10000000
end
