-- note(name, entry, kept): keep a step in a journal (core.journal.noted).
--
-- KEYS  1 journal (journal.lua): reads v, forget_at, steps, NAME and the entry; writes them; expires at forget_at
-- ARGV  1 name: of the step's record
--       2 entry: what is told of the step
--       3 for how many microseconds from now the journal is kept at least, as the step tells it, too
-- Gives 'noted'.

local name, entry, kept = unpack(ARGV)
local at = now()
local stored = load({'v', 'forget_at', 'steps', name})
local journal = aged(stored, at)

if stored and not journal then
  redis.call('DEL', KEYS[1])
end
local forget_at = at + tonumber(kept)
if journal then
  forget_at = math.max(forget_at, tonumber(journal.forget_at))
end
if journal and journal[name] ~= '' then
  local began, before, told = string.match(redis.call('HMGET', KEYS[1], journal[name])[1], '^(%d+) (%d+) (.*)$')
  local longer = tonumber(before) < tonumber(kept) and kept or before
  redis.call('HSET', KEYS[1], 'forget_at', digits(forget_at), journal[name], began .. ' ' .. longer .. ' ' .. told)
else
  local place = digits((tonumber(journal and journal.steps) or 0) + 1)
  redis.call('HSET', KEYS[1], 'v', VERSION, 'forget_at', digits(forget_at), 'steps', place, name, place,
             place, digits(at) .. ' ' .. kept .. ' ' .. entry)
end
redis.call('PEXPIREAT', KEYS[1], milliseconds(forget_at))
return 'noted'
