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

  const say = (token, more) => broadcast("sandcell_settled", { token, ...more });

  Object.defineProperty(Deno.jupyter, Symbol.for("sandcell"), {
    value: {
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
