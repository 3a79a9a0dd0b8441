-- claim(channel, fingerprint, owner, route, lease, reclaim, watched, seen, offered): the atomic read-or-take
-- (core.transition.claim), where an absent record counts only while the witness of its bucket is the one that was seen.
--
-- KEYS  1 record: reads and writes every field, removes its expiry
--       2 answer: reads; deletes when the answer has expired or the record is claimed again
--       3 witness: reads it where there is no record; writes it where it is absent and none was seen
-- ARGV  1 the channel of settlements
--       2 fingerprint, 3 owner, 4 route
--       5 lease in microseconds
--       6 the fence of an unknown or expired record that may be run again, or ''
--       7 '1' to be told of the settlement of a record found in flight, or ''
--       8 the generation of the witness that the asker has seen, or ''
--       9 the one that a witness is to have that is made now
-- Gives {'granted', fence, claimed_at}, with the witness's generation where there was no record; or {'lost'}, which writes nothing:
-- the record may have been lost with the witness; or the record as `told`, whose first entry is its phase.

local channel, fingerprint, owner, route, lease, reclaim, watched, seen, offered = unpack(ARGV)
local at = now()
local stored = load(RECORD)
local record, turned = aged(stored, at)

if record then
  if record.phase == 'in_flight' and record.owner == owner then
    -- The asker counts its lease from this asking, which may be later than that of a copy that was carried out late.
    local lease_until = math.max(tonumber(record.lease_until), at + tonumber(lease))
    redis.call('HSET', KEYS[1], 'lease_until', digits(lease_until))
    return {'granted', tonumber(record.fence), tonumber(record.claimed_at)}
  end
  local again = record.fence == reclaim and record.fingerprint == fingerprint
      and (record.phase == 'unknown' or record.phase == 'expired')
  if not again then
    if turned and record.phase == 'unknown' then
      redis.call('HSET', KEYS[1], 'phase', 'unknown', 'settled_at', record.settled_at)
    elseif turned then
      redis.call('HSET', KEYS[1], 'phase', 'expired')
      redis.call('DEL', KEYS[2])
    end
    if record.phase == 'in_flight' and watched == '1' and record.watched ~= '1' then
      redis.call('HSET', KEYS[1], 'watched', '1')
    elseif turned and record.watched == '1' then
      redis.call('HDEL', KEYS[1], 'watched')
      announce(channel)
    end
    return told(record, true)
  end
end

local fence, generation = at, nil
if record then
  fence = math.max(at, tonumber(record.fence) + 1)
else
  generation = redis.call('GET', KEYS[3])
  if seen ~= '' and generation ~= seen then
    return {'lost'}
  end
  if not generation then
    generation = offered
    redis.call('SET', KEYS[3], generation)
  end
end
-- HSET comes before all that is no addition: where memory is full it refuses, as SET does, and then nothing has been written.
redis.call('HSET', KEYS[1], 'v', VERSION, 'phase', 'in_flight', 'fingerprint', fingerprint, 'fence', digits(fence),
           'owner', owner, 'route', route, 'claimed_at', digits(at), 'lease_until', digits(at + tonumber(lease)))
if stored then
  redis.call('HDEL', KEYS[1], 'settled_at', 'expires_at', 'forget_at', 'status', 'source', 'watched')
  redis.call('PERSIST', KEYS[1])
  redis.call('DEL', KEYS[2])
end
return {'granted', fence, at, generation}
