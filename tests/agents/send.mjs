// Sends one POST with Node's fetch, which is undici's, and prints the answer as JSON: {status, fields, body}.
// What to send comes on standard input, as JSON: {url, key, json}, or {url, key, fields: [[name, value], ...], file} with file
// {name, type, content}, the content in base64, or null.
import { readFileSync } from "node:fs";

const { url, key, json, fields, file } = JSON.parse(readFileSync(0, "utf8"));
const headers = key ? { "Idempotency-Key": key } : {};
let body;
if (json !== undefined) {
  headers["Content-Type"] = "application/json";
  body = JSON.stringify(json);
} else if (file === null) {
  body = new URLSearchParams(fields);
} else {
  body = new FormData();
  for (const [name, value] of fields) body.append(name, value);
  body.append("file", new Blob([Buffer.from(file.content, "base64")], { type: file.type }), file.name);
}
const answer = await fetch(url, { method: "POST", headers, body });
console.log(JSON.stringify({ status: answer.status, fields: Object.fromEntries(answer.headers), body: await answer.text() }));
