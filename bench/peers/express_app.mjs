// Express behind express-idempotency on Redis, as its documentation shows: `node express_app.mjs PORT UPSTREAM_URL REDIS_URL`.
import express from 'express';
import idempotency from 'express-idempotency';
import adapterModule from 'express-idempotency-redis-adapter';
import { Pool } from 'undici';

const [port, upstream, url] = process.argv.slice(2);
const pool = new Pool(upstream, { connections: 256 });
const dataAdapter = new adapterModule.default({ connectionConfig: { url } });
await dataAdapter.connect();

const app = express();
app.disable('etag');
app.disable('x-powered-by');
// The middleware compares the parsed body; what is passed on is what arrived.
app.use(express.json({ verify: (request, _response, bytes) => { request.bytes = bytes; } }));
app.use(idempotency.idempotency({ dataAdapter }));
app.use(async (request, response) => {
  if (idempotency.getSharedIdempotencyService().isHit(request)) return;
  const { method, originalUrl: path, bytes: body } = request;
  const answer = await pool.request({ method, path, body, headers: { 'content-type': request.get('content-type') } });
  response.status(answer.statusCode).set('x-executed', 'yes').type(answer.headers['content-type']).send(await answer.body.text());
});
app.listen(Number(port), '127.0.0.1');
