-- check(seen): a write such as a claim's, on a key of its own, which shows that this server takes them from this user, and whether
-- the witness of that key's bucket is still the one that was seen.
--
-- KEYS  1 the key: reads and writes v and checked_at; expires after a minute
--       2 witness: reads it
-- ARGV  1 the generation of the witness that the asker has seen, or ''
-- Gives 'written' or 'lost'; the key is written in both cases.

local at = now()
redis.call('HMGET', KEYS[1], 'v', 'checked_at')
redis.call('HSET', KEYS[1], 'v', VERSION, 'checked_at', digits(at))
redis.call('PEXPIREAT', KEYS[1], milliseconds(at + 60000000))
return ARGV[1] ~= '' and redis.call('GET', KEYS[2]) ~= ARGV[1] and 'lost' or 'written'
