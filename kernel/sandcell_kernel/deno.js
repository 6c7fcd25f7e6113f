// What Deno's kernel lacks, for the dialect in deno.py: run once in each kernel, before any code of the user's.
{
  const { broadcast, display } = Deno.jupyter;
  const shown = Deno[Deno.internal].jupyter;
  const broadcastResult = shown.broadcastResult;
  const LONGEST_VALUE = 2 ** 20;
  const MOST_PARTS = 2 ** 16;
  const DEEPEST = 100;
  let last;

  // The kernel keeps the last value nowhere.
  shown.broadcastResult = async (count, result) => {
    last = result;
    await broadcastResult(count, result);
  };

  // A value as JSON has it; throws where it is none. Runs no code of the user's, but for a Proxy's.
  function plain(value, budget, depth) {
    if (value === null || typeof value === "boolean") return value;
    if (typeof value === "string" && value.isWellFormed()) return value;
    if (typeof value === "number" && Number.isFinite(value)) return value;
    if (typeof value !== "object" || depth > DEEPEST || (budget.left -= 1) < 0) throw new TypeError("not plain");
    if (Array.isArray(value)) return Array.from(value, (part) => plain(part, budget, depth + 1));
    const kind = Object.getPrototypeOf(value);
    if (kind !== Object.prototype && kind !== null) throw new TypeError("not plain");
    const copy = {};
    for (const [name, part] of Object.entries(Object.getOwnPropertyDescriptors(value))) {
      if (!("value" in part)) throw new TypeError("not plain");
      Object.defineProperty(copy, name, { value: plain(part.value, budget, depth + 1), enumerable: true });
    }
    return copy;
  }

  function valueOf(result) {
    try {
      const value = plain(result, { left: MOST_PARTS }, 0);
      return JSON.stringify(value).length <= LONGEST_VALUE ? { value } : {};
    } catch {
      return {};
    }
  }

  // Without this what is written here goes nowhere.
  for (const [name, sink] of [["stdout", Deno.stdout], ["stderr", Deno.stderr]]) {
    const decoder = new TextDecoder();
    const writeSync = (bytes) => {
      const piece = bytes.subarray(0, 2 ** 16);
      const text = decoder.decode(piece, { stream: true });
      if (text) broadcast("stream", { name, text });
      return piece.length;
    };
    sink.writeSync = writeSync;
    sink.write = async (bytes) => writeSync(bytes);
  }

  // Parts of Deno are loaded when they are first used, and an interrupt on the way breaks them for good. What code that waits
  // begins with is loaded now.
  void [setTimeout, setInterval, queueMicrotask, AbortSignal];

  class ToolError extends Error {
    constructor(name, message, tool) {
      super(message);
      this.name = name;
      this.tool = tool;
    }
  }

  const unreachable = (problem, tool) => {
    throw new ToolError("ToolUnavailable", `the host tools cannot be reached: ${problem.message}`, tool);
  };

  async function readAll(connection) {
    const chunks = [];
    for await (const chunk of connection.readable) chunks.push(chunk);
    return new Uint8Array(await new Blob(chunks).arrayBuffer());
  }

  // One request on a connection of its own, whose end is its end. Source: docs/protocol.md, "Host tools".
  async function exchange(verb, name, args) {
    if (link === null) throw new ToolError("ToolUnavailable", "no host tools were given to this run", name);
    const body = args === undefined ? "" : JSON.stringify(args);
    const size = new TextEncoder().encode(body).length;
    const head = JSON.stringify({ secret: link.secret, verb, name, size });
    const place = { transport: "unix", path: `\0${link.address}` };
    const connection = await Deno.connect(place).catch((problem) => unreachable(problem, name));
    const writer = connection.writable.getWriter();
    await writer.write(new TextEncoder().encode(`${head}\n${body}`)).catch(() => {}); // refused before it was read: the answer says why
    const answer = await readAll(connection).catch((problem) => unreachable(problem, name));
    await writer.close().catch(() => {}); // else the connection stays open
    const end = answer.indexOf(10);
    if (end < 0) unreachable(new Error("the connection ended"), name);
    const told = JSON.parse(new TextDecoder().decode(answer.subarray(end + 1)));
    if (JSON.parse(new TextDecoder().decode(answer.subarray(0, end))).ok) return told;
    throw new ToolError(told.name, told.message, name);
  }

  let link = null;
  const tools = new Proxy({}, {
    get(_, name) {
      if (name === Symbol.toPrimitive) return () => "[host tools]";
      // What the language asks of any object is no tool.
      if (typeof name !== "string" || name === "then" || name === "toJSON") return undefined;
      if (name === "list") return () => exchange("list", "");
      return (args = {}) => exchange("call", name, args);
    },
  });
  Object.defineProperty(globalThis, "tools", { value: tools, writable: true, configurable: true });

  const say = (token, more) => broadcast("sandcell_settled", { token, ...more });

  Object.defineProperty(Deno.jupyter, Symbol.for("sandcell"), {
    value: {
      // The way to the tools of the run that comes next, for itself and for what it starts; none where that has none.
      link(address, secret) {
        link = address === undefined ? null : { address, secret };
        if (link === null) Deno.env.delete("SANDCELL_TOOLS");
        else Deno.env.set("SANDCELL_TOOLS", `${address}:${secret}`);
      },
      // What was changed of the environment, null for what was taken away.
      environ(news) {
        for (const [name, value] of Object.entries(news)) {
          value === null ? Deno.env.delete(name) : Deno.env.set(name, value);
        }
      },
      // All that a run has shown stands before this in the kernel's queue.
      settle(token) {
        const result = last;
        last = undefined;
        say(token, result === undefined ? {} : valueOf(result));
      },
      // Why the code cannot be run, which the kernel does not say: its formatter parses it, and runs nothing.
      async explain(token, code) {
        const child = new Deno.Command(Deno.execPath(), {
          args: ["fmt", "--no-config", "--ext=ts", "-"],
          env: { NO_COLOR: "1" },
          stdin: "piped",
          stdout: "null",
          stderr: "piped",
        }).spawn();
        const input = child.stdin.getWriter();
        await input.write(new TextEncoder().encode(code)).then(() => input.close()).catch(() => {});
        const { success, stderr } = await child.output();
        say(token, { problem: success ? "" : new TextDecoder().decode(stderr) });
      },
      load: (path) => JSON.parse(Deno.readTextFileSync(path)),
      save(value, path) {
        const text = JSON.stringify(value);
        if (text === undefined) throw new TypeError(`JSON has no ${typeof value}`);
        Deno.writeTextFileSync(path, text, { createNew: true, mode: 0o600 });
      },
    },
  });
}
