-- The keys of a table, as a list.
local function names(set)
    local found = {}
    for name in pairs(set) do
        found[#found + 1] = name
    end
    return found
end
