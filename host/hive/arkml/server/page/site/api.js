// Requests to the hive. All addresses are relative, so the page works behind a prefix, too.

const PATIENCE = 30_000; // milliseconds

const underWay = new Set(); // of { path, controller }
const REMOVED = "it is being removed";
let leaving = null; // the path of what is being removed: nothing below it is asked for

/** A request that the hive refuses with a sentence, or does not answer: `status` 0. */
export class ApiError extends Error {
  constructor(text, status) {
    super(text);
    this.status = status;
  }
}

/** Return the path of a route with parameters. */
export function pathOf(path, parameters = {}) {
  const query = new URLSearchParams(parameters).toString();
  return query ? `${path}?${query}` : path;
}

/** Return the answer to a GET, parsed. Throws ApiError. */
export async function get(path, parameters) {
  return (await ask(pathOf(path, parameters), { method: "GET" })).json();
}

/** Return the bytes of a route, as a blob. Throws ApiError. */
export async function getBytes(path, parameters) {
  return (await ask(pathOf(path, parameters), { method: "GET" })).blob();
}

/**
 * Call `take` with the kind and the parsed data of each server-sent event of a route, to its end.
 *
 * Throws ApiError for a refusal, with its sentence, and where the hive is gone.
 */
export async function readEvents(path, parameters, take, signal) {
  let answer;
  try {
    const options = { signal, credentials: "same-origin", cache: "no-store" };
    answer = await fetch(pathOf(path, parameters), options);
    if (!answer.ok) throw await refusalIn(answer);
    let text = "";
    for (const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader(); ;) {
      const { done, value } = await reader.read();
      if (done) return;
      const events = (text + value).split("\n\n");
      text = events.pop();
      for (const [, kind, data] of events.map((one) => /^event: (\w+)\ndata: (.*)$/.exec(one) ?? [])) {
        if (kind) take(kind, JSON.parse(data));
      }
    }
  } catch (error) {
    if (signal.aborted || error instanceof ApiError) throw error;
    throw new ApiError("the hive does not answer", 0);
  }
}

/** Send a request that changes something, and return the answer, null if it is empty. */
export async function change(method, path, body = {}) {
  const headers = { "content-type": "application/json", "x-arkml": "1" };
  const answer = await ask(path, { method, headers, body: JSON.stringify(body) });
  const text = await answer.text();
  return text ? JSON.parse(text) : null;
}

/**
 * Remove what a path names. Throws ApiError.
 *
 * Requests below it are given up: they would be refused, which browsers write to the console.
 */
export async function removeAt(path, parameters) {
  leaving = path;
  for (const request of underWay) {
    if (request.path.startsWith(path)) request.controller.abort();
  }
  try {
    await change("DELETE", pathOf(path, parameters));
  } finally {
    leaving = null;
  }
}

/** Save the bytes of a route as a file. Throws ApiError. */
export async function download(path, parameters, name) {
  save(await getBytes(path, parameters), name);
}

/** Save a blob as a file. */
export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

async function ask(path, options) {
  const isRead = options.method === "GET";
  if (isRead && leaving !== null && path.startsWith(leaving)) throw new ApiError(REMOVED, 404);
  const request = { path, controller: new AbortController() };
  if (isRead) underWay.add(request);
  let answer;
  try {
    const signal = AbortSignal.any([AbortSignal.timeout(PATIENCE), request.controller.signal]);
    answer = await fetch(path, { ...options, signal, credentials: "same-origin", cache: "no-store" });
  } catch {
    if (request.controller.signal.aborted) throw new ApiError(REMOVED, 404);
    throw new ApiError("the hive does not answer", 0);
  } finally {
    underWay.delete(request);
  }
  if (answer.ok && !isPage(answer)) return answer;
  throw await refusalIn(answer);
}

function isPage(answer) {
  return (answer.headers.get("content-type") ?? "").startsWith("text/html");
}

/** Return the error of an answer that refuses, or that is not the hive's. */
async function refusalIn(answer) {
  const text = await answer.text();
  const known = isPage(answer) ? null : sentenceIn(text);
  return new ApiError(known ?? strangerSentence(answer.status, isPage(answer)), answer.ok ? 0 : answer.status);
}

/** Return what is said of an answer without a sentence of the hive: a proxy answers with pages. */
export function strangerSentence(status, isHtml) {
  if (!isHtml && status !== 502 && status !== 504) return `the hive answers with status ${status}`;
  return `something between this page and the hive answers with status ${status}, such as a proxy`;
}

function sentenceIn(text) {
  try {
    return JSON.parse(text).error ?? null;
  } catch {
    return null;
  }
}
