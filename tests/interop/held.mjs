// What the official client holds after a run, for many runs in one process. Prints one line of JSON.
//
//   node held.mjs '{"file": PATH}'
//
// The file has a line for every run: its events. Printed is what it holds afterwards, `{"messages": […], "state": …}`, or `{"refused": …}`, the message of the error.

import { createReadStream } from "node:fs";
import { createInterface } from "node:readline";

import { AbstractAgent } from "@ag-ui/client";
import { from } from "rxjs";

const task = JSON.parse(process.argv[2]);
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

const unique = (names) => new Set(names).size === names.length;

function isSound(messages) {
  const answers = messages.filter((message) => message.role === "tool");
  return unique(messages.map((message) => message.id)) && unique(answers.map((message) => message.toolCallId));
}

const held = [];
for await (const line of createInterface({ input: createReadStream(task.file) })) {
  const agent = new Played(JSON.parse(line));
  let sound = true;
  try {
    await agent.runAgent({}, { onEvent: ({ messages }) => void (sound &&= isSound(messages)) });
    held.push({ messages: agent.messages, state: agent.state, sound });
  } catch (error) {
    held.push({ refused: String(error.message ?? error) });
  }
}
process.stdout.write(JSON.stringify({ held }) + "\n");
