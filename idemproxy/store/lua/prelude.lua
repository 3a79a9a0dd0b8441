-- prelude: what every script shares; it is put in front of each of them before they are loaded.
--
-- KEYS[1], the record, is a hash:
--   v            the version of this layout: '1'
--   phase        in_flight | completed | unknown | expired
--   fingerprint  of what was asked
--   fence        the number that every later write must carry
--   owner        the nonce of the claim that holds the record
--   route        the name of the route it came by
--   claimed_at   when the claim was granted
--   lease_until  until when its holder is presumed alive; counts only in flight
--   settled_at   when it left in_flight; absent before
--   expires_at   when a completed record loses its answer; absent otherwise
--   forget_at    when its expired mark goes; absent otherwise
--   status       the upstream's, '' or absent where none came
--   source       where a completed record's answer comes from: recovered | resolved; absent: answered
--   watched      '1' when another caller waits for the settlement; absent otherwise
-- KEYS[2], the answer, is a string of its own, so that a body leaves by itself when its retention is over.
-- KEYS[3], the audit trail, is a list of JSON objects, which expires some time after the last act, with or without the record.
-- (Only claim has the witness there: a string, one for each bucket, without an expiry, which says that its records were not lost.)
--
-- Times are whole microseconds since the epoch on this server's clock, below 2^53, so that a Lua number holds them exactly.
-- Redis expires in milliseconds: rounded up, so that nothing goes before its time; the scripts compare the exact times.
-- Only a completed record has an expiry, and its hash and its answer have one each. In flight and unknown have none.

local VERSION = '1'
local RECORD = {'v', 'phase', 'fingerprint', 'fence', 'owner', 'route', 'claimed_at', 'lease_until',
                'settled_at', 'expires_at', 'forget_at', 'status', 'source', 'watched'}
local HOLDING = {'v', 'phase', 'fence', 'owner', 'lease_until', 'watched'}

-- A whole number as digits: Lua's own conversion would give 1.7e+15.
local function digits(number)
  return string.format('%.0f', number)
end

local function milliseconds(microseconds)
  return digits(math.ceil(microseconds / 1000))
end

local function now()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- The fields `names` (the first is v) of the record as a table of strings, '' for an absent field; nil for an absent record.
local function load(names)
  local values = redis.call('HMGET', KEYS[1], unpack(names))
  if not values[1] then
    return nil
  end
  if values[1] ~= VERSION then
    error('RECORDVERSION the record has version ' .. values[1], 0)
  end
  local record = {}
  for place, name in ipairs(names) do
    record[name] = values[place] or ''
  end
  return record
end

-- The record as time alone leaves it (core.transition.aged), and whether that differs from what is stored.
local function aged(record, at)
  if record and record.phase == 'in_flight' and tonumber(record.lease_until) <= at then
    record.phase, record.settled_at = 'unknown', record.lease_until
    return record, true
  end
  if record and record.forget_at ~= '' and tonumber(record.forget_at) <= at then
    return nil, true
  end
  if record and record.phase == 'completed' and tonumber(record.expires_at) <= at then
    record.phase = 'expired'
    return record, true
  end
  return record, false
end

-- The record for the caller: its fields in the order of core.record.Record, strings or '', then the answer or nil, always nil
-- unless `whole`.
local function told(record, whole)
  local answer = whole and (record.phase == 'completed' or record.phase == 'unknown') and redis.call('GET', KEYS[2])
  return {record.phase, record.fingerprint, record.fence, record.owner, record.route, record.claimed_at, record.lease_until,
          record.settled_at, record.expires_at, record.forget_at, record.status, record.source, answer}
end

-- Note a person's act on `record`, seen at `at`, in the audit trail, which is then kept for `kept` microseconds.
local function note(record, verb, who, why, at, kept)
  redis.call('RPUSH', KEYS[3], cjson.encode({verb = verb, who = who, why = why, fence = record.fence, from_phase = record.phase,
                                             at = digits(at)}))
  redis.call('PEXPIREAT', KEYS[3], milliseconds(at + tonumber(kept)))
end

-- Tell every process that waits for this record. A message that cannot be sent only delays them, so it fails nothing.
local function announce(channel)
  redis.pcall('PUBLISH', channel, KEYS[1])
end

-- Write anew what the hold says of a record that was lost.
local function restore(fence, owner, fingerprint, route, claimed_at)
  redis.call('HSET', KEYS[1], 'v', VERSION, 'fence', fence, 'owner', owner, 'fingerprint', fingerprint, 'route', route,
             'claimed_at', claimed_at, 'lease_until', claimed_at)
end

-- Make the record a completed one, from `at` on; its answer and its mark are kept for so many microseconds.
local function fulfil(at, status, retention, expired_mark, source, kept, answer)
  local expires_at = at + tonumber(retention)
  local forget_at = expires_at + tonumber(expired_mark)
  if kept == '1' then
    redis.call('SET', KEYS[2], answer, 'PXAT', milliseconds(expires_at))
  else
    redis.call('DEL', KEYS[2])
  end
  redis.call('HSET', KEYS[1], 'phase', 'completed', 'settled_at', digits(at), 'expires_at', digits(expires_at),
             'forget_at', digits(forget_at), 'status', status)
  if source ~= '' then
    redis.call('HSET', KEYS[1], 'source', source)
  end
  redis.call('PEXPIREAT', KEYS[1], milliseconds(forget_at))
end

-- The result of a settlement, told to those who wait for it: of a lost record, nobody knows any more who does.
local function settled(record, channel)
  if not record or record.watched == '1' then
    announce(channel)
  end
  return record and 'written' or 'rewritten'
end
