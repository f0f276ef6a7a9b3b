-- Which runs this version reads.

-- Whether a run is of one of the formats that are read, by the field of its state; so is one that has none.
local function reads(format, formats)
    local found = not format
    for _, one in ipairs(formats) do
        found = found or one == tonumber(format)
    end
    return found
end
