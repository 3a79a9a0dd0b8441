// Fastify with the core of @node-idempotency on Redis in its hooks: `node fastify_app.mjs PORT UPSTREAM_URL REDIS_URL`.
import Fastify from 'fastify';
import { Idempotency } from '@node-idempotency/core';
import { RedisStorageAdapter } from '@node-idempotency/storage-adapter-redis';
import { Pool } from 'undici';

const [port, upstream, url] = process.argv.slice(2);
const pool = new Pool(upstream, { connections: 256 });
const storage = new RedisStorageAdapter({ url });
await storage.connect();
const idempotency = new Idempotency(storage);

const app = Fastify();
const asked = ({ headers, url: path, method, body }) => ({ headers, path, method, body });
app.addContentTypeParser('application/json', { parseAs: 'string' }, (_request, body, done) => done(null, body));
app.addHook('preHandler', async (request, reply) => {
  const answered = await idempotency.onRequest(asked(request));
  if (answered) {
    const { status, type } = answered.additional;
    return reply.code(status).header('content-type', type).header('idempotent-replayed', 'true').send(answered.body);
  }
});
app.addHook('onSend', async (request, reply, body) => {
  if (reply.hasHeader('idempotent-replayed')) return;
  await idempotency.onResponse(asked(request), { body, additional: { status: reply.statusCode, type: reply.getHeader('content-type') } });
});
app.all('*', async (request, reply) => {
  const { method, url: path, body } = request;
  const answer = await pool.request({ method, path, body, headers: { 'content-type': request.headers['content-type'] } });
  return reply.code(answer.statusCode).header('content-type', answer.headers['content-type']).send(await answer.body.text());
});
await app.listen({ port: Number(port), host: '127.0.0.1' });
