-- journal(): a whole journal as it stands now (core.journal.Journal). Writes nothing, so that it works where memory is full too.
--
-- KEYS  1 journal, a hash:
--         v          the version of this layout: '1'
--         forget_at  when all of it goes, unless something is added before; it expires then
--         steps      how many steps it has; absent: none
--         1, 2, ...  the steps in their order: when each was first noted, for how long its record tells of it, and what else
--                    is told of it, with spaces between
--         NAME       the number of the step whose record has this name, which holds slashes
--         memory     what the agent keeps, with its
--         version    and
--         before     the version that it took the place of, '0' for the first; all three are absent before the first
-- Gives {now, forget_at, version, before, memory, {step, ...}}, whose version is '' where there is no memory; or nil.

local SOME = 1000 -- of many arguments, Lua would make more at once than it has room for

local at = now()
local journal = aged(load({'v', 'forget_at', 'steps', 'version', 'before', 'memory'}), at)
if not journal then
  return nil
end
local count, steps = tonumber(journal.steps) or 0, {}
for first = 1, count, SOME do
  local places = {}
  for place = first, math.min(first + SOME - 1, count) do
    places[#places + 1] = digits(place)
  end
  for _, step in ipairs(redis.call('HMGET', KEYS[1], unpack(places))) do
    steps[#steps + 1] = step
  end
end
return {at, journal.forget_at, journal.version, journal.before, journal.memory, steps}
