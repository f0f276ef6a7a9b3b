-- Which runs this version reads.

-- Whether a run is of our format, by the field of its state; so is one that has none.
local function reads(format, ours)
    return not format or tonumber(format) == ours
end
