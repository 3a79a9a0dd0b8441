-- open(offered): see the witness of a bucket, and make it where there is none.
--
-- KEYS  1 witness: reads it; writes it where it is absent
-- ARGV  1 the generation that it is to have when it is made now
-- Gives {'made' or 'found', generation}; 'made' also to a second copy of the call that made it.

local generation = redis.call('GET', KEYS[1])
if generation and generation ~= ARGV[1] then
  return {'found', generation}
end
redis.call('SET', KEYS[1], ARGV[1])
return {'made', ARGV[1]}
