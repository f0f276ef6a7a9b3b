-- The keys of a table, as a list. This stands before the scripts that return such (see `scripts.read_script`).
local function names(set)
    local found = {}
    for name in pairs(set) do
        found[#found + 1] = name
    end
    return found
end
