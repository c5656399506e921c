// Calls of gRPC services by browsers: grpc-web over fetch, and grpc-websockets.

const PREFIX = 5; // bytes before the content of a frame: its flag and its length
const TRAILERS = 0x80;
const LARGEST = 64 * 1024 * 1024; // bytes of a frame
const LARGEST_TEXT = 64 * 1024; // bytes of trailers, and of a page that tells of an error
const MOST_UNREAD = 100_000;
const MOST_UNREAD_BYTES = 256 * 1024 * 1024;
const CONTENT_TYPE = "application/grpc-web+proto";
const METADATA = /^[ -+\--~]+$/; // printable, and without a comma, which separates values

/** Something that cannot be done with a trial; `code` is gRPC's where a server said so. */
export class TrialError extends Error {
  constructor(message, code = undefined, options = undefined) {
    super(message, options);
    this.name = "TrialError";
    this.code = code;
  }
}

/** Return the bytes of a message as a frame. */
export function frame(content) {
  const bytes = new Uint8Array(PREFIX + content.length);
  new DataView(bytes.buffer).setUint32(1, content.length);
  bytes.set(content, PREFIX);
  return bytes;
}

/** The frames in bytes that arrive in any parts. */
export class FrameDecoder {
  #bytes = new Uint8Array(0); // it may be larger than what it holds, to grow seldom
  #held = 0;

  /** Return the frames that are whole with these bytes, each as {isTrailers, content}. */
  feed(bytes) {
    this.#append(bytes);
    const view = new DataView(this.#bytes.buffer);
    const frames = [];
    let at = 0;
    while (this.#held - at >= PREFIX) {
      const flag = this.#bytes[at];
      const length = view.getUint32(at + 1);
      const isTrailers = flag === TRAILERS;
      if ((flag & ~TRAILERS) !== 0) throw new TrialError(`the server sent a frame of kind ${flag}`);
      if (length > (isTrailers ? LARGEST_TEXT : LARGEST)) {
        throw new TrialError(`the server sent a frame of ${length} bytes`);
      }
      if (this.#held - at < PREFIX + length) break;
      const start = at + PREFIX;
      at = start + length;
      frames.push({ isTrailers, content: this.#bytes.slice(start, at) });
    }
    if (at > 0) {
      this.#bytes = this.#bytes.slice(at, this.#held);
      this.#held -= at;
    }
    return frames;
  }

  /** Throw a TrialError if the bytes end within a frame. */
  finish() {
    if (this.#held > 0) throw new TrialError("the server's answer ended within a message");
  }

  #append(bytes) {
    const held = this.#held + bytes.length;
    if (held > this.#bytes.length) {
      const grown = new Uint8Array(Math.max(held, 2 * this.#held));
      grown.set(this.#bytes.subarray(0, this.#held));
      this.#bytes = grown;
    }
    this.#bytes.set(bytes, this.#held);
    this.#held = held;
  }
}

/** What was received and not taken yet, in order. */
export class Unread {
  #items = [];
  #first = 0; // the items before it were taken
  #bytes = 0;

  get length() {
    return this.#items.length - this.#first;
  }

  /** Add what came in a message of that size. Throws a TrialError if too much is not taken. */
  push(item, size) {
    if (this.length >= MOST_UNREAD || this.#bytes + size > MOST_UNREAD_BYTES) {
      const most = `${MOST_UNREAD} messages or ${MOST_UNREAD_BYTES} bytes`;
      throw new TrialError(`more than ${most} were received and not taken`);
    }
    this.#items.push({ item, size });
    this.#bytes += size;
  }

  /** Take the first item. */
  shift() {
    const { item, size } = this.#items[this.#first];
    this.#items[this.#first] = undefined;
    this.#first += 1;
    this.#bytes -= size;
    if (2 * this.#first >= this.#items.length) {
      this.#items.splice(0, this.#first);
      this.#first = 0;
    }
    return item;
  }
}

/** Return the headers in a frame, by names in lower case. */
export function headersIn(content) {
  const headers = new Map();
  for (const line of new TextDecoder().decode(content).split("\r\n")) {
    const colon = line.indexOf(":");
    if (colon > 0) headers.set(line.slice(0, colon).trim().toLowerCase(), line.slice(colon + 1).trim());
  }
  return headers;
}

/** Return the error that a status stands for, null for the status OK. */
function errorIn(status, message) {
  const code = Number(status);
  if (code === 0) return null;
  let text = message ?? "";
  try {
    text = decodeURIComponent(text);
  } catch {
    // not encoded
  }
  return new TrialError(text || `the server refused the call with status ${status}`, code);
}

function checkedMetadata(metadata) {
  for (const [name, values] of Object.entries(metadata)) {
    for (const value of values) {
      if (typeof value !== "string" || !METADATA.test(value)) {
        throw new TrialError(`${name} cannot be ${JSON.stringify(value)}`);
      }
    }
  }
  return Object.entries(metadata).filter(([, values]) => values.length > 0);
}

function address(endpoint, method) {
  const url = `${String(endpoint).replace(/\/+$/, "")}/${method}`;
  if (!/^https?:\/\//.test(url)) {
    throw new TrialError(`an endpoint has the form http://host:port, not ${endpoint}`);
  }
  return url;
}

/**
 * Call a method that answers with messages, and yield the bytes of each.
 *
 * Leaving the loop ends the call, and so does `signal`, an AbortSignal, with a TrialError.
 */
export async function* serverStream(endpoint, method, request, metadata = {}, signal = undefined) {
  const url = address(endpoint, method);
  const headers = new Headers({ "content-type": CONTENT_TYPE, "x-grpc-web": "1" });
  for (const [name, values] of checkedMetadata(metadata)) headers.set(name, values.join(", "));
  const call = new AbortController();
  const abort = () => call.abort();
  signal?.addEventListener("abort", abort);
  if (signal?.aborted) abort();
  try {
    const response = await reached(url, { method: "POST", headers, body: frame(request) }, call);
    const decoder = new FrameDecoder();
    for await (const bytes of chunks(response.body)) {
      for (const { isTrailers, content } of decoder.feed(bytes)) {
        if (!isTrailers) {
          yield content;
          continue;
        }
        const trailers = headersIn(content);
        const error = errorIn(trailers.get("grpc-status") ?? 2, trailers.get("grpc-message"));
        if (error !== null) throw error;
        return;
      }
    }
    decoder.finish();
    throw new TrialError(`the connection to ${endpoint} was lost`);
  } finally {
    signal?.removeEventListener("abort", abort);
    call.abort();
  }
}

/** Call a method that answers with one message, and return its bytes. */
export async function unary(endpoint, method, request, metadata = {}) {
  let answer = null;
  for await (const content of serverStream(endpoint, method, request, metadata)) answer = content;
  if (answer === null) throw new TrialError(`${endpoint} answered ${method} with no message`);
  return answer;
}

async function reached(url, request, call) {
  let response;
  try {
    const options = { ...request, credentials: "omit", cache: "no-store", signal: call.signal };
    response = await fetch(url, options);
  } catch (cause) {
    throw new TrialError(`${url} cannot be reached, or does not allow this page`, 14, { cause });
  }
  const status = response.headers.get("grpc-status");
  const error = status === null ? null : errorIn(status, response.headers.get("grpc-message"));
  if (error !== null) throw error;
  if (!response.ok) {
    const text = (await beginning(response.body)).trim().slice(0, 500);
    throw new TrialError(text || `${url} answered with HTTP status ${response.status}`);
  }
  return response;
}

/** Return the text in the first bytes of an answer. */
async function beginning(body) {
  if (body === null) return "";
  const decoder = new TextDecoder();
  let text = "";
  let left = LARGEST_TEXT;
  for await (const bytes of chunks(body)) {
    text += decoder.decode(bytes.subarray(0, left), { stream: true });
    left -= bytes.length;
    if (left <= 0) break;
  }
  return text;
}

async function* chunks(body) {
  const reader = body.getReader();
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (cause) {
      throw new TrialError("the connection to the server was lost", 14, { cause });
    }
    if (part.done) return;
    yield part.value;
  }
}

/** A call with messages in both directions, over a websocket. */
export class SocketCall {
  #socket;
  #decoder = new FrameDecoder();
  #early = []; // messages from before the socket was open
  #received = new Unread(); // bytes of messages
  #waiting = null; // what resumes `receive`
  #isOver = false;
  #failure = null;

  /** True if the end was not announced by the server. */
  isLost = false;

  constructor(endpoint, method, metadata = {}) {
    const url = address(endpoint, method).replace(/^http/, "ws");
    const headers = [["content-type", [CONTENT_TYPE]], ["x-grpc-web", ["1"]]];
    const lines = [...headers, ...checkedMetadata(metadata)].map(
      ([name, values]) => `${name}: ${values.join(", ")}\r\n`,
    );
    const socket = new WebSocket(url, ["grpc-websockets"]);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      socket.send(new TextEncoder().encode(lines.join("")));
      for (const message of this.#early.splice(0)) socket.send(message);
    };
    socket.onmessage = (event) => this.#take(event.data);
    socket.onclose = () => this.#end(null, true);
    socket.onerror = () => {
      const isEarly = socket.readyState === WebSocket.CONNECTING || this.#early.length > 0;
      const text = `${url} cannot be reached, or does not allow this page`;
      this.#end(isEarly ? new TrialError(text, 14) : null, true);
    };
    this.#socket = socket;
  }

  /** Send the bytes of a message. Does nothing after the end. */
  send(content) {
    const message = new Uint8Array(1 + PREFIX + content.length);
    message.set(frame(content), 1);
    if (this.#isOver) return;
    if (this.#socket.readyState === WebSocket.CONNECTING) this.#early.push(message);
    else this.#socket.send(message);
  }

  /** Return the bytes of the next message, null at the end. Throws the server's TrialError. */
  async receive() {
    while (this.#received.length === 0 && !this.#isOver) {
      await new Promise((resume) => {
        this.#waiting = resume;
      });
    }
    if (this.#received.length > 0) return this.#received.shift();
    if (this.#failure !== null) throw this.#failure;
    return null;
  }

  /** End the call; what was sent still arrives. */
  close() {
    this.#end(null, false);
    this.#socket.close();
  }

  #take(data) {
    if (this.#isOver) return;
    try {
      for (const { isTrailers, content } of this.#decoder.feed(new Uint8Array(data))) {
        if (!isTrailers) this.#received.push(content, content.length);
        else this.#takeHeaders(headersIn(content));
      }
    } catch (error) {
      this.#end(error, false);
      this.#socket.close();
    }
    this.#resume();
  }

  #takeHeaders(headers) {
    const status = headers.get("grpc-status");
    if (status !== undefined) this.#end(errorIn(status, headers.get("grpc-message")), false);
  }

  #end(failure, isLost) {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#failure = failure;
    this.isLost = isLost;
    this.#resume();
  }

  #resume() {
    const resume = this.#waiting;
    this.#waiting = null;
    resume?.();
  }
}
