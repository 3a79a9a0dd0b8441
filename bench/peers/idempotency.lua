-- Idempotency by hand, as one writes it for nginx: a hash of what was asked, one SET that locks or finds, compare, forward, store
-- by the lock's owner only, replay with status, fields and body. One round trip to Redis for a replay, two for a first write.
-- Missing beside idemproxy: a lease that is renewed, and a state for an outcome that nobody knows: a lock that ends, or an upstream
-- that breaks off, frees the key.
--
-- A value is "P", the fingerprint and the owner while the request is in progress; then "D", the fingerprint, and the answer.

local cjson = require "cjson.safe"
local ffi = require "ffi"
local redis = require "nginx.redis"

local LOCK_SECONDS, KEEP_SECONDS, FINGERPRINT = 60, 86400, 32
local COMPLETE = [[
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3]) end
return 1
]]
local NOT_KEPT = {["connection"] = true, ["date"] = true, ["server"] = true, ["set-cookie"] = true, ["transfer-encoding"] = true}

ffi.cdef "unsigned char *SHA256(const unsigned char *data, size_t length, unsigned char *digest);"
local digest = ffi.new("unsigned char[?]", FINGERPRINT)

local function sha256(text)
  ffi.C.SHA256(text, #text, digest)
  return ffi.string(digest, FINGERPRINT)
end

local function refuse(status, reason)
  ngx.status = status
  ngx.header["Content-Type"] = "application/problem+json"
  ngx.print('{"title": "', reason, '"}')
  return ngx.exit(status)
end

local function tell(answer, how)
  ngx.status = answer.status
  for field, value in pairs(answer.header) do
    ngx.header[field] = value
  end
  ngx.header["Content-Length"] = #answer.body
  ngx.header["Idempotency-Status"] = how
  ngx.print(answer.body)
  return ngx.exit(ngx.HTTP_OK)
end

local function complete(store, name, lock, value)
  local sha = ngx.shared.scripts:get("complete")
  if not sha then
    sha = store:script("load", COMPLETE)
    ngx.shared.scripts:set("complete", sha)
  end
  store:evalsha(sha, 1, name, lock, value, KEEP_SECONDS)
end

local function handle()
  local key = ngx.req.get_headers()["Idempotency-Key"]
  if type(key) ~= "string" then
    return ngx.exec("@through")
  end

  ngx.req.read_body()
  local method, uri, body = ngx.req.get_method(), ngx.var.request_uri, ngx.req.get_body_data() or ""
  local fingerprint = sha256(table.concat({method, uri, body}, "\n"))
  local name, lock = "idempotency:" .. ngx.md5(key), "P" .. fingerprint .. ngx.var.request_id

  local store = redis:new()
  store:set_timeout(1000)
  if not store:connect("127.0.0.1", tonumber(ngx.var.redis_port)) then
    return refuse(503, "the store does not answer")
  end
  local found, failure = store:set(name, lock, "NX", "GET", "EX", LOCK_SECONDS)
  if failure then
    return refuse(503, "the store does not answer")
  end
  if found ~= ngx.null then
    store:set_keepalive(60000, 256)
    if found:sub(2, FINGERPRINT + 1) ~= fingerprint then
      return refuse(422, "the key was used for another request")
    elseif found:byte() == string.byte("P") then
      return refuse(409, "a request with this key is in progress")
    end
    return tell(cjson.decode(found:sub(FINGERPRINT + 2)), "replayed")
  end

  local answer = ngx.location.capture("/upstream" .. uri, {method = ngx["HTTP_" .. method], always_forward_body = true})
  local header = {}
  for field, value in pairs(answer.header) do
    if not NOT_KEPT[field:lower()] then
      header[field] = value
    end
  end
  local kept = {status = answer.status, header = header, body = answer.body}
  local is_kept = not answer.truncated and answer.status < 500
  complete(store, name, lock, is_kept and "D" .. fingerprint .. cjson.encode(kept) or "")
  store:set_keepalive(60000, 256)
  return tell(kept, "executed")
end

return {handle = handle}
