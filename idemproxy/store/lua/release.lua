-- release(channel, fence, owner): free the key, since it is proven that nothing was executed (core.transition.release).
--
-- KEYS  1 record: reads v, phase, fence, owner, watched; deletes it
--       2 answer: deletes it
-- ARGV  1 the channel of settlements
--       2 fence, 3 owner
-- Gives 'written' or 'stale'.

local channel, fence, owner = unpack(ARGV)
local record = load(HOLDING)

if not record then
  return 'written'
end
if record.fence ~= fence or record.owner ~= owner or (record.phase ~= 'in_flight' and record.phase ~= 'unknown') then
  return 'stale'
end
redis.call('DEL', KEYS[1], KEYS[2])
return settled(record, channel)
