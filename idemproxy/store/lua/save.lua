-- save(content, expected, kept): keep an agent's memory (core.journal.saved).
--
-- KEYS  1 journal (journal.lua): reads v, forget_at, version, before, memory; writes them; expires at forget_at
-- ARGV  1 content
--       2 expected: the version that the memory must have, '0' for none, '' for any
--       3 for how many microseconds from now the journal is kept at least
-- Gives {'saved', version}, or {'conflict', version}, which writes nothing; 0 is the version of no memory.

local content, expected, kept = unpack(ARGV)
local at = now()
local stored = load({'v', 'forget_at', 'version', 'before'})
local journal = aged(stored, at)
local version = journal and journal.version ~= '' and journal.version or '0'

if expected ~= '' and expected ~= version then
  if version ~= '0' and journal.before == expected and redis.call('HMGET', KEYS[1], 'memory')[1] == content then
    -- The same save again, its first reply lost, or not confirmed: only what this connection writes can be confirmed to it.
    redis.call('HSET', KEYS[1], 'v', VERSION)
    return {'saved', tonumber(version)}
  end
  return {'conflict', tonumber(version)}
end

if stored and not journal then
  redis.call('DEL', KEYS[1])
end
local new = math.max(at, tonumber(version) + 1)
local forget_at = at + tonumber(kept)
if journal then
  forget_at = math.max(forget_at, tonumber(journal.forget_at))
end
redis.call('HSET', KEYS[1], 'v', VERSION, 'forget_at', digits(forget_at), 'memory', content, 'version', digits(new),
           'before', version)
redis.call('PEXPIREAT', KEYS[1], milliseconds(forget_at))
return {'saved', new}
