// Drives OpenAI's SDK for Node: each connection carries one request as a JSON line and gets one JSON answer.
// A connection that closes early is the user's abort. Ends with its standard input.
import { createServer } from "node:net";
import { createInterface } from "node:readline";
import OpenAI, { APIError } from "openai";

const sdkFor = ({ url, retries = 0, timeout_seconds = 20 }) =>
  new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: retries, timeout: timeout_seconds * 1000 });

const bodyOf = (ask) => ({
  model: ask.model,
  ...(ask.legacy ? { prompt: ask.content } : { messages: [{ role: "user", content: ask.content }] }),
  ...(ask.usage ? { stream_options: { include_usage: true } } : {}),
  ...ask.extra,
  stream: ask.stream,
});

const pairOf = (usage) => [usage.prompt_tokens, usage.completion_tokens];

const failureOf = (error) => ({
  kind: error.constructor.name,
  message: error.message,
  status: error.status ?? null,
  code: error.code == null ? null : String(error.code),
  param: error.param ?? null,
  request_id: error.requestID ?? null,
});

async function ask(request, signal) {
  const told = { texts: [], usage: null, failure: null };
  const sdk = sdkFor(request);
  const endpoint = request.legacy ? sdk.completions : sdk.chat.completions;
  try {
    const reply = await endpoint.create(bodyOf(request), { signal });
    await (request.stream ? readStream(reply, request, told) : readWhole(reply, request, told));
  } catch (error) {
    if (!(error instanceof APIError)) throw error;
    told.failure = failureOf(error);
  }
  return told;
}

async function readWhole(reply, { legacy }, told) {
  told.texts.push(legacy ? reply.choices[0].text : reply.choices[0].message.content);
  told.usage = pairOf(reply.usage);
}

async function readStream(stream, { legacy, stop_after, closes }, told) {
  for await (const chunk of stream) {
    if (chunk.usage) told.usage = pairOf(chunk.usage);
    for (const choice of chunk.choices) {
      const text = legacy ? choice.text : choice.delta.content;
      if (text) told.texts.push(text);
    }
    if (told.texts.length === stop_after) {
      if (closes) stream.controller.abort();
      break;
    }
  }
}

async function models(request) {
  const ids = [];
  for await (const model of sdkFor(request).models.list()) ids.push(model.id);
  return ids;
}

const server = createServer((socket) => {
  const abort = new AbortController();
  socket.on("close", () => abort.abort());
  socket.on("error", () => abort.abort());
  createInterface({ input: socket }).once("line", async (line) => {
    const request = JSON.parse(line);
    try {
      const result = await (request.do === "ask" ? ask(request, abort.signal) : models(request));
      socket.end(JSON.stringify({ result }));
    } catch (error) {
      socket.end(JSON.stringify({ bug: String(error.stack) }));
    }
  });
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.on("end", () => process.exit(0)).resume();
