-- renew(fence, owner, lease): prolong the lease of a record in flight (core.transition.renew).
--
-- KEYS  1 record: reads v, phase, fence, owner, lease_until; writes lease_until
-- ARGV  1 fence, 2 owner
--       3 lease in microseconds from now
-- Gives 'renewed', or 'lost' when the hold is no longer in flight.

local fence, owner, lease = unpack(ARGV)
local record = load(HOLDING)
local at = now()

if not record or record.phase ~= 'in_flight' or record.fence ~= fence or record.owner ~= owner then
  return 'lost'
end
if tonumber(record.lease_until) <= at then
  return 'lost' -- a lease that is over stays over: someone may have seen the record as unknown, and have decided by that
end
-- A record in flight has no expiry, so PERSIST changes nothing; but a script that has written may go on where memory is full,
-- and a holder that works must not lose its lease over that.
redis.call('PERSIST', KEYS[1])
redis.call('HSET', KEYS[1], 'lease_until', digits(at + tonumber(lease)))
return 'renewed'
