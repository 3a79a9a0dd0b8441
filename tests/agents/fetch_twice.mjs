// Sends one keyed POST twice with Node's fetch, and prints both answers as JSON: [{status, fields, body}, ...].
const [url, key, body] = process.argv.slice(2);
const answers = [];
for (let time = 0; time < 2; time += 1) {
  const answer = await fetch(url, {
    method: "POST",
    headers: { "Content-Type": "application/json", "Idempotency-Key": key },
    body,
  });
  answers.push({ status: answer.status, fields: Object.fromEntries(answer.headers), body: await answer.text() });
}
console.log(JSON.stringify(answers));
