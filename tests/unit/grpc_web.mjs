// Plays hostile servers to the JavaScript SDK: stdin {sdk, question}, stdout the answer as JSON.

import { readFileSync } from "node:fs";
import http from "node:http";

const { sdk, question } = JSON.parse(readFileSync(0, "utf-8"));
const { FrameDecoder, serverStream, SocketCall } = await import(`${sdk}grpc_web.js`);
const { Session } = await import(`${sdk}session.js`);
const { ActorRunTrialInput } = (await import(`${sdk}actor_pb.js`)).cogmentAPI;

function frame(content, flag = 0, length = content.length) {
  const bytes = new Uint8Array(5 + content.length);
  bytes[0] = flag;
  new DataView(bytes.buffer).setUint32(1, length);
  bytes.set(content, 5);
  return bytes;
}

function messageOf(error) {
  return error === null ? null : `${error.name}: ${error.message}`;
}

async function failureOf(work) {
  try {
    await work();
  } catch (error) {
    return messageOf(error);
  }
  return null;
}

/** A call over a websocket whose server sends what `sent` yields, all before anything is taken. */
function called(sent) {
  let socket = null;
  globalThis.WebSocket = class {
    static CONNECTING = 0;
    readyState = 1;
    isClosed = false;
    constructor() {
      socket = this;
    }
    send() {}
    close() {
      this.isClosed = true;
    }
  };
  const call = new SocketCall("http://server", "method");
  socket.onopen();
  let count = 0;
  for (const bytes of sent) {
    if (socket.isClosed) break;
    socket.onmessage({ data: bytes.buffer });
    count += 1;
  }
  return { call, socket, count };
}

async function answered(status, write) {
  const server = http.createServer((_, response) => {
    response.writeHead(status, { "content-type": "text/plain" });
    write(response);
  });
  await new Promise((resume) => server.listen(0, "127.0.0.1", resume));
  const endpoint = `http://127.0.0.1:${server.address().port}`;
  try {
    return await failureOf(async () => {
      for await (const _ of serverStream(endpoint, "method", new Uint8Array()));
    });
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

function* copies(bytes) {
  for (;;) yield bytes.slice();
}

const answers = {
  /** The contents of a stream that arrives in parts of `size` bytes. */
  parts: ({ contents, size }) => {
    const stream = contents.flatMap((content) => [...frame(new Uint8Array(content))]);
    const decoder = new FrameDecoder();
    const found = [];
    for (let at = 0; at < stream.length; at += size) {
      found.push(...decoder.feed(new Uint8Array(stream.slice(at, at + size))));
    }
    decoder.finish();
    return found.map(({ content }) => [...content]);
  },
  /** The failure of a decoder that gets the beginning of a frame. */
  beginning: ({ flag, length }) =>
    failureOf(() => new FrameDecoder().feed(frame(new Uint8Array(0), flag, length))),
  /** Bytes that were copied by `set` for a frame of 4 MiB in parts of 64 bytes. */
  copied: () => {
    const { set } = Uint8Array.prototype;
    let copied = 0;
    Uint8Array.prototype.set = function (bytes, at) {
      copied += bytes.length;
      set.call(this, bytes, at);
    };
    const decoder = new FrameDecoder();
    const size = 4 << 20;
    decoder.feed(frame(new Uint8Array(0), 0, size));
    for (let at = 0; at < size - 64; at += 64) decoder.feed(new Uint8Array(64));
    const [{ content }] = decoder.feed(new Uint8Array(64));
    return { content: content.length, copied };
  },
  /** What a call keeps of messages of `size` bytes that nothing takes, and what then happens. */
  unread: async ({ size }) => {
    const { call, socket, count } = called(copies(frame(new Uint8Array(size))));
    let taken = 0;
    const failure = await failureOf(async () => {
      while ((await call.receive()) !== null) taken += 1;
    });
    return { isClosed: socket.isClosed, count, taken, failure };
  },
  /** What a session keeps of observations whose events nothing takes. */
  events: async ({ size }) => {
    const content = new Uint8Array(size);
    const input = { state: 1, observation: { tickId: 1, content } };
    const bytes = ActorRunTrialInput.encode(input).finish();
    let received = 0;
    let isClosed = false;
    const call = {
      isLost: false,
      send() {},
      async receive() {
        if (isClosed) return null;
        received += 1;
        return bytes;
      },
      close() {
        isClosed = true;
      },
    };
    class Watcher extends Session {
      _observation(content) {
        return content;
      }
    }
    const session = new Watcher(call, "trial", { actorName: "a" }, {});
    session._start(true);
    let events = 0;
    const failure = await failureOf(() =>
      session._run(async () => {
        while (!isClosed) await new Promise((resume) => setImmediate(resume));
        for await (const _ of session.eventLoop()) events += 1;
      }),
    );
    return { received, events, failure };
  },
  /** The failure of a call that is answered by an endless page of an error. */
  page: () =>
    answered(500, (response) => {
      const more = () => {
        while (!response.destroyed && response.write("x".repeat(1 << 16)));
      };
      response.on("drain", more);
      more();
    }),
  /** The failure of a call that is answered by a short page of an error, or by an empty one. */
  short: ({ text }) => answered(500, (response) => response.end(text)),
};

const [name, given] = question;
console.log(JSON.stringify(await answers[name](given)));
process.exit();
