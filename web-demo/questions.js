// What a tool asks a person: which form a question gets, what is sent as its answer, and how a run goes on that has
// ended with questions. No DOM.

import { newId } from "./history.js";
import { agentInput } from "./input.js";

/** The name of the field of an answer that is a value of its own. */
const ANSWER = "answer";

/** Whether the question is "may this tool run, with these arguments?". */
export const isApproval = ({ schema }) =>
  schema?.properties?.approved?.type === "boolean" && schema.properties.arguments !== undefined;

/** The arguments that the tool would run with. */
export const proposedArguments = ({ schema }) => schema.properties.arguments.default ?? {};

/** The schema of the form: an object's own, and one with a single field for everything else. */
export function formSchema({ schema }) {
  if (isObjectSchema(schema)) return schema;
  const field = { title: "Your answer", ...(schema ?? { type: "string" }) };
  return { properties: { [ANSWER]: field }, required: [ANSWER], $defs: schema?.$defs };
}

/** The payload that the form's values mean. */
export const payloadOf = ({ schema }, values) => (isObjectSchema(schema) ? values : values[ANSWER]);

/** The schema of a form for the arguments of an approval; of a tool that is not known they are one piece of JSON. */
export const argumentsSchema = (parameters) =>
  parameters ?? { properties: { arguments: { type: "object" } }, required: ["arguments"] };

/**
 * The payload of an approval. `before` and `after`: the form's values as they were shown and as they are now; only what
 * somebody changed is sent, and what the form has no field for stays.
 */
export function approvalOf(question, parameters, before, after) {
  if (same(before, after)) return { approved: true };
  if (!parameters) return { approved: true, arguments: after.arguments };
  const edited = { ...proposedArguments(question), ...after };
  for (const name of Object.keys(parameters.properties ?? {})) if (!Object.hasOwn(after, name)) delete edited[name];
  return { approved: true, arguments: edited };
}

/** The details of a refusal as the fields of the form are called. */
export const formDetails = (question, details) =>
  (Array.isArray(details) ? details : []).map(({ field = "", message }) => {
    // `payload.arguments.rows.0`, and in a resumed run `resume.1.payload.arguments.rows.0`.
    const path = String(field).replace(/^(resume\.\d+\.)?payload\.?/, "");
    if (isApproval(question)) return { field: path.replace(/^arguments\./, ""), message };
    return { field: isObjectSchema(question.schema) ? path : `${ANSWER}${path && `.${path}`}`, message };
  });

/**
 * The request that goes on with an interrupted run: `{tool, body}`, without a `tool` for the agent that runs several
 * calls. `answers`: one for each of the run's interrupts, `{interruptId, status, payload?}`.
 */
export function resumeOf(state, answers) {
  const ids = { threadId: state.threadId, runId: newId(), parentRunId: state.runId };
  const calls = [...state.calls.values()].filter((call) => !call.nested);
  if (calls.length === 1 && calls[0].messageId === null) return { tool: calls[0].name, body: { ...ids, resume: answers } };
  const toolCalls = calls.map(({ id, name, input = {} }) => ({
    id,
    type: "function",
    function: { name, arguments: JSON.stringify(input) },
  }));
  const messages = [
    { id: newId(), role: "user", content: `Run ${calls.map(({ name }) => name).join(", ")}.` },
    { id: calls[0]?.messageId ?? newId(), role: "assistant", toolCalls },
    ...calls
      .filter((call) => call.result !== null)
      .map(({ id, result }) => ({ id: `${id}:result`, role: "tool", toolCallId: id, content: result.text })),
  ];
  return { tool: null, body: agentInput(state.threadId, messages, {}, { ...ids, resume: answers }) };
}

/** An object whose properties nobody names is written as JSON. */
const isObjectSchema = (schema) => schema?.properties !== undefined;

const same = (left, right) => JSON.stringify(left) === JSON.stringify(right);
