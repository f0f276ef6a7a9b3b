-- A commit under way (see commit.lua): what is known of the run and of the lane, and what is to be written at its end.
--
-- KEYS: calls leases state log lanes
-- USES: status lanes condition

local lane, owner = request.lane, request.owner

local run = redis.call('HMGET', state, 'status', 'look', 'approve_ms', 'drives:' .. lane, 'retried:' .. lane, 'submitted')
local status, look, approve_ms = run[1], tonumber(run[2] or nil), tonumber(run[3] or nil)
if not status or (request.born or run[6]) ~= run[6] then
    return cmsgpack.pack({ status = 'gone' })
end
local known = redis.call('HMGET', lanes, lane, '')
local last, open = read_lane(known[1])
-- Whether the caller takes calls for ended that are carried out again: what it would begin may rest on them.
local is_outdated = run[5] and is_before(request.seen, run[5])
local fresh = last == request.seen and (request.status or status) == status
local was_open, was_last = open, last
local soonest -- of what becomes due by this commit

local function becomes_due(at)
    soonest = math.min(soonest or at, at)
end

local grown = 0 -- bytes of what is appended

-- Calls are read once and written once, as are the counters and leases: a commit of 500 calls should not hold up the
-- server for longer than its entries take.
local entries, written, leased, released, counted, running, between = {}, {}, {}, {}, {}, 0, 0

local function field(call)
    return lane .. '\31' .. call
end

local function look_up(asked)
    local names = {}
    for i, one in ipairs(asked) do
        names[i] = field(one.call)
    end
    if #names > 0 then
        for i, entry in ipairs(redis.call('HMGET', calls, unpack(names))) do
            entries[asked[i].call] = entry
        end
    end
end

local function note(call, entry)
    entries[call], written[call] = entry, entry
end

look_up(request.outcomes)
look_up(request.retries)
look_up(request.claims)
look_up(request.holds)
look_up(request.children)
