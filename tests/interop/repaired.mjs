// Streams of events through what the official client makes of them, all in one process. Prints one line of JSON.
//
//   node repaired.mjs '{"file": PATH}'
//
// The file has a line for every stream: `{"events": […], "agent"?: true}`. Each goes through the client's own stages, what
// must hold of an event, chunks, order; with `agent` through a whole agent, which also makes messages of it.
// Printed is what each has come to: `null`, or the message of the error.

import { createReadStream } from "node:fs";
import { createInterface } from "node:readline";

import { AbstractAgent, enforceEvents, transformChunks, verifyEvents } from "@ag-ui/client";
import { from, lastValueFrom } from "rxjs";

const task = JSON.parse(process.argv[2]);
// What is unknown passes, and the client says that it drops it; what it refuses is in the verdict.
console.warn = console.error = () => {};

class Played extends AbstractAgent {
  constructor(events) {
    super();
    this.events = events;
  }
  run() {
    return from(this.events);
  }
}

async function agent(events) {
  const ends = [];
  await new Played(events).runAgent({}, {
    onRunFinishedEvent: () => void ends.push("finished"),
    onRunErrorEvent: () => void ends.push("error"),
  });
  return ends.length === 1 ? null : `${ends.length} ends`;
}

async function stages(events) {
  const taken = from(events).pipe(enforceEvents(), transformChunks(), verifyEvents());
  await lastValueFrom(taken, { defaultValue: null });
  return null;
}

// What its transport asks of a frame.
function check(event) {
  if (typeof event !== "object" || event === null || Array.isArray(event)) throw new Error("not an object");
  if (typeof event.type !== "string" || event.type === "") throw new Error("no type");
}

const verdicts = [];
for await (const line of createInterface({ input: createReadStream(task.file) })) {
  const stream = JSON.parse(line);
  try {
    stream.events.forEach(check);
    verdicts.push(await (stream.agent ? agent : stages)(stream.events));
  } catch (error) {
    verdicts.push(String(error.message ?? error));
  }
}
process.stdout.write(JSON.stringify({ verdicts }) + "\n");
