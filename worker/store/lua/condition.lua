-- The condition of a call that has begun and not ended, `<kind>:<attempt>:<failures>:<holder>`: see condition.py.

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

-- Whether it is between two attempts; one that was given back before its first has not begun.
local function is_between(kind, attempt)
    return kind == 'retry' and attempt > 0
end

-- Whether a number is that of an element, and not of a call (see protocol/calls/call.py): those are not counted.
local function is_element(call)
    return tonumber(call) >= 10000000
end
