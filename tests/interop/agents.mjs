// One official HttpAgent in one conversation with an agent, `tools` if none is named: turn after turn, each with the history that the client
// built of the turns before. Prints what it held after each turn as one line of JSON.
//
//   node agents.mjs '{"url": …, "session": …, "threadId": …, "agent"?: …, "turns": [{"runId": …, "add": […messages]}, …]}'

import { HttpAgent } from "@ag-ui/client";
import { RunAgentInputSchema } from "@ag-ui/core/schemas";

const task = JSON.parse(process.argv[2]);
const seen = { console: [], turns: [] };

for (const level of ["log", "info", "debug", "warn", "error", "trace"]) {
  console[level] = (...parts) => seen.console.push([level, parts.map(String).join(" ")]);
}
process.on("warning", (warning) => seen.console.push(["warning", String(warning)]));

class Recording extends HttpAgent {
  requestInit(input) {
    this.input = structuredClone(input);
    return super.requestInit(input);
  }
}

const agent = new Recording({
  url: `${task.url}/agents/${task.agent ?? "tools"}`,
  threadId: task.threadId,
  headers: { "X-Session-Id": task.session },
});

for (const { runId, add } of task.turns) {
  const turn = { events: [], outcome: null, rejected: null };
  agent.addMessages(add);
  try {
    await agent.runAgent({ runId }, {
      onEvent: ({ event }) => void turn.events.push(structuredClone(event)),
      onRunFinishedEvent: ({ outcome }) => void (turn.outcome = outcome),
    });
  } catch (error) {
    turn.rejected = { status: error.status, payload: error.payload };
  }
  turn.valid = RunAgentInputSchema.safeParse(agent.input).success;
  turn.messages = structuredClone(agent.messages);
  seen.turns.push(turn);
}
process.stdout.write(JSON.stringify(seen) + "\n");
